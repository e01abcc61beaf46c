"""Statistics of records: means and ratios over seeds with 95 % confidence intervals, and comparisons of runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from scipy.special import stdtrit

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


def probability_of_improvement(mine: Sequence[Floats], theirs: Sequence[Floats]) -> Estimate:
    """How probably a run of one policy costs less than a run of another one, mean over scenarios; ties count half.

    Each scenario has the values of the seeds of both, (seeds,). All pairs of runs are compared, and the interval is a
    stratified bootstrap of the runs of each scenario and policy (Agarwal et al., Deep Reinforcement Learning at the
    Edge of the Statistical Precipice, NeurIPS 2021, section 4.3).

    >>> probability_of_improvement([np.array([1.0, 2.0, 3.0])], [np.array([2.5, 3.0, 4.0])]).mean.__round__(3)
    0.833
    """
    rng, samples = np.random.default_rng(0), np.zeros(_RESAMPLES)
    means = []
    for a, b in zip(mine, theirs, strict=True):
        wins = (a[:, None] < b) + 0.5 * (a[:, None] == b)
        means.append(wins.mean())
        samples += np.einsum("ri,ij,rj->r", _drawn(rng, len(a)), wins, _drawn(rng, len(b))) / len(mine)
    known = min(map(len, mine)) > 1
    low, high = np.quantile(samples, _ENDS) if known else (np.nan, np.nan)
    return Estimate(float(np.mean(means)), float(low), float(high))


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
