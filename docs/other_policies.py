"""``python -m docs.other_policies [FILE]``: print what logs say of other policies, and the truth.

Four workers do three tasks in a round. The last one is fast in half of the rounds, by chance, and
slow in the others. One log is of a scheduler that sees this beforehand, and mostly gives the worker
a task when it is fast; another one is of Thompson sampling, which sees nothing. What ``what-if``
says of other policies, by replay and doubly robustly, is printed beside what they cost in runs of
their own. FILE, if it is named, gets the first log of the scheduler.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ata_gym import bench
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.cluster import RoundRecord, TraceRecorder
from ata_gym.typing import Floats, Worker
from ata_policies import Allocator
from ata_policies.propensities import Propensities

NAMES = ("a", "b", "c", "d")
MEANS = (1.0, 1.2, 1.4)
"""The mean task times of the first three workers."""
FAST = 0.5
SLOW = 4.0
"""Those of the last one."""
BUDGET = 3
ROUNDS = 600
RUNS = 60
"""The runs by which it is known what a policy costs."""
SCHEDULER = "scheduler"

OTHERS = ("uta", "restarting-beta", "certainty-equivalence")
COSTS = ("runtime", "worker time")


def scheduled(rng: np.random.Generator, fast: bool) -> tuple[dict[Worker, int], Propensities]:
    """The scheduler's tasks: d has one with probability 0.8 where it is fast, and 0.2 elsewhere."""
    chance = 0.8 if fast else 0.2
    tasks: dict[Worker, int] = dict.fromkeys(NAMES, 1)
    if rng.random() < chance:
        # one of the others, by chance, has none
        tasks[NAMES[rng.integers(3)]] = 0
        allocation = chance / 3
    else:
        tasks["d"] = 0
        allocation = 1 - chance
    workers: dict[Worker, float] = dict.fromkeys(NAMES, 1 - chance / 3)
    workers["d"] = chance
    return tasks, Propensities(workers, allocation)


def play(policy: str, seed: int, path: Path | None = None) -> Floats:
    """Return the mean runtime and worker time of a round, (2,), and leave a log in a file."""
    rng = np.random.default_rng(seed)
    allocator = None if policy == SCHEDULER else Allocator(NAMES, BUDGET, policy, seed=seed)
    records = []
    for number in range(1, ROUNDS + 1):
        fast = bool(rng.random() < 0.5)
        if allocator is None:
            tasks, propensities = scheduled(rng, fast)
        else:
            tasks = allocator.allocate()
            propensities = allocator.propensities() if path else None
        means: dict[Worker, float] = dict(zip(NAMES, (*MEANS, FAST if fast else SLOW), strict=True))
        seconds = {
            name: tuple(rng.gamma(8.0, means[name] / 8.0, count).tolist())
            for name, count in tasks.items()
            if count > 0
        }
        if allocator is not None:
            allocator.observe(seconds)
        longest = max(map(sum, seconds.values()))
        records.append(RoundRecord(number, tasks, seconds, longest, propensities=propensities))
    if path is not None:
        with TraceRecorder(path, propensities=True) as recorder:
            for record in records:
                recorder.add(record)
    return np.array(
        [
            np.mean([record.round_time for record in records]),
            np.mean([record.worker_time for record in records]),
        ]
    )


def answers(path: Path) -> dict[tuple[str, str], tuple[float, float, float]]:
    """What ``what-if`` says of each policy and cost, as a part of the logged cost.

    By replay, doubly robustly, and half the width of the interval of this; NaN where it is refused.
    """
    results = bench.what_if(path, policies=",".join(OTHERS), without="race,dispatch")
    data = json.loads(str(results.content.files["what-if.json"]))
    said = {}
    for way in data["alternatives"]:
        if way["name"] not in OTHERS:
            continue
        replayed = (1 - way["saved"], way["worker_time"] / data["worker_time"])
        for cost, column, value in zip(COSTS, ("round_time", "worker_time"), replayed, strict=True):
            estimated = way["doubly_robust"].get(column, {"saved": np.nan, "half": np.nan})
            said[way["name"], cost] = value, 1 - estimated["saved"], estimated["half"]
    return said


def rows_of(logged_by: str, logs: int, path: Path) -> list[tuple[str, ...]]:
    """The rows of the table of the logs of a policy; the first of them stays in the file."""
    truth = {
        policy: np.mean([play(policy, 10_000 + seed) for seed in range(RUNS)], axis=0)
        for policy in (*OTHERS, logged_by)
    }
    said = defaultdict(list)
    # the log of seed 0 comes last
    for seed in reversed(range(logs)):
        path.unlink(missing_ok=True)
        play(logged_by, seed, path)
        for key, values in answers(path).items():
            said[key].append(values)
    rows = []
    for policy in OTHERS:
        ratios = truth[policy] / truth[logged_by]
        for cost, true in zip(COSTS, ratios.tolist(), strict=True):
            replayed, estimated, half = np.array(said[policy, cost]).T
            given = ~np.isnan(estimated)
            held = np.abs(estimated - true)[given] <= half[given]
            mean = f"{estimated[given].mean():.3f}" if given.any() else "-"
            width = f"{np.median(half[given]):.3f}" if given.any() else "-"
            numbers = (f"{true:.3f}", f"{replayed.mean():.3f}", mean, width)
            held_text = f"{held.sum()} of {given.sum()}"
            rows.append((logged_by, f"{policy}, {cost}", *numbers, held_text, str(logs)))
    return rows


def main() -> None:
    """Write the log, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.other_policies",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="for the first log of the scheduler"
    )
    parser.add_argument("--logs", type=int, default=20, help="of each policy (20)")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder, "times.csv")
        rows = rows_of(SCHEDULER, options.logs, options.file or path)
        rows += rows_of("thompson", options.logs, path)
    titles = ("true", "replay", "DR", "± DR", "intervals that hold it", "logs")
    columns = {"logged by": LEFT, "policy, cost": LEFT, **right(titles)}
    print(markdown([Table("", columns, rows)]).strip())


if __name__ == "__main__":
    main()
