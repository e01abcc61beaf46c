"""``python -m docs.latencies``: print what a loop loses by the way in which it times its workers.

Workers pay a latency in each round before their first task. An ``Allocator`` with the default
policy is played over an env's rounds and told their times in three ways. What it needs is compared
with an oracle that knows the distributions of the latencies and of the task times, on the same
rounds.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.pools import Pool, gamma, log_normal
from ata_gym.typing import Floats
from ata_policies import Allocator
from ata_policies.steps import decide

N = 16
BUDGET = 64
ROUNDS = 300
SEEDS = 48
MEDIANS = (5.0, 20.0)
WAYS = {
    "latency apart: `observe(seconds, latency=...)`": "apart",
    "the whole share, divided by its tasks": "share",
    "the tasks alone": "tasks",
}


def drawn_pool(median: float, seed: int) -> Pool:
    """Workers of mean task times 1 to 8, whose latencies have a median over all workers.

    A worker's own median is log-normal over the workers, with a deviation of 1; around it, its
    latencies are log-normal from round to round, with one of 0.5. Task times are gamma with a
    coefficient of variation of 0.5.
    """
    generator = np.random.default_rng(seed)
    means = generator.permutation(np.geomspace(1.0, 8.0, N))
    late = np.log(median) + generator.standard_normal(N)
    return gamma(4.0, means / 4.0).with_latency(log_normal(late, 0.5))


def oracle_runtime(pool: Pool, seed: int, rounds: int = ROUNDS) -> float:
    """The runtime of the policy ``oracle``."""
    env = gym.make("ata_gym/TaskAllocation-v0", pool=pool, budget=BUDGET)
    policy = ata_policies.make("oracle", env, seed=seed)
    observation, _ = env.reset(seed=seed)
    state = None
    for _ in range(rounds):
        action, state = decide(policy, env, observation, state)
        observation, *_, info = env.step(action)
    return float(info["runtime"])


def runtime(pool: Pool, way: str, seed: int, rounds: int = ROUNDS) -> float:
    """The runtime of an allocator that is told the times in one of the ways."""
    env = gym.make("ata_gym/TaskAllocation-v0", pool=pool, budget=BUDGET)
    env.reset(seed=seed)
    allocator = Allocator(pool.n, BUDGET, seed=seed)
    for _ in range(rounds):
        shares = allocator.allocate()
        observation, *_, info = env.step(np.array([shares[i] for i in range(pool.n)]))
        times = {i: observation["duration"][observation["worker"] == i] for i in range(pool.n)}
        latency = dict(enumerate(observation["latency"].tolist()))
        if way == "apart":
            allocator.observe(times, latency=latency)
        elif way == "share":
            allocator.observe({i: _whole(times[i], latency[i]) for i in times})
        else:
            allocator.observe(times)
    return float(info["runtime"])


def _whole(times: Floats, latency: float) -> Floats:
    """The time of a whole share, divided by its tasks, for each of them."""
    if not times.size:
        return times
    return np.full(times.size, (latency + times.sum()) / times.size)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.latencies",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"({ROUNDS})")
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help=f"of workers and their times ({SEEDS})"
    )
    options = parser.parse_args()
    ratios = {}
    for median in MEDIANS:
        for seed in range(options.seeds):
            pool = drawn_pool(median, seed)
            least = oracle_runtime(pool, seed, options.rounds)
            for way in WAYS.values():
                ratio = runtime(pool, way, seed, options.rounds) / least
                ratios.setdefault((median, way), []).append(ratio)
    rows = [
        (
            text,
            *(
                f"{np.mean(ratios[median, way]):.2f} (worst seed {max(ratios[median, way]):.2f})"
                for median in MEDIANS
            ),
        )
        for text, way in WAYS.items()
    ]
    titles = [f"median latency {median:g}" for median in MEDIANS]
    print(markdown([Table("", {"what is timed": LEFT, **right(titles)}, rows)]).strip())


if __name__ == "__main__":
    main()
