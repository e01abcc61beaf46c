"""``python -m docs.ties``: print how often equal policies are called different, by simulation.

With ``--intervals`` it prints how often the interval of a ratio holds the true one, where "less"
and "more" are by the geometric mean of the ratios, and where they are read as the ratio of the
means.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np

from ata_gym.bench.report.headline import best_of
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.typing import Floats

POLICIES = (2, 5, 20)
SEEDS = (8, 48)
_CASES = 4_000
# of Pareto times, and how many of them a run is the sum of
_SHAPE = 1.8
_TIMES = 20

Rng = np.random.Generator


def _pareto(rng: Rng, shape: tuple[int, ...]) -> Floats:
    return np.log(((1.0 - rng.random((*shape, _TIMES))) ** (-1.0 / _SHAPE)).sum(axis=-1))


DRAWN: Mapping[str, Callable[[Rng, tuple[int, ...]], Floats]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "heavy tails (Student, 2 degrees of freedom)": lambda rng, shape: rng.standard_t(2, size=shape),
    f"runs of {_TIMES} Pareto times of shape {_SHAPE}": _pareto,
    "normal, the last with 100 times the deviation of the first": lambda rng, shape: (
        rng.normal(size=shape) * np.geomspace(0.1, 10.0, shape[0])[:, None]
    ),
}
"""What logarithms of costs have beside what a seed has for all policies, (policies, seeds)."""


def called_different(
    kind: str,
    policies: int,
    seeds: int,
    cases: int = _CASES,
) -> tuple[float, float]:
    """In which share of the cases the best of equal policies is called different from another one.

    First by its own paired t test with each other one at 5 %, then by the rule of
    ``different_pairs``.
    """
    rng = np.random.default_rng(0)
    alone = 0
    corrected = 0
    for _ in range(cases):
        logarithms = rng.normal(size=seeds) + 0.1 * DRAWN[kind](rng, (policies, seeds))
        of = dict(zip(map(str, range(policies)), np.exp(logarithms), strict=True))
        best, tied = best_of({"cost": of}, [*of])
        ratios = (Estimate.from_ratio(of[name], of[best]) for name in of if name != best)
        alone += not all(ratio.low <= 1.0 for ratio in ratios)
        corrected += len(tied) < policies - 1
    return alone / cases, corrected / cases


def covered(seeds: int, cases: int = 10 * _CASES) -> tuple[float, float]:
    """In which share of the cases an interval holds the true ratio of either kind.

    The first is the ratio of the geometric means, the second the ratio of the means.
    Runs are sums of Pareto times, first beside runs of the same kind, so that the geometric mean is
    1; then beside runs that all take half of their mean, so that the ratio of the means is 2.
    """
    rng = np.random.default_rng(1)
    same = 0
    means = 0
    even = np.full(seeds, _TIMES * _SHAPE / (_SHAPE - 1.0) / 2.0)
    for _ in range(cases):
        mine, theirs = np.exp(_pareto(rng, (2, seeds)))
        ratio = Estimate.from_ratio(mine, theirs)
        same += ratio.low <= 1.0 <= ratio.high
        ratio = Estimate.from_ratio(mine, even)
        means += ratio.low <= 2.0 <= ratio.high
    return same / cases, means / cases


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m docs.ties", description=__doc__)
    parser.add_argument(
        "--intervals",
        action="store_true",
        help="print how often intervals hold the true ratio",
    )
    if parser.parse_args().intervals:
        rows = [(f"{seeds}", *(f"{share:.3f}" for share in covered(seeds))) for seeds in SEEDS]
        titles = right(("seeds", "geometric mean of the ratios", "ratio of the means"))
        print(markdown([Table("", titles, rows)]).strip())
        return
    rows = []
    for kind in DRAWN:
        for seeds in SEEDS:
            found = (called_different(kind, policies, seeds) for policies in POLICIES)
            rows.append(
                (
                    kind,
                    str(seeds),
                    *(f"{alone:.3f}, {corrected:.3f}" for alone, corrected in found),
                ),
            )
    titles = right(("seeds", *(f"{policies} policies" for policies in POLICIES)))
    print(markdown([Table("", {"logarithms of the ratios": LEFT, **titles}, rows)]).strip())


if __name__ == "__main__":
    main()
