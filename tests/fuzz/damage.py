"""Damaged files: those from outside are refused with a sentence, and results are mended or refused,
never misread.
"""

import atexit
import contextlib
import functools
import gzip
import io
import pickle
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import Job, play_to_end
from ata_gym.bench.store.folder import open_folder
from ata_gym.pools import Pool, read_trace
from tests.bench.by_hand import play_all

_SIZES = {"train": 7, "test": 3}
_POLICIES = ["uta", "ata", "thompson"]


def read_inputs(rng: np.random.Generator, folder: Path) -> None:
    kinds = ["csv", "parquet", "gz"] + ["tar", "npz"] * bool(find_spec("torch"))
    kind = str(rng.choice(kinds))
    path = folder / {"gz": "times.csv.gz", "tar": "images.tar.gz"}.get(kind, f"times.{kind}")
    (_write_images if kind in {"tar", "npz"} else _write_trace)(path)
    path.write_bytes(mutated(rng, path.read_bytes()))
    with contextlib.suppress(ValueError, OSError):  # refused with a sentence
        if kind in {"tar", "npz"}:
            from ata_gym.training.problems.cifar100 import read_images

            read_images(path)
        else:
            assert isinstance(read_trace(path, worker="worker", duration="seconds"), Pool)


def mutated(rng: np.random.Generator, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 8))):
        if changed:
            where = int(rng.integers(len(changed)))
        else:
            where = 0
        how = rng.integers(5)
        if how == 0 and changed:
            changed[where] ^= 1 << int(rng.integers(8))
        elif how == 1:
            changed[where:where] = rng.bytes(int(rng.integers(1, 9)))
        elif how == 2:
            del changed[where : where + int(rng.integers(1, 9))]
        elif how == 3:
            changed[where : where + 1] = rng.choice(
                [b"\0", b",", b'"', b"\n", b"9" * 30, b"nan", b"-", b"1e999"],
            )
        elif rng.random() < 0.2:
            del changed[where:]
    return bytes(changed)


def _write_trace(path: Path) -> None:
    frame = pl.DataFrame(
        {"worker": [1, 2] * 20, "seconds": np.linspace(1, 5, 40), "note": ["a", "b,c"] * 20},
    )
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(path)


def _write_images(path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = {
        which: (rng.integers(0, 256, (k, 3072), np.uint8), rng.integers(0, 100, k))
        for which, k in _SIZES.items()
    }
    if path.suffix == ".npz":
        arrays = {
            f"{which}_{what}": one
            for which, pair in parts.items()
            for what, one in zip("xy", pair, strict=True)
        }
        np.savez_compressed(path, **arrays)
        assert zipfile.is_zipfile(path)
        return
    with tarfile.open(path, "w:gz") as archive:
        for which, (pixels, labels) in parts.items():
            content = pickle.dumps({b"data": pixels, b"fine_labels": labels.tolist()}, protocol=2)
            entry = tarfile.TarInfo(f"cifar-100-python/{which}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def run_again(rng: np.random.Generator, folder: Path) -> None:
    (made, whole), out = _reference(), folder / "out"
    shutil.copytree(made, out)
    files = sorted(
        file for file in out.rglob("*") if file.is_file() and file.name != "timings.json"
    )
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
            assert play_all(played, _POLICIES, results, effort=Effort(jobs=1)) == {}, (
                f"{victim.name}: a policy failed"
            )
            records = results.results(_POLICIES)
    except ValueError:  # refused with a sentence
        return
    assert records.equals(whole), f"{victim.name} was read as other values"


def _experiment() -> Experiment:
    return Experiment.on_scenario("icml2025-regret", rounds=700, seeds=2)


@functools.cache
def _reference():
    """A folder with a finished policy, an unfinished one and one to come, and the records that all
    have in the end.
    """
    place = Path(tempfile.mkdtemp(prefix="ata-gym-fuzz-"))
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
