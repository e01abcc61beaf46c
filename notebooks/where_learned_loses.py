"""Print where the learned policy is ahead of the default and of restarting-beta, and where it is
behind.

``python notebooks/where_learned_loses.py DATA`` prints a table in Markdown; DATA is the folder of
the recordings.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ata_gym import bench, pools
from ata_gym.changes import Jump, OnOff
from ata_gym.scenarios import Scenario, scenario
from ata_gym.scenarios.recorded import find_scenario

POLICIES = ("learned", "distribution-learner", "restarting-beta")
FIRST = 200  # rounds, the time of which is shown beside that of all
BEHIND = 1.045  # from this ratio on it is bold: 5 % or more behind, rounded


def gamma_workers(slowest: float, n: int) -> pools.Pool:
    """Workers whose times have a CV of 0.5, means from 1 on."""
    return pools.gamma(4.0, np.linspace(1.0, slowest, n) / 4)


def worlds(data: Path) -> Iterator[tuple[str, Scenario, int]]:
    """What is played: in words, the scenario with its rounds, and the number of seeds."""
    many = pools.exponential(np.linspace(1.0, 100.0, 500))
    yield "500 workers, exponential, means 1 to 100, B = 100", Scenario(many, 100, 400), 4
    often = Scenario(gamma_workers(100, 500), 100, 150, (OnOff(6.0, starts=1 / 21, ends=1 / 7),))
    yield (
        "500 workers, gamma, means 1 to 100, B = 100, 6 times slower for 7 rounds, 1 round in 4",
        often,
        4,
    )
    rarely = Scenario(gamma_workers(60, 51), 23, 200, (OnOff(6.0, starts=1 / 50, ends=1 / 10),))
    yield (
        "51 workers, gamma, means 1 to 60, B = 23, 6 times slower for 10 rounds, 1 round in 6",
        rarely,
        8,
    )
    for name, rounds, seeds in (
        ("five-workers", 1_000, 8),
        ("icml2025-cifar100", 2_000, 8),
        ("icml2025-regret", 2_000, 8),
        ("changing-permuted-linear-n51", 600, 8),
        ("changing-spot", 1_000, 8),
        ("changing-crash", 600, 8),
    ):
        yield name, replace(scenario(name), horizon=rounds), seeds
    fail = Scenario(
        gamma_workers(24, 24),
        20,
        600,
        (Jump(at=200, workers=(0, 1, 2), factor=40.0, until=300),),
    )
    yield (
        (
            "24 workers, gamma, means 1 to 24, B = 20, the three fastest 40 times slower from round"
            " 200 to 300"
        ),
        fail,
        8,
    )
    for name in ("alibaba-1", "alibaba-4", "mlperf", "phones-spot"):
        recorded = find_scenario(name, data)
        yield f"{name}, recorded", replace(recorded, horizon=min(500, recorded.horizon or 500)), 4


def main() -> None:
    """Play all of them, and print a row for each."""
    print(
        "| workers | rounds | seeds | over the default: first 200, all | worst seed | over"
        " restarting-beta |",
    )
    print("|---|---|---|---|---|---|")
    for words, world, seeds in worlds(Path(sys.argv[1])):
        played = bench.run(POLICIES, replace(world, name="world"), seeds=seeds, jobs=1)
        records = played.records
        by_policy = {
            name: records.filter(policy=name).pivot("seed", index="round", values="runtime")
            for name in POLICIES
        }
        own, *others = (
            frame.sort("round").drop("round").to_numpy() for frame in by_policy.values()
        )
        rounds = np.sort(by_policy["learned"]["round"].to_numpy())
        early = int(np.searchsorted(rounds, FIRST, side="right")) - 1
        ratios = [own / other for other in others]
        means = [
            [float(np.exp(np.log(ratio[place]).mean())) for place in (early, -1)]
            for ratio in ratios
        ]
        default = ", ".join(
            f"**{mean:.2f}**" if mean >= BEHIND else f"{mean:.2f}" for mean in means[0]
        )
        restarting = ", ".join(f"{mean:.2f}" for mean in means[1])
        print(
            f"| {words} | {rounds[-1]:,} | {seeds} | {default} | {ratios[0][-1].max():.2f} |"
            f" {restarting} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
