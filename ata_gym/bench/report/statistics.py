"""Statistics of records: means and ratios over seeds, 95 % intervals, comparisons of runs."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from scipy.special import betaincinv, stdtr, stdtrit

from ata_gym.bench.report.quantities import QUANTITIES, in_order
from ata_gym.typing import Floats

CONFIDENCE = 0.95
"""The confidence of all intervals."""
_ENDS = (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2)
# Samples of a bootstrap. They are drawn from seed 0: the same values give the same interval.
_RESAMPLES = 2000
_PROFILE_RATIOS = 100  # ratios at which a profile is known
_LARGEST_CORRELATION = 0.95  # of neighbours among successive values; at 1 they would say nothing
_LEAST_PART = 0.5  # of the variance that the sample variance of successive values has
_LEAST_DEGREES = 3.0  # of freedom; with fewer, one long spell makes an interval that says nothing
BASELINES = ("ofta", "gta", "dynamic-ofta", "dynamic-oracle")
"""The policies that all others are compared with."""


def estimate(values: Floats, successive: bool = False) -> tuple[Floats, Floats]:
    """Return the mean over seeds, and half the width of Student's interval.

    Args:
        values: The values, shape (seeds, ...).
        successive: Whether the values follow each other in time, such as the parts of a log, so
            that neighbours may be alike; they count as ``effective_sample`` says.

    Returns:
        Two arrays of shape (...); half the width is NaN for one seed.

    Example:
        >>> mean, half = estimate(np.array([1.0, 2.0, 3.0]))
        >>> float(mean), float(half.round(4))
        (2.0, 2.4841)
    """
    deviation, size, degrees = effective_sample(values, successive)
    half = stdtrit(degrees, _ENDS[1]) * deviation / size**0.5
    return values.mean(axis=0), np.asarray(half)


def effective_sample(
    values: Floats,
    successive: bool = False,
) -> tuple[Floats, Floats, Floats]:
    """Return how much values vary, and how many independent values they stand for.

    Values that are ``successive`` are taken for an autoregressive process of order 1. Its
    correlation is the correlation of neighbours, plus the bias of this estimate (Kendall,
    Biometrika 1954), and at least 0. Their mean is known as well as the mean of fewer independent
    values. Their variance is, too, as Bartlett (Journal of the Royal Statistical Society 1946) has
    it, and sets the degrees of freedom. ``python -m tests.benchmarks.coverage`` measures how often
    the interval of ``estimate`` then holds the mean.

    Args:
        values: The values, shape (seeds, ...).
        successive: Whether the values follow each other in time.

    Returns:
        The standard deviation, the number of independent values with as good a mean, and the
        degrees of freedom of the variance, (...) each. The deviation is NaN for one value.

    Example:
        >>> rising = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        >>> [round(float(part), 2) for part in effective_sample(rising, successive=True)]
        [3.46, 1.14, 3.0]
    """
    count = len(values)
    shape = values.shape[1:]
    if count == 1:
        return np.full(shape, np.nan), np.ones(shape), np.ones(shape)
    deviation = np.asarray(values.std(axis=0, ddof=1))
    if not successive:
        return deviation, np.full(shape, float(count)), np.full(shape, count - 1.0)
    correlation = _correlation(values)
    factor = _inflation(correlation, count)
    # alike values differ from their own mean by less than from the true one
    part = np.maximum(1.0 - (factor - 1.0) / (count - 1), _LEAST_PART)
    squared = correlation**2
    least = min(_LEAST_DEGREES, count - 1.0)
    degrees = np.maximum(count * (1.0 - squared) / (1.0 + squared) - 1.0, least)
    return deviation / np.sqrt(part), count / factor, degrees


def _correlation(values: Floats) -> Floats:
    """The correlation of neighbours among successive values, at least 0."""
    count = len(values)
    deviations = values - values.mean(axis=0)
    squares = (deviations**2).sum(axis=0)
    products = (deviations[1:] * deviations[:-1]).sum(axis=0)
    # values that are all the same have no correlation
    correlation = np.divide(products, squares, out=np.zeros_like(squares), where=squares > 0)
    bias = (1.0 + 4.0 * np.maximum(correlation, 0.0)) / (count - 1)
    return np.asarray(np.clip(correlation + bias, 0.0, _LARGEST_CORRELATION))


def _inflation(correlation: Floats, count: int) -> Floats:
    """The variance of a mean of successive values, relative to independent values."""
    lags = np.arange(1, count).reshape(-1, *(1,) * correlation.ndim)
    return np.asarray(1.0 + 2.0 * ((1.0 - lags / count) * correlation**lags).sum(axis=0))


class Estimate(NamedTuple):
    """A mean over seeds, and the ends of its interval.

    They are NaN where they are not known: the ends for a single seed, all three where a value is
    not finite.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def from_sample(cls, sample: Floats, successive: bool = False) -> Self:
        """Estimate the mean of a sample, shape (seeds,); ``successive`` as for ``estimate``."""
        if not np.isfinite(sample).all():
            return cls(np.nan, np.nan, np.nan)
        mean, half = estimate(sample, successive)
        return cls(float(mean), float(mean - half), float(mean + half))

    @classmethod
    def from_ratio(cls, numerators: Floats, denominators: Floats) -> "Estimate":
        """Estimate the geometric mean of ratios of values on the same seeds, (seeds,) each.

        The interval is Student's, of the logarithms.

        Example:
            >>> Estimate.from_ratio(np.array([1.0, 4.0]), np.array([2.0, 2.0])).mean
            1.0
        """
        return cls.from_ratios([numerators], [denominators])

    @classmethod
    def from_ratios(
        cls,
        numerators: Sequence[Floats],
        denominators: Sequence[Floats],
        successive: bool = False,
    ) -> "Estimate":
        """Estimate the geometric mean of ratios over the seeds of several scenarios.

        Each scenario has values on the same seeds, shape (seeds,), of both; ``successive`` is as
        for ``estimate``.
        """
        # Recorded times may be 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithms = [
                np.log(a) - np.log(b) for a, b in zip(numerators, denominators, strict=True)
            ]
            return cls.from_logarithms(np.mean(logarithms, axis=0), successive)

    @classmethod
    def from_logarithms(cls, sample: Floats, successive: bool = False) -> Self:
        """Estimate the geometric mean of ratios from their logarithms, shape (seeds,)."""
        # the interval of a few successive values may reach further than a number can
        with np.errstate(over="ignore"):
            return cls(*(float(np.exp(end)) for end in cls.from_sample(sample, successive)))


def estimates(rows: Iterable[tuple[Any, ...]], names: Sequence[str]) -> pl.DataFrame:
    """Return a frame of rows that end with an ``Estimate``; NaN becomes null.

    Args:
        rows: Cells, followed by an estimate.
        names: The columns of the cells; the columns mean, low and high follow.

    Example:
        >>> estimates([("ata", "runtime", Estimate(2.0, 1.5, 2.5))], ["policy", "quantity"]).row(0)
        ('ata', 'runtime', 2.0, 1.5, 2.5)
    """
    flat = [(*cells, *estimated) for *cells, estimated in rows]
    return pl.DataFrame(flat, [*names, "mean", "low", "high"], orient="row").fill_nan(None)


def quantile(seeds: int) -> float:
    """Return Student's quantile for an interval over so many seeds; NaN for one seed."""
    # Importing scipy.stats for it would take a second.
    return float(stdtrit(seeds - 1, _ENDS[1]))


def values(records: pl.DataFrame, policy: str, quantity: str) -> Floats:
    """Return one quantity of one policy, shape (seeds, recorded rounds); null becomes NaN."""
    rows = records.filter(pl.col("policy") == policy)
    return rows[quantity].cast(pl.Float64).to_numpy().reshape(rows["seed"].n_unique(), -1)


def summarise(records: pl.DataFrame, price: float = 0.0) -> pl.DataFrame:
    """Summarise the last round of records, in columns policy, quantity, mean, low and high.

    Quantities such as ``runtime/ofta`` are ratios of the two policies' values on the same seeds.
    They are there for each policy of ``BASELINES`` that was played. Where worker time has a price,
    there is ``cost``, too.

    Args:
        records: Records with the columns of ``run.SCHEMA``.
        price: What a unit of worker time costs, in units of runtime.
    """
    compared = ends(records, price)
    last = records.filter(pl.col("round") == pl.col("round").max())
    rows: list[tuple[str, str, Estimate]] = []
    for policy in records["policy"].unique(maintain_order=True):
        rows += [
            (policy, name, Estimate.from_sample(values_by_policy[policy]))
            for name, values_by_policy in compared.items()
        ]
        rows += [
            (policy, name, Estimate.from_sample(values(last, policy, name)[:, 0]))
            for name in in_order(last.columns)
            if not QUANTITIES[name].compared
        ]
        for baseline in BASELINES:
            for name, values_by_policy in compared.items():
                if baseline in values_by_policy:
                    ratio = Estimate.from_ratio(
                        values_by_policy[policy], values_by_policy[baseline]
                    )
                    rows.append((policy, f"{name}/{baseline}", ratio))
    return estimates(rows, ["policy", "quantity"])


def ends(records: pl.DataFrame, price: float = 0.0) -> dict[str, dict[str, Floats]]:
    """Return the values of the seeds in the last round of records, (seeds,) each.

    They are by quantity, and then by policy. The quantities are runtime and total_worker_time and,
    with a price, cost.

    Args:
        records: Records with the columns of ``run.SCHEMA``.
        price: What a unit of worker time costs, in units of runtime.
    """
    last = records.filter(pl.col("round") == pl.col("round").max())
    last = last.with_columns(cost=pl.col("runtime") + price * pl.col("total_worker_time"))
    names = ["runtime", "total_worker_time"]
    if price > 0:
        names.append("cost")
    policies = records["policy"].unique(maintain_order=True)
    return {
        name: {policy: values(last, policy, name)[:, 0] for policy in policies} for name in names
    }


def paired_wins(
    costs: Sequence[Floats],
    other_costs: Sequence[Floats],
    successive: bool = False,
) -> Estimate:
    """Estimate the share of seeds on which a policy costs less than another one; ties count half.

    The interval is the one of Clopper and Pearson (Biometrika 1934) over the seeds, each with its
    mean over scenarios: exact for one scenario, and wider than needed for several. Successive
    values count as so many seeds as they are worth.

    Args:
        costs: The costs of the policy in each scenario, shape (seeds,).
        other_costs: The costs of the other policy, in the same form.
        successive: Whether the values follow each other in time, as for ``estimate``.

    Example:
        >>> wins = paired_wins([np.array([1.0, 2.0, 3.0, 4.0])], [np.array([2.0, 3.0, 4.0, 1.0])])
        >>> [round(end, 3) for end in wins]
        [0.75, 0.194, 0.994]
    """
    wins = np.mean(
        [(a < b) + 0.5 * (a == b) for a, b in zip(costs, other_costs, strict=True)], axis=0
    )
    if len(wins) == 1:
        return Estimate(float(wins[0]), np.nan, np.nan)
    if successive:
        seeds = len(wins) / float(_inflation(_correlation(wins), len(wins)))
    else:
        seeds = float(len(wins))
    won = float(wins.mean()) * seeds
    # Quantiles of beta distributions, which do not exist where no or every seed is won.
    if won > 0.0:
        low = float(betaincinv(won, seeds - won + 1.0, _ENDS[0]))
    else:
        low = 0.0
    if won < seeds:
        high = float(betaincinv(won + 1.0, seeds - won, _ENDS[1]))
    else:
        high = 1.0
    return Estimate(won / seeds, low, high)


Pairs = frozenset[frozenset[str]]
"""Pairs of names; the order of the two does not matter."""


def different_pairs(samples: Mapping[str, Floats], successive: bool = False) -> Pairs:
    """Return the pairs of policies that differ clearly; the other pairs are tied.

    All sentences that say "tied" follow this rule. Two policies differ if the paired t test of
    their differences says so, with the correction of Holm (Scandinavian Journal of Statistics 1979)
    for all pairs. Where all policies are equal, the chance that any two differ is at most 5 %,
    however many there are. This holds for the pair of the best and the second best, too, which the
    data have chosen. With one seed, two policies differ if their numbers do.

    Args:
        samples: For each policy a number for each seed, shape (seeds,), such as the logarithm of
            its cost.

    Example:
        >>> first = np.array([1.0, 2.0, 1.5, 1.8])
        >>> samples = {"a": first, "b": first + [0.1, -0.1, 0.0, 0.1], "c": first + 1.0}
        >>> sorted(map(sorted, different_pairs(samples)))
        [['a', 'c'], ['b', 'c']]
    """
    pairs = list(combinations(samples, 2))
    if not pairs:
        return frozenset()
    values = np.array(list(samples.values()))
    # In the order of ``pairs``.
    first, second = np.triu_indices(len(values), 1)
    # Logarithms of times of 0 are infinite, and runs that are the same have an error of 0.
    with np.errstate(invalid="ignore", divide="ignore"):
        differences = values[first] - values[second]
        mean = differences.mean(axis=1)
        seeds = values.shape[1]
        if seeds == 1:
            chance = np.where(mean == 0.0, 1.0, 0.0)
        else:
            deviation, size, degrees = effective_sample(differences.T, successive)
            error = deviation / size**0.5
            chance = np.where(mean == 0.0, 1.0, 2.0 * stdtr(degrees, -np.abs(mean / error)))
    # Nothing follows from numbers that are not finite.
    chance = np.where(np.isnan(chance), 1.0, chance)
    # Holm: the k-th smallest of m chances, times m + 1 - k, until one is above 5 %.
    order = np.argsort(chance, kind="stable")
    passed = chance[order] * np.arange(len(order), 0, -1) <= 1.0 - CONFIDENCE
    different = order[np.logical_and.accumulate(passed)]
    return frozenset(frozenset(pairs[k]) for k in different.tolist())


def performance_profile(costs: Mapping[str, Sequence[Floats]]) -> pl.DataFrame:
    """Return the share of runs in which a policy costs at most a ratio of the best policy's cost.

    A scenario with a seed is a problem (Dolan and Moré, Benchmarking optimization software with
    performance profiles, 2002), and the best policy is the one of the same problem. The intervals
    are pointwise, of a bootstrap of the seeds of each scenario (Agarwal et al., 2021).

    Args:
        costs: For each policy and each scenario, the costs of the seeds, shape (seeds,).

    Returns:
        Columns policy, ratio, share, low and high; low and high are null for one seed.

    Example:
        >>> costs = {"a": [np.array([1.0, 2.0])], "b": [np.array([2.0, 2.0])]}
        >>> performance_profile(costs).filter(pl.col("ratio") == 1.0)["share"].to_list()
        [1.0, 0.5]
    """
    # By scenario, the least cost that a policy has on each seed.
    least_costs = [np.min(by_policy, axis=0) for by_policy in zip(*costs.values(), strict=True)]
    relative: dict[str, list[Floats]] = {}
    largest_ratio = 1.0
    for policy, scenario_costs in costs.items():
        relative[policy] = []
        for policy_costs, least in zip(scenario_costs, least_costs, strict=True):
            # Recorded times may be 0.
            with np.errstate(divide="ignore", invalid="ignore"):
                seed_ratios = policy_costs / least
            relative[policy].append(seed_ratios)
            # 0 / 0 is a ratio of 1.
            finite_ratios = np.where(np.isnan(seed_ratios), 1.0, seed_ratios)
            largest_ratio = max(largest_ratio, float(finite_ratios.max()))
    # a policy that costs something where the best costs nothing has no finite ratio
    if not 1.0 < largest_ratio < np.inf:
        largest_ratio = 2.0
    ratios = np.geomspace(1.0, largest_ratio, _PROFILE_RATIOS)
    frames = []
    for policy, scenario_ratios in relative.items():
        # The same draws for each policy: their seeds are paired.
        rng = np.random.default_rng(0)
        # The tolerance keeps a ratio that rounding has moved above its equal; NaN is a ratio of 1.
        within = [
            (seed_ratios[:, None] <= ratios * (1 + 1e-12)) | np.isnan(seed_ratios)[:, None]
            for seed_ratios in scenario_ratios
        ]
        share = np.mean([reached.mean(axis=0) for reached in within], axis=0)
        samples = np.mean([_drawn(rng, len(reached)) @ reached for reached in within], axis=0)
        if len(scenario_ratios[0]) > 1:
            low, high = np.quantile(samples, _ENDS, axis=0)
        else:
            low, high = np.full((2, _PROFILE_RATIOS), np.nan)
        frame = pl.DataFrame({"ratio": ratios, "share": share, "low": low, "high": high})
        frames.append(frame.select(pl.lit(policy).alias("policy"), pl.all()))
    return pl.concat(frames).fill_nan(None)


def _drawn(rng: np.random.Generator, seeds: int) -> Floats:
    """Draw how often each seed is in each sample, as a share, shape (samples, seeds)."""
    return rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=_RESAMPLES) / seeds
