"""Draw what the learned policy does where workers change, beside the plan of the default.

``python notebooks/what_was_learned.py`` writes ``notebooks/pictures/what-was-learned.png``, and
prints the numbers.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import ata_policies
from ata_gym.bench.report import style
from ata_gym.changes import Change, Jump, Periodic
from ata_gym.pools import gamma
from ata_gym.scenarios import Scenario
from ata_policies.steps import play

PICTURE = Path(__file__).parent / "pictures" / "what-was-learned.png"
# the default alone: beside its plan it has this very network
PLAN = "distribution-learner:network=False"
POLICIES = ("learned", PLAN, "dynamic-oracle")
NAMES = {PLAN: "the default's plan alone"}
BUDGET = 14
ROUNDS = 60
ROWS = 256
# the first round in which the fastest worker is slow, and the first in which it is not any more
SLOW = 20
BACK = 32
POOL = gamma(9.0, np.array([10.0, 12.0, 14.0, 17.0, 20.0, 24.0, 30.0]) / 9.0)


def played(policy: str, change: Change) -> tuple[NDArray[np.float64], float]:
    """The tasks of the first worker in each round, on average over episodes, and the mean
    runtime.
    """
    world = Scenario(POOL, BUDGET, ROUNDS, (change,))
    # it decides slowly, and luck makes no difference to it
    if policy == "dynamic-oracle":
        rows = ROWS // 8
    else:
        rows = ROWS
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, scenario=world)
    steps = list(islice(play(ata_policies.make(policy, envs), envs, seed=0), ROUNDS))
    return np.array([step.action[:, 0].mean() for step in steps]), float(
        steps[-1].info["runtime"].mean(),
    )


def main() -> None:
    """Play both worlds with all policies."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    changes = (Jump(at=SLOW - 1, workers=(0,), factor=6.0, until=BACK - 1), Periodic(12.0, 0.9))
    titles = (
        f"6 times slower from round {SLOW} to {BACK - 1}",
        "All workers under load with a period of 12 rounds",
    )
    for one, change, title in zip(axes, changes, titles, strict=True):
        for policy, look in style.lines(POLICIES).items():
            tasks, runtime = played(policy, change)
            one.plot(
                np.arange(1, ROUNDS + 1),
                tasks,
                **look,
                label=f"{NAMES.get(policy, policy)}: runtime {runtime:.0f}",
            )
            print(
                f"{title}: {policy} {runtime:.0f};",
                *(f"{k}: {tasks[k - 1]:.1f}" for k in range(SLOW - 1, BACK + 8)),
            )
        one.set(title=title, xlabel="round", ylim=(0, None))
        one.set_ylabel(f"tasks of the fastest worker, of {BUDGET}")
        one.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
