"""Comparisons of policies over scenarios and seeds: how probably one is better, and how often each is near the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ata_gym.bench.report.statistics import CONFIDENCE, Estimate
from ata_gym.typing import Floats

_RESAMPLES = 2000  # samples of a bootstrap, drawn from seed 0, so that the same values give the same interval
_RATIOS = 100  # ratios at which a profile is known


def probability_of_improvement(mine: Sequence[Floats], theirs: Sequence[Floats]) -> Estimate:
    """How probably a run of one policy costs less than a run of another one, mean over scenarios; ties count half.

    Each scenario has the values of the seeds of both, (seeds,). The estimate compares all pairs of runs (Agarwal et
    al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021, section 4.3), and its
    interval is their stratified bootstrap: the runs of each scenario and policy are drawn anew with replacement.

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

    Each policy has, for each scenario, the costs of the seeds, (seeds,). Every scenario with one of its seeds is a
    problem of a performance profile (Dolan and Moré, Benchmarking optimization software with performance profiles,
    2002); the intervals are pointwise, of a bootstrap of the seeds of each scenario, as in Agarwal et al. (2021).
    Columns policy, ratio, share, low, high.

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


_ENDS = (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2)


def _drawn(rng: np.random.Generator, seeds: int) -> Floats:
    """How often each seed is drawn in each sample, as a share, shape (samples, seeds)."""
    return rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=_RESAMPLES) / seeds
