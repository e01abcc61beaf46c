"""``python -m docs.adaptive_k``: print what a training costs whose k gradients a round grow.

A rival from the literature gives one task each to the k workers of the lowest confidence bounds:
Egger, Bitar, Wachter-Zeh and Gündüz, "Cost-efficient distributed learning via combinatorial
multi-armed bandits", Entropy 27(5):541, 2025 (arXiv 2202.08302), of which the abstract was read.
Their bounds were not: these are the zoo's KL bounds for exponential times. When k grows is ours,
too: it doubles once the error is at most twice the least that a step size and k allow.

Policies hand out k tasks where the rival chooses k workers, on the same rounds. So the error after
each round is the same for all, and they differ in the runtime and the worker time until then.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.pools import exponential
from ata_gym.typing import Floats, Ints
from ata_policies.steps import decide

N = 32
SEEDS = 48
MEANS = np.geomspace(1.0, 16.0, N)
NUMBERS = (1, 2, 4, 8, 16)
"""The k of the schedule that grows; the other one has the last of them from the start."""
RIVAL = "one task each: "
"""The rival's name begins so; the policy follows whose bounds it has."""
POLICIES = (
    *(f"{RIVAL}kl-lcb{grid}" for grid in ("", ":shape=4", ":shape=16")),
    *(f"kl-lcb{grid}" for grid in ("", ":shape=4", ":shape=16")),
    *(f"ata-icml{grid}" for grid in ("", ":width=0.1", ":width=0.01")),
    "default",
    "oracle",
)
"""The policies of the table, with the constants of their sources and with narrower bounds."""
ERRORS = (1.0, 0.1, 0.02)
"""The errors until which runtime and worker time are counted."""

STEP = 0.1
CURVATURES = np.geomspace(0.1, 1.0, 10)
START = 25.0


class Progress(NamedTuple):
    """The rounds of a schedule, up to the least of ``ERRORS``."""

    numbers: Ints
    """(R,) the k of each round."""
    errors: Floats
    """(R,) the expected error after each round."""


def least_error(k: int) -> float:
    """The expected error to which SGD with k gradients in a step tends."""
    return float((STEP / (2 * k * (2 - STEP * CURVATURES))).sum())


def progress(numbers: tuple[int, ...]) -> Progress:
    """The expected error f - f* of SGD on a quadratic, exactly, as k goes through some numbers.

    f(x) = sum_j h_j x_j^2 / 2 with the curvatures h, and each gradient has noise of variance 1 in
    each coordinate. With k gradients in a step of size s,

        E[x_j^2] <- (1 - s h_j)^2 E[x_j^2] + s^2 / k, from 25 on.

    Raises:
        ValueError: If the last number is too small for the least of ``ERRORS``.
    """
    if least_error(numbers[-1]) >= ERRORS[-1]:
        raise ValueError(f"no number of rounds gets to an error of {ERRORS[-1]} with {numbers}")
    squares = np.full(CURVATURES.size, START)
    stage = 0
    played = []
    errors = [float("inf")]
    while errors[-1] > ERRORS[-1]:
        k = numbers[stage]
        squares = (1 - STEP * CURVATURES) ** 2 * squares + STEP**2 / k
        played.append(k)
        errors.append(float(CURVATURES @ squares / 2))
        if errors[-1] <= 2 * least_error(k) and stage + 1 < len(numbers):
            stage += 1
    return Progress(np.array(played), np.array(errors[1:]))


def costs(name: str, numbers: Ints, seeds: int = SEEDS) -> tuple[Floats, Floats]:
    """The runtime and the worker time after each round, shapes (seeds, R).

    What was learned with one k counts for the next; only the plan is made anew.

    Args:
        name: One of ``POLICIES``.
        numbers: The k of each round, shape (R,), which never falls.
        seeds: Rows, each with a seed of its own.
    """
    pool = exponential(MEANS)
    times = np.empty((2, seeds, numbers.size))
    observation: Any = None
    state: Any = None
    for k in np.unique(numbers):
        envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=seeds, pool=pool, budget=int(k))
        policy: Any = ata_policies.make(name.removeprefix(RIVAL), envs)
        first, _ = envs.reset(seed=1000 * int(k))
        if observation is None:
            observation = first
        else:
            observation = with_room(observation, int(k))
            state = state._replace(plan=policy.first_plan(seeds))
        for i in np.flatnonzero(numbers == k):
            action, state = decide(policy, envs, observation, state)
            if name.startswith(RIVAL):
                action = lowest_bounds(policy, state, int(k))
            observation, _, _, _, info = envs.step(action)
            times[:, :, i] = info["round_time"], info["worker_time"]
    runtime, worker_time = times.cumsum(axis=2)
    return runtime, worker_time


def with_room(observation: dict[str, Any], budget: int) -> dict[str, Any]:
    """The feedback of a round in the form of rounds with more results; the others are missing."""
    missing = ((0, 0), (0, budget - observation["worker"].shape[1]))
    return {
        **observation,
        "worker": np.pad(observation["worker"], missing, constant_values=-1),
        "duration": np.pad(observation["duration"], missing),
    }


def lowest_bounds(policy: Any, state: Any, k: int) -> Ints:
    """One task each for the k workers of the lowest bounds, shape (rows, n)."""
    scores = policy.estimate.scores(state.belief, state.round, state.round_keys()).score
    chosen = np.argsort(scores, axis=1, kind="stable")[:, :k]
    action = np.zeros(scores.shape, np.int64)
    np.put_along_axis(action, chosen, 1, axis=1)
    return action


def cells(clock: Floats, schedule: Progress) -> list[str]:
    """A clock, shape (seeds, R), at each of ``ERRORS``, and its worst seed at the last."""
    ends = [int(np.argmax(schedule.errors <= error)) for error in ERRORS]
    means = [Estimate.from_sample(clock[:, end]) for end in ends]
    return [*(show(mean.mean, mean.high) for mean in means), f"{clock[:, -1].max():.0f}"]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.adaptive_k",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of task times ({SEEDS})")
    options = parser.parse_args()
    rows = []
    for numbers in (NUMBERS, NUMBERS[-1:]):
        schedule = progress(numbers)
        title = f"{numbers[-1]}, {schedule.numbers.size} rounds"
        if len(numbers) > 1:
            title = f"grows to {title}"
        for name in POLICIES:
            clocks = costs(name, schedule.numbers, options.seeds)
            rows.append(
                (title, name, *(cell for clock in clocks for cell in cells(clock, schedule)))
            )
    titles = [
        title
        for clock in ("runtime", "worker time")
        for title in (*(f"{clock} to {error:g}" for error in ERRORS), f"{clock}, worst seed")
    ]
    print(markdown([Table("", {"k": LEFT, "policy": LEFT, **right(titles)}, rows)]).strip())


if __name__ == "__main__":
    main()
