"""``python -m docs.delayed_feedback``: print what late results cost the learners of the zoo.

The first round of a delay of d rounds is played d + 1 times without any result. What is printed is
the runtime of some rounds over the runtime of the same rounds without a delay, on the same noise.
"""

from __future__ import annotations

import argparse
from itertools import islice

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.changes import OnOff, Spot, Switch
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_policies.steps import play

POLICIES = ("default",)
_ALL = ("default", "certainty-equivalence", "thompson-beta", "recent-average")
DELAYS = (0, 1, 3)
ROUNDS = 500
SEEDS = 16
FIRST = 20  # rounds that are also counted alone, as a delay costs most at the start

_FEW = exponential([2.0 * i for i in range(1, 21)])
_MANY = exponential([1.0 + 0.1 * i for i in range(100)])
WORLDS = {
    "20 workers, B = 5": Scenario(_FEW, 5),
    "100 workers, B = 20": Scenario(_MANY, 20),
    "20 workers, slow spells": Scenario(_FEW, 5, changes=(OnOff(8.0, 0.02, 0.05),)),
    "20 workers, others every 100": Scenario(_FEW, 5, changes=(Switch(every=100),)),
    "20 workers, taken away": Scenario(_FEW, 5, changes=(Spot(0.01, 0.1, deadline=50.0),)),
}


def runtimes(world: Scenario, name: str, delay: int, rounds: int, seeds: int) -> Floats:
    """The runtime of each seed after each round, (rounds, seeds)."""
    envs = gym.make_vec(
        "ata_gym/TaskAllocation-v0", num_envs=seeds, scenario=world, delay=delay, horizon=None
    )
    policy = ata_policies.make(name, envs)
    return np.array([step.info["runtime"] for step in islice(play(policy, envs), rounds)])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.delayed_feedback",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="(500)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="(16)")
    options = parser.parse_args()
    for world, scenario in WORLDS.items():
        for name in POLICIES:
            whole = [
                runtimes(scenario, name, delay, options.rounds, options.seeds) for delay in DELAYS
            ]
            cells = [f"{whole[0][-1].mean() / options.rounds:.3g}"]
            for late in whole[1:]:
                ratio = late[-1].mean() / whole[0][-1].mean()
                worst = (late[-1] / whole[0][-1]).max()
                beyond = (late[-1] - late[FIRST]).mean() / (whole[0][-1] - whole[0][FIRST]).mean()
                cells.append(f"{ratio:.3f} {beyond:.3f} {worst:.3f}")
            print(world, "|", name, "|", " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
