"""Draw how the distribution learner decides: what it knows, whom it uses and tries, and when it
plans.

``python notebooks/how_the_default_decides.py`` writes
``notebooks/pictures/how-the-default-decides.png``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

import ata_policies
from ata_policies.planning.knowledge import learn_rows

PICTURE = Path(__file__).parent / "pictures" / "how-the-default-decides.png"
ROUNDS = 60


def main() -> None:
    """Play some rounds, and draw the last state and all plans."""
    env: Any = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=1, scenario="icml2025-cifar100")
    policy: Any = ata_policies.make("distribution-learner", env)
    observation = env.reset(seed=1)[0]
    state = None
    best = []
    trials = []
    plans = []
    for k in range(ROUNDS):
        planned = state is None or state.plan.due[0] <= k + 1
        action, state = policy.predict(observation, state)
        observation, *_ = env.step(action)
        best.append(state.plan.best[0])
        trials.append(action[0] - state.plan.best[0] > 0)
        if planned:
            plans += [k + 1]
    known = learn_rows(state.belief, policy.weight)
    means = env.unwrapped.means()[0]
    unit = np.median(state.belief.mean()[0] / np.exp(known.estimates.location[0]))
    workers = np.arange(1, means.size + 1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    centre = unit * np.exp(known.posterior.location[0])
    spread = np.exp(known.posterior.spread[0])
    left.vlines(
        workers,
        centre / spread,
        centre * spread,
        color="tab:blue",
        alpha=0.5,
        label="known, ± one deviation",
    )
    left.plot(workers, means, ".", color="black", markersize=4, label="true mean task time")
    left.set(
        xlabel="worker",
        ylabel="time",
        yscale="log",
        title=f"1. What is known after {ROUNDS} rounds",
    )
    left.legend(frameon=False)
    right.imshow(
        np.array(best).T,
        aspect="auto",
        cmap="Blues",
        extent=(0.5, ROUNDS + 0.5, means.size + 0.5, 0.5),
    )
    rounds, tried = np.nonzero(trials)
    right.plot(
        rounds + 1,
        tried + 1,
        "x",
        color="tab:red",
        markersize=4,
        label="4. tried for what is learned",
    )
    right.plot(plans, np.zeros(len(plans)), "|", color="black", clip_on=False, label="5. plans")
    right.set(
        xlabel="round",
        ylabel="worker",
        title="2., 3. Tasks of the best allocation found (blue)",
    )
    right.legend(loc="lower right")
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
