import json
import re
from pathlib import Path

import pytest

import ata_gym
import ata_policies
from ata_gym.cli import console
from ata_gym.scenarios.recorded import RECORDINGS
from ata_policies.allocation.composition import MEMORIES, ComposedPolicy
from ata_policies.card import full_scenario_card, policy_card
from ata_policies.presets import PRESETS
from ata_policies.registry import DEFAULTS, RECOMMENDED, ids_by_name

MINE = """
from ata_policies.allocation.baselines import Uta

class Mine(Uta):
    \"\"\"Gives tasks to anybody. Mine.

    See ``Uta``.

    Args:
        seed: Of its randomness, which is
            not much.
    \"\"\"
"""


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("policies --all", ata_policies.names()),
        ("scenarios", (*ata_gym.scenario_names(), *RECORDINGS)),
    ],
)
def test_a_list_has_each_whole_and_fits_80_columns_or_a_wide_terminal(
    run,
    monkeypatch,
    command,
    names,
):
    lines = run(command).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    # names stand at the left
    cells = [line.split() for line in lines if re.match(r" \S", line) and line.strip(" ─")]
    assert command == "scenarios" or sum("THE DEFAULT" in line for line in lines) == 3
    listed = [words for words in cells if words[0] not in {"policy", "scenario"}]
    assert sorted(words[0] for words in listed) == sorted(names)
    assert min(map(len, listed)) > 3
    monkeypatch.setattr("ata_gym.cli.listings.list_width", lambda: 200)
    wide = run(command).stdout.splitlines()
    assert max(map(len, wide)) <= 200
    assert len(wide) < len(lines)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("name", [n for n, p in PRESETS.items() if p.build is ComposedPolicy])
def test_the_card_of_a_composition_is_that_of_its_parts(name, memory):
    """Sliding-window and discounted Thompson sampling and CUCB, among others, are names."""
    facts = policy_card(f"{name}:memory={memory}").facts
    part = MEMORIES[memory]
    others = [each for each in PRESETS[name].parts if each not in MEMORIES.values()]
    assert facts["for workers that change"] == ("yes" if part.nonstationary else "no")
    for fact in ("source", "constants"):
        telling = {getattr(each, fact) for each in (part, *others)} - {"", "none"}
        assert all(each in facts[fact] for each in telling)


@pytest.mark.parametrize(
    ("command", "card"),
    [
        *(("policies", policy_card(name)) for name in ata_policies.names()),
        *(
            ("scenarios", full_scenario_card(ata_gym.scenario(name)))
            for name in ata_gym.scenario_names()
        ),
    ],
)
def test_a_card_says_everything(run, command, card):
    told = run(f"{command} {card.name}").stdout
    assert max(map(len, told.splitlines()[:-1])) <= 80
    assert told.splitlines()[-1].strip() == card.command
    for fact, said in card.facts.items():
        assert f"{fact} " in told
        assert all(word in told for word in said.split())
    plain = squeezed(told)
    for word in card.text.replace("``", "").split():
        assert set(word) == {"-"} or ":" in word or word in plain, word


def test_a_policy_of_ones_own_has_a_card(run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_with_a_card.py").write_text(MINE)
    told = run("policies mine_with_a_card:Mine").stdout
    assert told.startswith("mine_with_a_card:Mine\nGives tasks to anybody. Mine.\n")
    assert "See Uta." in told
    assert "    Of its randomness, which is not much." in told


def document(run, line: str, code: int = 0):
    return json.loads(run(f"{line} --json", code).stdout)


def test_scripts_get_one_document(run, capsys):
    console.say_json({"mean": [1.0, float("nan"), (float("inf"),)]})
    assert json.loads(capsys.readouterr().out) == {"mean": [1.0, None, [None]]}
    policies = document(run, "policies --all")
    assert [policy["name"] for policy in policies] == list(ata_policies.names())
    assert document(run, "policies ata") == policy_card("ata").to_data()
    assert {
        policy["facts"]["plays"].split(",")[0]
        for policy in document(run, "policies --env race --all")
    } == {"race"}
    scenarios = document(run, "scenarios")
    assert [one["name"] for one in scenarios["scenarios"]] == list(ata_gym.scenario_names())
    assert [one["file"] for one in scenarios["recorded"]] == [
        one.file for one in RECORDINGS.values()
    ]
    assert (
        document(run, "scenarios five-workers")
        == full_scenario_card(ata_gym.scenario("five-workers")).to_data()
    )
    assert document(run, "check uta --scenario five-workers --rounds 4")["faults"] == []


def test_the_training_methods_are_listed_where_they_are_chosen(run):
    pytest.importorskip("torch")
    from ata_gym.training.methods import METHODS

    lines = run("train --list-methods").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines if re.match(r" [a-z0-9]", line)]
    assert names == ["method", *METHODS]
    assert lines[-1] == "Weights 1 / (n a_i) mend that only where every worker has a task."


README = Path(__file__).parents[2] / "README.md"


def readme_rows() -> list[tuple[str, list[str]]]:
    """The rows of README's table: whom policies are for, and their names."""
    table = README.read_text("utf-8").partition("## Which policy should I use?\n")[2]
    lines = table.partition("\n\n")[0].splitlines()[2:]
    cells = [line.strip("| ").split(" | ") for line in lines]
    known = ata_policies.names()
    return [
        (reader, [name for name in re.findall(r"`([^`]+)`", text) if name in known])
        for reader, text in cells
    ]


def test_the_recommended_policies_are_those_of_the_readme_in_its_order():
    rows = readme_rows()
    assert len(rows) > 5
    assert [name for _, names in rows for name in names] == [
        name for group in RECOMMENDED for name in group
    ]
    purposes = {name: purpose for group in RECOMMENDED for name, purpose in group.items()}
    for reader, names in rows:
        assert sum(set(names) <= group.keys() for group in RECOMMENDED) == 1
        for name in names:
            assert reader.startswith(purposes[name].partition(":")[0])
    assert set(DEFAULTS.values()) <= purposes.keys()


def test_the_recommended_policies_come_first_each_in_a_line_and_the_last_tells_of_the_others(run):
    told = run("policies").stdout
    for group in RECOMMENDED:
        for name, purpose in group.items():
            assert re.search(rf"^ {name} +{re.escape(purpose)} *$", told, re.MULTILINE)
    names = [name for group in RECOMMENDED for name in group]
    assert [card["name"] for card in document(run, "policies")] == names
    listed = 0
    for env in ids_by_name():
        cards = document(run, f"policies --env {env}")
        listed += len(cards)
        assert {card["facts"]["plays"].split(",")[0] for card in cards} == {env}
        others = len(document(run, f"policies --env {env} --all")) - len(cards)
        last = run(f"policies --env {env}").stdout.splitlines()[-1]
        assert last == f"{others} others: ata-gym policies --env {env} --all"
    assert listed == len(names)
    others = len(ata_policies.names()) - len(names)
    assert told.splitlines()[-1] == f"{others} others: ata-gym policies --all"
