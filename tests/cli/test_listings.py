import json
import re
from importlib.util import find_spec

import pytest

import ata_gym
import ata_policies
from ata_gym.cli import console
from ata_gym.scenarios.recorded import RECORDINGS
from ata_policies.card import full_scenario_card, policy_card

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
        ("policies", ata_policies.names()),
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


def test_scripts_get_one_document(run, benched, capsys):
    console.say_json({"mean": [1.0, float("nan"), (float("inf"),)]})
    assert json.loads(capsys.readouterr().out) == {"mean": [1.0, None, [None]]}
    policies = document(run, "policies")
    assert [policy["name"] for policy in policies] == list(ata_policies.names())
    assert document(run, "policies ata") == policy_card("ata").to_data()
    assert {
        policy["facts"]["plays"].split(",")[0] for policy in document(run, "policies --env race")
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
    if find_spec("torch"):
        from ata_gym.training.methods import METHODS

        assert [method["name"] for method in document(run, "methods")] == list(METHODS)
    assert document(run, "verify out")["damaged"] == []
    records = benched.out / "results" / "uta.parquet"
    records.write_bytes(records.read_bytes()[:100])
    (fault,) = document(run, "verify out", code=1)["damaged"]
    assert fault["file"] == "out/results/uta.parquet"
