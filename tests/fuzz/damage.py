"""A damaged results folder is refused with a sentence, or mended: never read as other values."""

from __future__ import annotations

import functools
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import Effort, play_all
from ata_gym.bench.experiment.run import Job, play_to_end
from ata_gym.bench.experiment.store import open_folder
from tests.fuzz.inputs import mutated

_POLICIES = ["uta", "ata", "thompson"]


def attempt(rng: np.random.Generator, folder: Path) -> None:
    """Change, cut or remove one file of a results folder, and run the same again."""
    made, whole = _reference()
    out = folder / "out"
    shutil.copytree(made, out)
    files = sorted(file for file in out.rglob("*") if file.is_file() and file.name != "timings.json")
    victim = files[int(rng.integers(len(files)))]
    if rng.random() < 0.1:
        victim.unlink()
    else:
        victim.write_bytes(mutated(rng, victim.read_bytes()))
    played = _experiment()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged checkpoint is set aside with one
            results = open_folder(out, played.config())
            assert play_all(played, _POLICIES, results, effort=Effort(jobs=1)) == {}, f"{victim.name}: a policy failed"
            records = results.results(_POLICIES)
    except ValueError:  # refused with a sentence
        return
    assert records.equals(whole), f"{victim.name} was read as other values"


def _experiment() -> Experiment:
    return Experiment.on_scenario("icml2025-regret", rounds=700, seeds=2)


@functools.cache
def _reference():
    """A folder with a finished policy, an unfinished one and one to come, and the records that all have in the end."""
    place = Path(tempfile.mkdtemp(prefix="ata-gym-fuzz-"))
    import atexit

    atexit.register(shutil.rmtree, place, ignore_errors=True)
    played = _experiment()
    whole = open_folder(place / "whole", played.config())
    assert play_all(played, _POLICIES, whole, effort=Effort(jobs=1)) == {}
    folder = open_folder(place / "out", played.config())
    assert play_all(played, ["uta"], folder, effort=Effort(jobs=1)) == {}
    answers = iter([False, True])
    play_to_end(Job(played, "ata", folder), save_every=0.0, stop=lambda: next(answers))
    (place / "out" / ".ata-gym.holder.json").unlink(missing_ok=True)
    return place / "out", whole.results(_POLICIES)
