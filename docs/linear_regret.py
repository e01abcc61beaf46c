"""``python -m docs.linear_regret``: print where the default stays at a slower worker.

Whether it does depends on how widely times vary.

Two workers with gamma times of means 1 and 1.5, one task a round, 10,000 rounds: the regret is half
of the tasks that the slower one gets. It is linear where a row gives nearly all of its last rounds
to the slower worker.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.pools import gamma
from ata_policies.steps import decide

MEANS = np.array([1.0, 1.5])
ROUNDS = 10_000
ROWS = 256
CASES = [("default", shape) for shape in (4.0, 1.0, 0.5, 0.3, 0.2, 0.1)]
CASES += [(name, 0.1) for name in ("thompson-gamma", "kl-gamma")]


def play(
    name: str,
    shape: float,
    rounds: int = ROUNDS,
    rows: int = ROWS,
) -> tuple[float, float, int]:
    """The mean regret after a tenth of the rounds and after all, and the rows that stay.

    A row stays at the slower worker if it gives it more than nine of ten tasks of the last quarter
    of the rounds.
    """
    pool = gamma(shape, MEANS / shape)
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, pool=pool, budget=1)
    policy = ata_policies.make(name, envs)
    observation = envs.reset(seed=0)[0]
    state = None
    given = np.zeros((rounds, rows), np.int64)  # tasks of the slower worker
    for k in range(rounds):
        action, state = decide(policy, envs, observation, state)
        given[k] = action[:, 1]
        observation, *_ = envs.step(action)
    regret = (MEANS[1] - MEANS[0]) * np.cumsum(given.mean(axis=1))
    late = given[-(rounds // 4) :].mean(axis=0)
    return float(regret[rounds // 10 - 1]), float(regret[-1]), int((late > 0.9).sum())


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.linear_regret",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="(10,000)")
    parser.add_argument(
        "--rows",
        type=int,
        default=ROWS,
        help="rows of each case, with seeds of their own (256)",
    )
    options = parser.parse_args()
    rows = []
    for name, shape in CASES:
        early, whole, stay = play(name, shape, options.rounds, options.rows)
        cells = (f"{early:.0f}", f"{whole:.0f}", f"{whole / np.log(options.rounds) ** 2:.2f}")
        rows.append((name, f"{shape:g}", f"{shape**-0.5:.2f}", *cells, f"{stay} of {options.rows}"))
    tenth = options.rounds // 10
    titles = [
        "shape",
        "coefficient of variation",
        f"regret, {tenth:,} rounds",
        f"{options.rounds:,} rounds",
    ]
    titles += ["over (ln N)^2", "rows that stay at the slower worker"]
    print(markdown([Table("", {"policy": LEFT, **right(titles)}, rows)]).strip())


if __name__ == "__main__":
    main()
