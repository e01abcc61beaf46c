"""By which code a result was made."""

from __future__ import annotations

import importlib
import sys

import pytest

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import play_all
from ata_gym.bench.experiment.provenance import provenance, provenance_of
from ata_gym.bench.experiment.store import open_folder

EVEN = """
import numpy as np
from ata_policies import AllocationPolicy

class Even(AllocationPolicy):
    def allocate(self, state):
        allocation = np.zeros((len(state.round), self.setting.n), np.int64)
        allocation[:, {worker}] = self.setting.budget
        return allocation
"""
NAME = "even_policy_of_a_user:Even"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def write_policy(worker: int) -> None:
        (tmp_path / "even_policy_of_a_user.py").write_text(EVEN.format(worker=worker))
        sys.modules.pop("even_policy_of_a_user", None)
        provenance.cache_clear()

    yield write_policy
    sys.modules.pop("even_policy_of_a_user", None)
    provenance.cache_clear()


def test_a_policy_that_was_edited_is_refused_or_played_anew(tmp_path, write):
    write(worker=0)
    played = Experiment.on_scenario("icml2025-regret", rounds=20, seeds=1)
    folder = open_folder(tmp_path / "out", played.config())
    assert play_all(played, [NAME, "uta"], folder, processes=1) == {}
    before = folder.results([NAME])["runtime"][-1], folder.result("uta").stat().st_mtime_ns
    assert play_all(played, [NAME], folder, processes=1) == {}  # as it was
    write(worker=19)
    with pytest.raises(
        ValueError, match=r"the file or package of even_policy_of_a_user:Even has changed .* --rerun-changed"
    ):
        play_all(played, [NAME, "uta"], folder, processes=1)
    assert folder.results([NAME])["runtime"][-1] == before[0]
    assert play_all(played, [NAME, "uta"], folder, processes=1, rerun_changed=True) == {}
    assert folder.results([NAME])["runtime"][-1] > before[0]
    assert folder.result("uta").stat().st_mtime_ns == before[1]


def test_a_file_that_a_hyperparameter_names_counts(tmp_path):
    prior = tmp_path / "prior.csv"
    prior.write_text("1")
    before = provenance(f"ata:memory={prior}")
    prior.write_text("2")
    provenance.cache_clear()
    assert provenance(f"ata:memory={prior}")["user"] != before["user"]
    assert provenance("ata")["user"] == provenance("uta")["user"]


def test_a_folder_that_is_on_the_path_twice_counts_once(tmp_path, monkeypatch):
    (tmp_path / "policies_of_a_user").mkdir()
    (tmp_path / "policies_of_a_user" / "even.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    once = provenance_of("policies_of_a_user.even")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "policies_of_a_user")
    assert len(importlib.import_module("policies_of_a_user").__path__) == 2
    assert provenance_of("policies_of_a_user.even") == once
