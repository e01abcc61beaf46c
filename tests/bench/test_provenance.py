import dataclasses
import importlib
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import ata_gym
import ata_policies
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.policy_run import PolicyRun
from ata_gym.bench.store import provenance as module
from ata_gym.bench.store.provenance import APART, changed, merged, provenance, provenance_of
from ata_policies import registry
from ata_policies.presets import PRESETS

EVEN = """
from ata_policies import AllocationPolicy

class Even(AllocationPolicy):
    def allocate(self, state):
        '''All to one worker.'''
        from const_of_a_user import WORKER
"""
NAME = "even_policy_of_a_user:Even"


@pytest.fixture(autouse=True)
def _anew():
    module._provenance.cache_clear()
    yield
    module._provenance.cache_clear()


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def write_modules(**sources: str) -> None:
        for name, source in sources.items():
            (tmp_path / f"{name}_of_a_user.py").write_text(source)
            monkeypatch.delitem(sys.modules, f"{name}_of_a_user", raising=False)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        module._provenance.cache_clear()

    return write_modules


def test_the_helper_of_a_policy_of_ones_own_counts_and_docstrings_do_not(write):
    write(even_policy=EVEN, const="WORKER = 0", other="")
    before = provenance(NAME)
    write(
        even_policy=EVEN.replace("All to", "Everything to"),
        const="WORKER = 0  # the fastest",
        other="x = 1",
    )
    assert changed(before, provenance(NAME), NAME) is None
    write(const="WORKER = 19")
    assert changed(before, provenance(NAME), NAME) == f"the code of {NAME} (const_of_a_user)"


@pytest.mark.parametrize(
    ("policy", "edits"),
    [
        (
            "uta",
            {
                "simulation.task_times": 1,
                "envs.allocation": 1,
                "bench.runner.policy_run": 1,
                "utils.validation": 1,
                "cli.tools": 0,
                "envs.dispatch": 0,
                "scenarios.changing": 0,
                "bench.store.folder": 0,
            },
        ),
        ("dispatch-gta", {"envs.dispatch": 1, "envs.allocation": 0}),
    ],
)
def test_of_our_code_what_a_result_depends_on_counts(tmp_path, monkeypatch, policy, edits):
    for package in (ata_gym, ata_policies):
        copy = tmp_path / package.__name__
        shutil.copytree(
            Path(package.__file__).parent,
            copy,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        monkeypatch.setattr(package, "__path__", [str(copy)])
    before = provenance(policy)
    files = {
        name: tmp_path.joinpath("ata_gym", *name.split(".")).with_suffix(".py") for name in edits
    }
    for file in (
        *files.values(),
        tmp_path / "ata_policies" / "presets.py",
        tmp_path / "ata_gym" / "__init__.py",
    ):
        file.write_text(
            '"""Another docstring."""\n# and a comment\n' + file.read_text().partition('"""\n')[2],
        )
    module._provenance.cache_clear()
    assert changed(before, provenance(policy), policy) is None
    for name, counts in edits.items():
        text = files[name].read_text()
        files[name].write_text(text + "\nANOTHER = 1\n")
        module._provenance.cache_clear()
        if counts:
            told = f"the code of ata-gym (ata_gym.{name})"
        else:
            told = None
        assert changed(before, provenance(policy), policy) == told
        files[name].write_text(text)


@pytest.mark.parametrize("policy", ["ata-icml", "thompson-beta", "race-caps", "dispatch-gta"])
def test_all_that_runs_while_a_policy_plays_counts_or_is_apart(policy):
    experiment = Experiment.on_scenario("icml2025-regret", rounds=3, seeds=2)
    ran = set()
    PolicyRun(experiment, policy).play(3)  # the kernels are compiled
    sys.setprofile(lambda frame, *_: ran.add(frame.f_globals.get("__name__", "")))
    try:
        PolicyRun(experiment, policy).play(3)
    finally:
        sys.setprofile(None)
    ours = {name for name in ran if name.partition(".")[0] in {"ata_gym", "ata_policies"}}
    apart = {name for name in ours if any(f"{name}.".startswith(f"{one}.") for one in APART)}
    assert len(ours) > 10
    assert ours - apart <= provenance(policy)["code"].keys()
    assert all(find_spec(name) for name in APART)


def test_the_hyperparameters_of_a_preset_count(monkeypatch):
    before = provenance("ata")
    ours = PRESETS["ata"]
    edited = dataclasses.replace(
        ours,
        about="Another.",
        hyperparameters={**ours.hyperparameters, "alpha": 2.0},
    )
    monkeypatch.setattr(registry, "PRESETS", {**PRESETS, "ata": edited})
    module._provenance.cache_clear()
    assert (
        changed(before, provenance("ata"), "ata")
        == "the code of ata-gym (ata_policies.presets:ata)"
    )


def test_the_commit_of_a_checkout_is_told(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        pytest.skip("git is not here")

    def git(words: str) -> str:
        command = [
            "git",
            "-C",
            str(tmp_path),
            *["-c", "user.name=a", "-c", "user.email=b"],
            *words.split(),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def commit() -> str:
        module._commit.cache_clear()
        return provenance_of("ata_gym.typing")["commit"]

    monkeypatch.setattr(ata_gym, "__file__", str(tmp_path / "ata_gym" / "__init__.py"))
    assert commit() == "none"
    (tmp_path / "file").write_text("1")
    for words in ("init -q", "add .", "commit -q -m first"):
        git(words)
    assert commit() == git("rev-parse HEAD")
    (tmp_path / "file").write_text("2")
    assert commit() == f"{git('rev-parse HEAD')}-dirty"
    module._commit.cache_clear()


def test_files_that_are_read_count_and_what_several_modules_need(tmp_path):
    prior = tmp_path / "prior.csv"
    prior.write_text("1")
    before = provenance(f"ata:memory={prior}")
    prior.write_text("2")
    module._provenance.cache_clear()
    assert (
        changed(before, provenance(f"ata:memory={prior}"), "ata") == "the code of ata (prior.csv)"
    )
    assert "learned.safetensors" in provenance("learned")["code"]
    one = provenance_of("ata_gym.typing")
    other = provenance_of("ata_gym.simulation.keys")
    assert merged(one, other)["code"].keys() == one["code"].keys() | other["code"].keys()


def test_a_folder_that_is_on_the_path_twice_counts_once(tmp_path, monkeypatch):
    (tmp_path / "policies_of_a_user").mkdir()
    (tmp_path / "policies_of_a_user" / "even.py").write_text("")
    for times in (1, 2):
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "policies_of_a_user", raising=False)
        assert len(importlib.import_module("policies_of_a_user").__path__) == times
        assert provenance_of("policies_of_a_user.even")["code"].keys() == {
            "policies_of_a_user.even",
        }
