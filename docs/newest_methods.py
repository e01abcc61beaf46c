"""``python -m docs.newest_methods``: print where methods end as the speeds of two workers differ.

The workers have quadratics whose minima differ (``HeterogeneousQuadratic(4, 0.01, 0.3)``) and
exponential times of means 1 and r. Each method has 1,000 gradients and the step size 0.05; of its
loss f - f* the last half is averaged. Shown are the mean over the seeds, its 95 % interval
(Student's t), and in brackets the worst seed.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.pools import exponential
from ata_gym.training import MethodRun
from ata_gym.training.problems.quadratic import HeterogeneousQuadratic
from ata_gym.typing import Floats

RATIOS = (1.0, 3.0, 9.0)
GRADIENTS = 1_000
SEEDS = 5
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "asgd": ("asgd", {}),
    "delay-adaptive-asgd": ("delay-adaptive-asgd", {}),
    "malenia": ("malenia", {}),
    "ringleader": ("ringleader", {}),
    "rescaled-asgd, times known": ("rescaled-asgd", {}),
    "rescaled-asgd, discount=1": ("rescaled-asgd", {"discount": 1.0}),
}


def end(case: str, ratio: float, seed: int, gradients: int = GRADIENTS) -> float:
    """The mean loss f - f* of the last half of the gradients."""
    method, arguments = CASES[case]
    problem = HeterogeneousQuadratic(4, 0.01, 0.3)
    pool = exponential([1.0, ratio])
    run = MethodRun(method, pool, problem, budget=2, seed=seed, lr=0.05, **arguments)
    losses = []
    for record in run:
        if record.used > gradients / 2:
            losses.append(record.loss)
        if record.used >= gradients:
            break
    return float(np.mean(losses))


def _cell(values: Floats) -> str:
    estimate = Estimate.from_sample(values)
    return f"{show(estimate.mean, estimate.high)} ({values.max():.2g})"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.newest_methods",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--gradients", type=int, default=GRADIENTS, help="(1,000)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="at least 2 (5)")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        ends = (
            np.array([end(case, ratio, seed, options.gradients) for seed in range(options.seeds)])
            for ratio in RATIOS
        )
        rows.append((case, *(_cell(values) for values in ends)))
    titles = right([f"r = {ratio:g}" for ratio in RATIOS])
    print(markdown([Table("", {"f - f*": LEFT, **titles}, rows)]).strip())


if __name__ == "__main__":
    main()
