"""A file from outside that is not what it should be is refused with a sentence, whatever its bytes are."""

from __future__ import annotations

import contextlib
import io
import pickle
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl

from ata_gym.bench.recordings import make_trace
from ata_gym.pools import Pool, read_trace


def attempt(rng: np.random.Generator, folder: Path) -> None:
    """Change some bytes of a trace or of an archive of images, and read it."""
    kinds = ["csv", "parquet", "gz"] + ["tar", "npz"] * bool(find_spec("torch"))
    kind = str(rng.choice(kinds))
    path = folder / {"gz": "times.csv.gz", "tar": "images.tar.gz"}.get(kind, f"times.{kind}")
    (_write_images if kind in {"tar", "npz"} else _write_trace)(path)
    path.write_bytes(mutated(rng, path.read_bytes()))
    with contextlib.suppress(ValueError, OSError):  # refused with a sentence
        if kind in {"tar", "npz"}:
            from ata_gym.training.problems.cifar100 import read_images

            read_images(path)
        elif rng.random() < 0.5:
            assert isinstance(read_trace(path, worker="worker", duration="seconds"), Pool)
        else:
            make_trace(path, folder / "clean.csv", worker="worker", duration="seconds / 2")


def mutated(rng: np.random.Generator, content: bytes) -> bytes:
    """The bytes with some changed, inserted, removed or cut off."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 8))):
        where = int(rng.integers(len(changed))) if changed else 0
        how = rng.integers(5)
        if how == 0 and changed:
            changed[where] ^= 1 << int(rng.integers(8))
        elif how == 1:
            changed[where:where] = rng.bytes(int(rng.integers(1, 9)))
        elif how == 2:
            del changed[where : where + int(rng.integers(1, 9))]
        elif how == 3:
            changed[where : where + 1] = rng.choice([b"\0", b",", b'"', b"\n", b"9" * 30, b"nan", b"-", b"1e999"])
        elif rng.random() < 0.2:
            del changed[where:]
    return bytes(changed)


def _write_trace(path: Path) -> None:
    frame = pl.DataFrame({"worker": [1, 2] * 20, "seconds": np.linspace(1, 5, 40), "note": ["a", "b,c"] * 20})
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".gz":
        import gzip

        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(path)


def _write_images(path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = {which: (rng.integers(0, 256, (k, 3072), np.uint8), rng.integers(0, 100, k)) for which, k in _SIZES.items()}
    if path.suffix == ".npz":
        arrays = {
            f"{which}_{what}": array for which, pair in parts.items() for what, array in zip("xy", pair, strict=True)
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


_SIZES = {"train": 7, "test": 3}
