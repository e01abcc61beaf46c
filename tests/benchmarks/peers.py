"""Thompson sampling of this zoo, with its env, beside Thompson sampling of other packages.

``python -m tests.benchmarks.peers`` installs each package in a temporary environment of its own,
lets it play rounds of a semi-bandit of the same size (``peer_rounds.py``), and prints a table. It
needs a package index. Problems are alike and not the same: here a worker may get several tasks.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

import ata_policies
from ata_gym import Scenario
from ata_gym.pools import exponential
from tests.benchmarks import peer_rounds
from tests.benchmarks.peer_rounds import REPETITIONS, B, N, microseconds

REQUIREMENTS = {
    # Its newest version needs functions that later versions of scipy do not have.
    "SMPyBandits": ["SMPyBandits==0.9.7", "numpy==1.23.5", "scipy==1.11.4"],
    "mabwiser": ["mabwiser==2.7.4"],
    "bayesianbandits": ["bayesianbandits==1.5.0"],
    "numpy": ["numpy"],
}


def of_peer(package: str) -> float:
    """Microseconds of a round and repetition of a package."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", *REQUIREMENTS[package]]
        subprocess.run(install, check=True, stdout=sys.stderr)
        rounds = [python, "-W", "ignore", peer_rounds.__file__, package, "100"]
        done = subprocess.run(rounds, check=True, capture_output=True, text=True)
        return float(done.stdout.split()[-1])


def of_this_zoo(rows: int) -> float:
    """Microseconds of a round and row of ``thompson`` with its env."""
    scenario = Scenario(exponential(1.0 + np.arange(N) / N), budget=B)
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, scenario=scenario)
    policy = ata_policies.make("thompson", envs)
    at: dict[str, Any] = {"observation": envs.reset(seed=0)[0], "state": None}

    def play() -> None:
        action, at["state"] = policy.predict(at["observation"], at["state"])
        at["observation"] = envs.step(action)[0]

    return microseconds(play, 100) / rows


if __name__ == "__main__":
    table = Table("", "repetitions at once", "us a round and repetition")
    table.add_row("thompson with its env", str(REPETITIONS), f"{of_this_zoo(REPETITIONS):.1f}")
    table.add_row("thompson with its env", "1", f"{of_this_zoo(1):.0f}")
    for package in REQUIREMENTS:
        at_once = REPETITIONS if package == "numpy" else 1
        table.add_row(package, str(at_once), f"{of_peer(package):.3g}")
    Console().print(table)
