"""Commands that start together with an empty cache of kernels, each with a temporary folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.waiting import PATIENCE

_POLICIES = ("ata", "thompson", "race", "dispatch", "distribution-learner", "ata-empirical")


def attempt(rng: np.random.Generator, folder: Path) -> None:
    """Six at once, then the same again with the cache that they left, maybe damaged."""
    for k in range(2):
        running = []
        for policy in _POLICIES:
            place = folder / f"{policy}-{k}"
            (place / "tmp").mkdir(parents=True)
            environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(place / "tmp")}
            command = f"bench --scenario icml2025-regret --rounds 30 --seeds 1 --policies {policy} --jobs 1 --out"
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "ata_gym", *command.split(), str(place / "out")],
                    env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        errors = [process.communicate(timeout=PATIENCE)[1] for process in running]
        assert [process.returncode for process in running] == [0] * len(running), errors
        files = sorted(file for file in (folder / "cache").rglob("*") if file.is_file())
        for file in rng.choice(np.array(files, dtype=object), 5, replace=False):
            content = bytearray(file.read_bytes())
            content[int(rng.integers(len(content)))] ^= 0xFF
            file.write_bytes(content)
