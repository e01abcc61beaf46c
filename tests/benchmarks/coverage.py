"""How often an interval of successive values holds the mean: python -m tests.benchmarks.coverage.

The savings of the steps of a log are drawn from an autoregressive process of order 1, averaged
over parts as ``what-if`` does, and the interval of 95 % is taken over these parts.
"""

from typing import Any

import numpy as np

from ata_gym.bench.report.statistics import estimate
from ata_gym.bench.studies.what_if.savings import log_parts
from ata_gym.typing import Floats

LENGTHS = (10, 14, 30, 100, 400)
CORRELATIONS = (0.0, 0.5, 0.8)


def successive_values(rng: np.random.Generator, steps: int, correlation: float, logs: int) -> Any:
    """Draw logs of a stationary process of mean 0, shape (steps, logs)."""
    values = rng.standard_normal((steps, logs))
    for step in range(1, steps):
        values[step] *= (1.0 - correlation**2) ** 0.5
        values[step] += correlation * values[step - 1]
    return values


def coverage(values: Floats, successive: bool = True) -> tuple[float, float]:
    """Return in which part of logs the interval holds 0, and half its median width."""
    by_part = np.array([values[part].mean(axis=0) for part in log_parts(len(values))])
    mean, half = estimate(by_part, successive)
    return float((np.abs(mean) <= half).mean()), float(np.median(half))


def all_above(values: Floats) -> float:
    """Return in which part of logs the mean of each part is above 0."""
    by_part = np.array([values[part].mean(axis=0) for part in log_parts(len(values))])
    return float((by_part > 0).all(axis=0).mean())


def main() -> None:
    """Print a table, in percent: coverage, without and with the correlation, half the width, and
    logs whose parts are all above the mean.
    """
    print("steps  correlation  as if independent  as successive  half the width  all above")
    for steps in LENGTHS:
        for correlation in CORRELATIONS:
            values = successive_values(np.random.default_rng(0), steps, correlation, 20_000)
            plain, _ = coverage(values, successive=False)
            held, half = coverage(values)
            print(
                f"{steps:5}  {correlation:11.1f}  {100 * plain:17.1f}  {100 * held:13.1f}"
                f"  {half:14.2f}  {100 * all_above(values):9.1f}"
            )


if __name__ == "__main__":
    main()
