import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from email.message import Message
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import ata_gym
import ata_policies
from ata_gym.cli import ABOUT, GREETING, GROUPS, app, guide
from ata_gym.cli.guide import NEXT, PAGES
from ata_gym.scenarios.recorded import RECORDINGS
from ata_gym.training.problem import problem_names

ROOT = Path(__file__).parents[2]
COMMANDS = get_command(app).commands


def examples(text: str) -> list[str]:
    return re.findall(r"^ *(ata-gym \S.*)$", re.sub(r" \\\n +", " ", text), re.MULTILINE)


def parse(line: str) -> None:
    """Fail unless the command line names a command and gives options and arguments that it
    takes.
    """
    name, *arguments = shlex.split(line)[1:]
    COMMANDS[name].make_context(name, arguments)


def test_the_help_is_read_at_one_look_on_a_terminal_of_24_lines_and_80_columns(run):
    lines = run("--help").stdout.splitlines()
    # a prompt follows
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines[2:] if not line.startswith(" ")]
    assert titles == [f"{title}:" for title in GROUPS]
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert listed == list(COMMANDS)
    assert lines[1] == ABOUT


def test_nothing_but_the_name_greets_with_commands_that_can_be_typed(run):
    told = run("").stdout
    assert told.strip() == GREETING
    assert NEXT in GREETING
    assert len(told.splitlines()) < 24  # a prompt follows
    assert max(map(len, told.splitlines())) <= 80
    shown = [line for line in examples(GREETING) if not line.startswith("ata-gym 0")]
    assert len(shown) >= 3
    for line in shown:
        parse(line)


def test_after_the_demo_three_commands_go_on_that_can_be_typed():
    assert [line.split()[1] for line in examples(NEXT)] == ["bench", "learn", "what-if"]
    for line in examples(NEXT):
        parse(line)


def test_the_demo_ends_with_them(run, monkeypatch):
    for name in ("bench", "train"):
        monkeypatch.setattr(f"ata_gym.cli.studies.bench.{name}", lambda *_, **__: None)
    assert run("demo --out made").stdout.endswith(f"\n\n{NEXT}\n")


def test_each_command_has_a_page_of_the_project():
    assert PAGES.keys() == COMMANDS.keys()
    for page in PAGES.values():
        assert (ROOT / page).is_file(), page


def test_a_mistake_leads_to_the_page_of_its_command(run, monkeypatch, tmp_path):
    wrong = "what-if nowhere.csv"
    assert run(wrong, code=2).stderr.endswith(f" (more: {ROOT / 'docs/guide/formats.md'})\n")
    monkeypatch.chdir(ROOT)
    assert run_here(wrong).endswith(f" (more: {Path('docs/guide/formats.md')})\n")
    # an installed package without an address, and one with an address
    monkeypatch.setattr(ata_gym, "__file__", str(tmp_path / "ata_gym/__init__.py"))
    assert run_here(wrong).endswith(" (more: ata-gym what-if --help)\n")
    told = Message()
    told["Project-URL"] = "Homepage, https://example.org/one/ata-gym"
    told["Project-URL"] = "Source, https://example.org/one/ata-gym/blob/v0.1.0"
    monkeypatch.setattr(guide, "metadata", lambda _name: told)
    page = "https://example.org/one/ata-gym/blob/v0.1.0/docs/guide/formats.md"
    assert run_here(wrong).endswith(f" (more: {page})\n")


def run_here(line: str) -> str:
    return CliRunner().invoke(app, shlex.split(line)).stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_help_that_is_short_first_has_examples_that_parse_and_fits(
    run,
    monkeypatch,
    name,
):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("--help").stdout.splitlines()
    told = COMMANDS[name].help
    first, blank, *_ = [*told.splitlines(), ""]
    assert len(first) <= 60
    assert first.endswith(".")
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith(f"  {name} ")] == [first]
    assert not blank
    code = "\n".join(re.findall(r"^```\n(.*?)^```", told, re.MULTILINE | re.DOTALL))
    assert max(map(len, code.splitlines())) <= 76  # no line is broken in a terminal of 80 columns
    shown = examples(code)
    assert any(line.startswith(f"ata-gym {name}") for line in shown)
    for line in shown:
        parse(line)
    shown = run(f"{name} --help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    flags = [
        flag for option in COMMANDS[name].params for flag in option.opts if flag.startswith("--")
    ]
    assert flags or name == "cite"
    assert not [flag for flag in flags if f" {flag} " not in shown]  # whole, not cut


def test_the_installed_command_completes_names_without_importing_anything_heavy():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="ata-gym")
    assert script.value == "ata_gym.__main__:main"
    line = "ata-gym bench --policies ofta,ata-i"
    asked = {"_ATA_GYM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "3"}
    command = [sys.executable, "-X", "importtime", "-m", "ata_gym"]
    done = subprocess.run(
        command,
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["ofta,ata-icml"]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "ata_gym.cli.studies.train" in loaded
    assert not loaded & {
        "torch",
        "polars",
        "matplotlib",
        "jinja2",
        "ray",
        "sklearn",
        "stable_baselines3",
    }


@pytest.mark.parametrize("line", ["--version", "--help", "bench --help"])
def test_what_only_tells_of_the_commands_imports_no_compiler(line):
    command = [sys.executable, "-X", "importtime", "-m", "ata_gym", *line.split()]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    loaded = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "ata_gym.cli" in loaded
    assert not loaded & {"numba", "scipy", "ata_policies", "ata_gym.scenarios"}


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("--policies", ("default", *ata_policies.names())),
        ("--scenario", (*ata_gym.scenario_names(), *RECORDINGS)),
        ("--problem", problem_names()),
        ("--env", ("allocation", "race", "dispatch")),
    ],
)
def test_every_option_that_takes_a_name_completes_it(option, names):
    found = [
        (command, one)
        for command in COMMANDS.values()
        for one in command.params
        if option in one.opts
    ]
    assert found
    for command, parameter in found:
        context = typer.Context(command, resilient_parsing=True)
        assert sorted(item.value for item in parameter.shell_complete(context, "")) == sorted(
            names,
        ), command.name
        assert names[0] in [item.value for item in parameter.shell_complete(context, names[0][:-1])]
        assert parameter.shell_complete(context, "no-such-name") == []
