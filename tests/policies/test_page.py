"""The page of the policies: its table, and its example as a package of a user's own."""

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import polars as pl
import pytest
from typer.testing import CliRunner

import ata_policies
from ata_gym.bench import decision_cost
from ata_gym.cli import app
from ata_policies.card import policy_card
from ata_policies.registry import RECOMMENDED
from docs import policy_costs

PAGES = Path(__file__).parents[2] / "policies"
PAGE = (PAGES / "README.md").read_text(encoding="utf-8")
OURS = [
    name
    for name in ata_policies.names()
    if ata_policies.load(name).__module__.startswith("ata_policies.")
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_table_has_every_policy_as_it_describes_itself() -> None:
    """All but the cost, which is measured: ``python -m docs.policy_costs`` prints the table
    anew.
    """
    page = (PAGES / "all.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    expected = policy_costs.table(
        map(policy_card, OURS),
        dict.fromkeys(OURS, (1.0, 1.0, 1.0)),
    ).splitlines()
    assert [row.rsplit(" | ", 3)[0] for row in rows] == [
        row.rsplit(" | ", 3)[0] for row in expected
    ]
    costs = [cost.strip(" |") for row in rows[2:] for cost in row.rsplit(" | ", 3)[1:]]
    assert all(cost == "-" or float(cost) > 0 for cost in costs)  # -: not measured yet


def test_the_page_has_the_recommended_policies_as_they_describe_themselves() -> None:
    assert f"-->\n{policy_costs.recommended()}\n\n" in PAGE
    assert policy_costs.recommended().count("\n") == 1 + sum(map(len, RECOMMENDED))


def test_the_list_can_be_of_one_env_and_costs_are_measured() -> None:
    table = CliRunner().invoke(app, ["policies", "--all", "--env", "ata_gym/TaskRace-v0"]).stdout
    for name in OURS:
        assert (f" {name} " in table) == (ata_policies.load(name).env_id == "ata_gym/TaskRace-v0")
    wrong = CliRunner().invoke(app, ["policies", "--env", "rase"])
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("ata-gym: there is no env 'rase'; did you mean race? (more: ")
    assert "give its name" in CliRunner().invoke(app, ["policies", "--cost"]).stderr
    costs = policy_costs.relative_costs("gta", steady=120, changing=60)
    assert all(0 < cost < 10 for cost in costs)  # of what takes a third of the time


def test_the_decisions_of_one_policy_are_timed_by_the_number_of_workers(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(decision_cost, "FIRST_ROUNDS", 3)
    told = CliRunner().invoke(app, ["policies", "uta", "--cost"]).stdout
    for world in (
        "n = 51, B = 23",
        "the same, speeds walk",
        "n = 1,000, B = 500",
        "n = 10,000, B = 23",
    ):
        ((mean, worst),) = re.findall(rf"{world} +([\d.e-]+) +([\d.e-]+)", told)
        assert 0 < float(mean) <= float(worst)
    data = json.loads(CliRunner().invoke(app, ["policies", "uta", "--cost", "--json"]).stdout)
    assert [*data["n = 10,000, B = 23"]] == ["mean", "worst"]
    monkeypatch.setattr(policy_costs, "FIRST_ROUNDS", 3)
    drawn = policy_costs.draw(["uta", "ata"], (10, 10_000, 20_000), tmp_path / "cost.png")
    assert [len(numbers) for numbers in drawn.values()] == [4, 4]
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")


def test_the_first_example_runs() -> None:
    exec(blocks("python")[0], {})


@pytest.fixture
def users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as the page tells to write it, installed as pip would: code and metadata on the
    path.
    """
    module = blocks("python")[1]
    (project,) = blocks("toml")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "my_module.py").write_text(module, encoding="utf-8")
    installed = tmp_path / "my_package-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    groups = tomllib.loads(project)["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items())
        for group, points in groups.items()
    ]
    (installed / "entry_points.txt").write_text("".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("my_package", "my_package.my_module"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("users_folder")
def test_a_users_package_is_found_checked_and_made() -> None:
    assert "hopeful" in ata_policies.names()
    ata_policies.check_policy("hopeful:hope=10", rounds=8)
    env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    policy = ata_policies.make("hopeful", env, hope=10.0)
    assert type(policy).__module__ == "my_package.my_module"
    assert policy.hope == 10.0
    assert " hopeful " in CliRunner().invoke(app, ["policies"]).stdout
    checked = CliRunner().invoke(app, ["check", "hopeful", "--scenario", "icml2025-regret"])
    assert (checked.exit_code, checked.stdout) == (0, "hopeful keeps the contract of a policy\n")


@pytest.mark.usefixtures("users_folder")
def test_the_commands_of_the_page_run() -> None:
    *_, commands = blocks("sh")
    for line, jobs in zip(commands.splitlines(), (1, 2, 1), strict=True):
        short = line.replace("--rounds 2000", f"--rounds 20 --seeds 2 --jobs {jobs}")
        short = short.replace("ata-icml,my_package.my_module:Hopeful", "uta,hopeful")
        done = CliRunner().invoke(app, shlex.split(short)[1:])
        assert done.exit_code == 0, done.output
    assert "hope" in done.stdout
    assert pl.read_parquet("results/mine/results/hopeful.parquet")["round"].max() == 20


def test_check_says_what_is_wrong_and_two_packages_may_not_share_a_name(users_folder: Path) -> None:
    module = users_folder / "my_package" / "my_module.py"
    points = users_folder / "my_package-1.0.dist-info" / "entry_points.txt"
    module.write_text(
        module.read_text().replace("self.setting.budget,", "self.setting.budget - 1,"),
    )
    done = CliRunner().invoke(app, ["check", "my_package.my_module:Hopeful"])
    assert done.exit_code == 1
    illegal = (
        "its action is illegal in round 1: the tasks of row 0 must sum to the budget of 7, not to 6"
    )
    assert f"fault: {illegal}" in done.stdout
    done = CliRunner().invoke(app, ["check", "my_package.my_module:Hopeless"])
    assert done.exit_code == 2
    assert "there is no policy 'my_package.my_module:Hopeless'" in done.stderr
    points.write_text("[ata_gym.policies]\nuta = my_package.my_module:Hopeful\n")
    said = "named 'uta', in ata_policies and my_package.my_module:Hopeful: say which as"
    with pytest.raises(ValueError, match=said):
        ata_policies.load("uta")
