"""Damage in any file of a results folder is found."""

from __future__ import annotations

import numpy as np
import pytest

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import play_all
from ata_gym.bench.experiment.run import play_to_end
from ata_gym.bench.experiment.store import open_folder
from ata_gym.bench.experiment.verify import verify


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with a finished policy and an unfinished one."""
    path = tmp_path_factory.mktemp("results") / "out"
    played = Experiment.on_scenario("icml2025-regret", rounds=600, seeds=2)
    folder = open_folder(path, played.config())
    assert play_all(played, ["uta"], folder, processes=1) == {}
    answers = iter([False, True])
    assert play_to_end(played, "ata", folder, save_every=0.0, stop=lambda: next(answers)) is None
    return path


def test_a_whole_folder_has_no_fault(results):
    checked = verify(results.parent)
    assert {one.file.name for one in checked} == {
        "config.json", "timings.json", "uta.parquet", "ata.npz", "ata.npz.previous", "ata.json",
    }  # fmt: skip
    assert not any(one.fault for one in checked)


@pytest.mark.parametrize(
    "name", ["results/uta.parquet", "allocations/uta.parquet", "checkpoints/ata.npz", "checkpoints/ata.npz.previous"]
)
def test_every_flipped_byte_is_found(results, name):
    file = results / name
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    try:
        for where in rng.integers(len(whole), size=40):
            damaged = bytearray(whole)
            damaged[where] ^= 1 << rng.integers(8)
            file.write_bytes(damaged)
            assert [one.file for one in verify(results) if one.fault] == [file]
    finally:
        file.write_bytes(whole)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no results"):
        verify(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        verify(tmp_path / "none")
