"""Statistics of records: means and ratios over seeds with 95 % confidence intervals, and comparisons of runs."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from scipy.special import betaincinv, stdtr, stdtrit

from ata_gym.typing import Floats

CONFIDENCE = 0.95
_ENDS = (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2)
_RESAMPLES = 2000  # samples of a bootstrap, drawn from seed 0, so that the same values give the same interval
_RATIOS = 100  # ratios at which a profile is known
_ALONE = ("regret", "cost_regret", "support")  # quantities that are not compared by ratios
BASELINES = ("ofta", "gta", "dynamic-ofta", "dynamic-oracle")  # policies that the others are compared with


def estimate(values: Floats) -> tuple[Floats, Floats]:
    """The mean of ``values``, (seeds, ...), over the seeds, and half the width of Student's interval, NaN for one seed.

    >>> mean, half = estimate(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), float(half.round(4))
    (2.0, 2.4841)
    """
    mean = values.mean(axis=0)
    if len(values) == 1:
        return mean, np.full_like(mean, np.nan)
    return mean, np.asarray(quantile(len(values)) * values.std(axis=0, ddof=1) / len(values) ** 0.5)


class Estimate(NamedTuple):
    """A mean over seeds, and the ends of its interval; NaN where there is none, as for a single seed."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, sample: Floats) -> Self:
        """The estimate of the mean of a sample, shape (seeds,)."""
        mean, half = estimate(sample) if np.isfinite(sample).all() else (np.nan, np.nan)
        return cls(float(mean), float(mean - half), float(mean + half))

    @classmethod
    def of_ratio(cls, mine: Floats, theirs: Floats) -> "Estimate":
        """The geometric mean of ratios of values on the same seeds, (seeds,), with Student's interval of the logs.

        >>> Estimate.of_ratio(np.array([1.0, 4.0]), np.array([2.0, 2.0])).mean
        1.0
        """
        return cls.of_ratios([mine], [theirs])

    @classmethod
    def of_ratios(cls, mine: Sequence[Floats], theirs: Sequence[Floats]) -> "Estimate":
        """The geometric mean of ratios over the seeds of several scenarios, each with values on the same seeds."""
        with np.errstate(divide="ignore", invalid="ignore"):  # recorded times may be 0
            logarithms = [np.log(a) - np.log(b) for a, b in zip(mine, theirs, strict=True)]
            return cls.of_logarithms(np.mean(logarithms, axis=0))

    @classmethod
    def of_logarithms(cls, sample: Floats) -> Self:
        """The geometric mean of ratios that are given by their logarithms, shape (seeds,)."""
        return cls(*(float(np.exp(end)) for end in cls.of(sample)))


def estimates(rows: Iterable[tuple[Any, ...]], names: Sequence[str]) -> pl.DataFrame:
    """A frame with these columns, mean, low and high, from rows that end with an ``Estimate``; NaN becomes null.

    >>> estimates([("ata", "runtime", Estimate(2.0, 1.5, 2.5))], ["policy", "quantity"]).row(0)
    ('ata', 'runtime', 2.0, 1.5, 2.5)
    """
    flat = [(*cells, *estimated) for *cells, estimated in rows]
    return pl.DataFrame(flat, [*names, "mean", "low", "high"], orient="row").fill_nan(None)


def quantile(seeds: int) -> float:
    """Student's quantile for an interval over so many seeds; NaN for one."""
    return float(stdtrit(seeds - 1, _ENDS[1]))  # importing scipy.stats takes a second


def values(records: pl.DataFrame, policy: str, quantity: str) -> Floats:
    """One quantity of one policy, shape (seeds, recorded rounds)."""
    mine = records.filter(pl.col("policy") == policy)
    return mine[quantity].cast(pl.Float64).to_numpy().reshape(mine["seed"].n_unique(), -1)


def summarise(records: pl.DataFrame, price: float = 0.0) -> pl.DataFrame:
    """Summarise the last round of records as of ``run.SCHEMA``: columns policy, quantity, mean, low, high.

    Quantities such as ``runtime/ofta`` are ratios of the two policies' values on the same seeds; they are there for
    those of ``BASELINES`` that were played. Where worker time has a price, there is ``cost``, too.
    """
    compared = ends(records, price)
    last = records.filter(pl.col("round") == pl.col("round").max())
    rows: list[tuple[str, str, Estimate]] = []
    for policy in records["policy"].unique(maintain_order=True):
        rows += [(policy, name, Estimate.of(of[policy])) for name, of in compared.items()]
        alone = [name for name in _ALONE if name in last.columns]
        rows += [(policy, name, Estimate.of(values(last, policy, name)[:, 0])) for name in alone]
        for baseline in BASELINES:
            for name, of in compared.items():
                if baseline in of:
                    rows.append((policy, f"{name}/{baseline}", Estimate.of_ratio(of[policy], of[baseline])))
    return estimates(rows, ["policy", "quantity"])


def ends(records: pl.DataFrame, price: float = 0.0) -> dict[str, dict[str, Floats]]:
    """The values of the seeds in the last round of records, by quantity and policy; with a price also ``cost``."""
    last = records.filter(pl.col("round") == pl.col("round").max())
    last = last.with_columns(cost=pl.col("runtime") + price * pl.col("total_worker_time"))
    names = ["runtime", "total_worker_time", *(["cost"] if price > 0 else [])]
    policies = records["policy"].unique(maintain_order=True)
    return {name: {policy: values(last, policy, name)[:, 0] for policy in policies} for name in names}


def paired_wins(mine: Sequence[Floats], theirs: Sequence[Floats]) -> Estimate:
    """The share of runs of a policy that cost less than the run of another one on the same seed; ties count half.

    Each scenario has the values of the seeds of both, (seeds,). The interval is that of Clopper and Pearson (Biometrika
    1934) over the seeds, each with its mean over scenarios: exact for one scenario, and wider than needed for several.

    >>> wins = paired_wins([np.array([1.0, 2.0, 3.0, 4.0])], [np.array([2.0, 3.0, 4.0, 1.0])])
    >>> [round(end, 3) for end in wins]
    [0.75, 0.194, 0.994]
    """
    wins = np.mean([(a < b) + 0.5 * (a == b) for a, b in zip(mine, theirs, strict=True)], axis=0)
    seeds, won = len(wins), float(wins.sum())
    if seeds == 1:
        return Estimate(won, np.nan, np.nan)
    low = betaincinv(won, seeds - won + 1.0, _ENDS[0]) if won > 0.0 else 0.0
    high = betaincinv(won + 1.0, seeds - won, _ENDS[1]) if won < seeds else 1.0
    return Estimate(won / seeds, float(low), float(high))


Pairs = frozenset[frozenset[str]]  # some pairs of names, whatever the order of the two


def different_pairs(samples: Mapping[str, Floats]) -> Pairs:
    """The pairs of policies that differ clearly; two that do not are tied. It is the rule for all that says "tied".

    ``samples`` holds for each policy a number for each seed, (seeds,), such as the logarithm of its cost. Two policies
    differ if the paired t test of their differences says so, with the correction of Holm (Scandinavian Journal of
    Statistics 1979) for all pairs: where all are equal, the chance that any two differ is at most 5 %, however many
    there are, also for the pair of the best and the second best, which the data have chosen. With one seed, two
    policies differ if their numbers do.

    >>> first = np.array([1.0, 2.0, 1.5, 1.8])
    >>> sorted(map(sorted, different_pairs({"a": first, "b": first + [0.1, -0.1, 0.0, 0.1], "c": first + 1.0})))
    [['a', 'c'], ['b', 'c']]
    """
    pairs = list(combinations(samples, 2))
    if not pairs:
        return frozenset()
    values = np.array(list(samples.values()))
    first, second = np.triu_indices(len(values), 1)
    with np.errstate(invalid="ignore", divide="ignore"):  # logarithms of times of 0; runs that are the same
        differences = values[first] - values[second]
        mean, seeds = differences.mean(axis=1), values.shape[1]
        if seeds == 1:
            chance = np.where(mean == 0.0, 1.0, 0.0)
        else:
            error = differences.std(axis=1, ddof=1) / seeds**0.5
            chance = np.where(mean == 0.0, 1.0, 2.0 * stdtr(seeds - 1, -np.abs(mean / error)))
    chance = np.where(np.isnan(chance), 1.0, chance)  # nothing follows from numbers that are not finite
    order = np.argsort(chance, kind="stable")
    passed = chance[order] * np.arange(len(order), 0, -1) <= 1.0 - CONFIDENCE
    return frozenset(frozenset(pairs[k]) for k in order[np.logical_and.accumulate(passed)].tolist())


def performance_profile(costs: Mapping[str, Sequence[Floats]]) -> pl.DataFrame:
    """In how many runs a policy costs at most a ratio of what the best policy of the same run costs.

    Columns policy, ratio, share, low, high. Each policy has, for each scenario, the costs of the seeds, (seeds,); a
    scenario with a seed is a problem (Dolan and Moré, Benchmarking optimization software with performance profiles,
    2002). The intervals are pointwise, of a bootstrap of the seeds of each scenario (Agarwal et al., 2021).

    >>> costs = {"a": [np.array([1.0, 2.0])], "b": [np.array([2.0, 2.0])]}
    >>> performance_profile(costs).filter(pl.col("ratio") == 1.0)["share"].to_list()
    [1.0, 0.5]
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # recorded times may be 0
        relative = {
            policy: [mine / np.min([of[k] for of in costs.values()], axis=0) for k, mine in enumerate(each)]
            for policy, each in costs.items()
        }
    most = max(float(np.nan_to_num(one, nan=1.0).max()) for each in relative.values() for one in each)
    ratios = np.geomspace(1.0, most if 1.0 < most < np.inf else 2.0, _RATIOS)
    frames = []
    for policy, each in relative.items():
        rng = np.random.default_rng(0)  # the same draws for each policy: their seeds are paired
        near = [(one[:, None] <= ratios * (1 + 1e-12)) | np.isnan(one)[:, None] for one in each]
        share = np.mean([one.mean(axis=0) for one in near], axis=0)
        samples = np.mean([_drawn(rng, len(one)) @ one for one in near], axis=0)
        low, high = np.quantile(samples, _ENDS, axis=0) if len(each[0]) > 1 else np.full((2, _RATIOS), np.nan)
        frame = pl.DataFrame({"ratio": ratios, "share": share, "low": low, "high": high})
        frames.append(frame.select(pl.lit(policy).alias("policy"), pl.all()))
    return pl.concat(frames).fill_nan(None)


def _drawn(rng: np.random.Generator, seeds: int) -> Floats:
    """How often each seed is drawn in each sample, as a share, shape (samples, seeds)."""
    return rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=_RESAMPLES) / seeds
