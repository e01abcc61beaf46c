"""``python -m docs.delayed_feedback``: print what it costs that results are known some rounds late.

What is printed is the runtime over that of the same policy without a delay, on the same noise: of
the mean over the seeds, and in brackets of the worst seed.
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

POLICIES = ("default", "certainty-equivalence", "thompson-beta", "recent-average")
DELAYS = (1, 3)
ROUNDS = 500
SEEDS = 16
FIRST_ROUNDS = 20
"""The rounds without which the ratios are printed again."""

_FEW = exponential(np.arange(2.0, 41.0, 2.0))
_MANY = exponential(np.linspace(1.0, 11.0, 100))
WORLDS = {
    "20 workers, steady": Scenario(_FEW, 5),
    "100 workers, steady": Scenario(_MANY, 20),
    "slow spells of 20 rounds": Scenario(_FEW, 5, changes=(OnOff(8.0, 0.02, 0.05),)),
    "speeds permuted every 100": Scenario(_FEW, 5, changes=(Switch(every=100),)),
    "away for 10 rounds in 110": Scenario(_FEW, 5, changes=(Spot(0.01, 0.1, deadline=50.0),)),
}


def runtimes(world: Scenario, name: str, delay: int, rounds: int, seeds: int) -> Floats:
    """The runtime after each round, (rounds, seeds)."""
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=seeds, scenario=world, delay=delay)
    policy = ata_policies.make(name, envs)
    return np.array([step.info["runtime"] for step in islice(play(policy, envs), rounds)])


def ratio(late: Floats, prompt: Floats) -> str:
    """The ratio of the means of two arrays of runtimes, (seeds,), and the largest of a seed."""
    return f"{late.mean() / prompt.mean():.2f} ({(late / prompt).max():.2f})"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.delayed_feedback",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="more than 20 (500)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="(16)")
    options = parser.parse_args()
    rows = []
    for world, scenario in WORLDS.items():
        for name in POLICIES:
            prompt, *late = (
                runtimes(scenario, name, delay, options.rounds, options.seeds)
                for delay in (0, *DELAYS)
            )
            cells = [ratio(times[-1], prompt[-1]) for times in late]
            first = FIRST_ROUNDS - 1
            cells += [ratio(times[-1] - times[first], prompt[-1] - prompt[first]) for times in late]
            rows.append((world, name, f"{prompt[-1].mean() / options.rounds:.1f}", *cells))
    titles = ["round time, no delay"]
    titles += [f"{delay} late" for delay in DELAYS]
    titles += [f"{delay} late, from round {FIRST_ROUNDS + 1} on" for delay in DELAYS]
    print(markdown([Table("", {"workers": LEFT, "policy": LEFT, **right(titles)}, rows)]).strip())


if __name__ == "__main__":
    main()
