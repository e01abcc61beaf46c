"""How costs grow with workers, rows, budget and rounds: python -m tests.benchmarks.growth.

Milliseconds of processor time, each at its best of some times, with the exponent of a power law
through the upper half of each curve; the memory that rows take; and what bounds a round. The
picture beside the page is drawn again.
"""

import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.bench.decision_cost import exponential_workers
from ata_gym.bench.report.style import figure, lines
from ata_gym.scenarios import scenario
from ata_gym.simulation.keys import stream_keys, uniforms

PICTURE = Path(__file__).with_name("growth.png")
ENV = "ata_gym/TaskAllocation-v0"
SIZES = {
    "workers": {"ata": 10 ** np.arange(1, 7), "distribution-learner": 10 ** np.arange(1, 6)},
    "rows": {"ata": 4 ** np.arange(7), "distribution-learner": 4 ** np.arange(5)},
    "budget": {"ata": 10 ** np.arange(1, 6), "distribution-learner": 10 ** np.arange(1, 5)},
}
"""By what is varied: n at B = 23, the rows of n = 51 and B = 23, B at n = 1,000."""
TEN_POLICIES = (
    "ata",
    "ata-empirical",
    "distribution-learner",
    "kl-lcb",
    "lb-bsp-ema",
    "median-of-means",
    "restarting-beta",
    "thompson",
    "truncated-mean",
    "uta",
)


def decision_times(name: str, n: int, rows: int, budget: int, rounds: int) -> Any:
    """Milliseconds of each decision of the first rounds, without the first two, which compile."""
    envs = gym.make_vec(ENV, num_envs=rows, scenario=exponential_workers(n, budget))
    policy = ata_policies.make(name, envs)
    observation = envs.reset(seed=0)[0]
    state = None
    taken = []
    for _ in range(rounds):
        start = process_time()
        action, state = policy.predict(observation, state)
        taken.append(1e3 * (process_time() - start))
        observation = envs.step(action)[0]
    return np.array(taken[2:])


def setting(what: str, size: int) -> dict[str, int]:
    """The size of each thing where one of them is varied."""
    usual = {"n": 1000 if what == "budget" else 51, "rows": 1, "budget": 23}
    return usual | {{"workers": "n", "rows": "rows", "budget": "budget"}[what]: size}


def exponent(sizes: Any, costs: Any) -> float:
    """The exponent of a power law through the upper half of a curve."""
    half = len(sizes) // 2
    slope, _ = np.polyfit(np.log(sizes[half:]), np.log(costs[half:]), 1)
    return float(slope)


def growth(rounds: int = 22, repeats: int = 2) -> Iterator[tuple[str, str, Any, Any]]:
    """For each thing that is varied and each policy, the sizes and the mean cost of a decision."""
    for what, by_policy in SIZES.items():
        for name, sizes in by_policy.items():
            costs = [
                min(
                    decision_times(name, **setting(what, int(size)), rounds=rounds).mean()
                    for _ in range(repeats)
                )
                for size in sizes
            ]
            yield what, name, sizes, np.array(costs)
    for name in SIZES["workers"]:
        taken = decision_times(name, 51, 1, 23, 2002)
        ends = 2 ** np.arange(4, 11)
        yield "rounds", name, ends, np.array([taken[end // 2 : end].mean() for end in ends])


def peak_bytes(name: str, rows: int, n: int = 10_000, rounds: int = 4) -> int:
    """The most bytes that the first rounds of envs and a policy held at once."""
    tracemalloc.start()
    decision_times(name, n, rows, 23, rounds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def limits(rows: int = 256, rounds: int = 40) -> tuple[float, float]:
    """The shares of an env's and ATA's round that its random numbers and its bytes alone take."""
    world = scenario("icml2025-cifar100")
    envs = gym.make_vec(ENV, num_envs=rows, scenario=world)
    policy = ata_policies.make("ata", envs)
    keys = stream_keys(0, rows)
    # the counts and totals and the feedback, read and written, the actions and the allocations
    numbers = np.zeros((rows, 4 * world.pool.n + 4 * world.budget))
    whole, draws, copies = [], [], []
    observation, state = envs.reset(seed=0)[0], None
    for _ in range(rounds):
        start = process_time()
        action, state = policy.predict(observation, state)
        observation = envs.step(action)[0]
        whole.append(process_time() - start)
        start = process_time()
        uniforms(keys, world.budget)
        draws.append(process_time() - start)
        start = process_time()
        numbers.copy()
        copies.append(process_time() - start)
    return min(draws) / min(whole), min(copies) / min(whole)


def draw(curves: list[tuple[str, str, Any, Any]]) -> None:
    """Draw the curves side by side, on logarithmic axes."""
    kinds = [*dict.fromkeys(what for what, *_ in curves)]
    names = [*dict.fromkeys(name for _, name, *_ in curves)]
    looks = lines(names)
    with figure(11.0, 2.9) as picture:
        panels = picture.subplots(1, len(kinds), sharey=True)
        for panel, kind in zip(panels, kinds, strict=True):
            for what, name, sizes, costs in curves:
                if what == kind:
                    panel.loglog(sizes, costs, label=name, **looks[name])
            panel.set_xlabel(kind)
        panels[0].set_ylabel("milliseconds of a decision")
        panels[0].legend(loc="upper left")
        picture.savefig(PICTURE)


def main() -> None:
    """Print the tables, and draw the picture."""
    curves = []
    for what, name, sizes, costs in growth():
        curves.append((what, name, sizes, costs))
        milliseconds = " ".join(f"{cost:.3g}" for cost in costs)
        slope = exponent(sizes, costs)
        print(f"{what} {sizes.tolist()}, {name}: {milliseconds} ms; exponent {slope:.2f}")
    for name in TEN_POLICIES:
        peak_bytes(name, 1)  # compiles
        four, eight, sixteen = (peak_bytes(name, rows) / 1e6 for rows in (4, 8, 16))
        print(
            f"{name}: envs and policy of 4, 8, 16 rows of 10,000 workers hold {four:.1f},"
            f" {eight:.1f}, {sixteen:.1f} MB; exponent"
            f" {math.log2((sixteen - eight) / (eight - four)):.2f};"
            f" {(sixteen - eight) / 8 * 1.024:.2f} GB for 1,024 rows",
        )
    draws, copies = limits()
    print(f"of a round of env + ATA, 256 rows: random numbers {draws:.0%}, a copy {copies:.0%}")
    draw(curves)


if __name__ == "__main__":
    main()
