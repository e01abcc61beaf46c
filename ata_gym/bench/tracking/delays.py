"""How many rounds a policy needs to follow a change, and what that cost."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ata_gym.bench.report.statistics import estimate
from ata_gym.bench.tracking.experiment import ORACLES, Tracking
from ata_gym.typing import Floats

WITHIN = 0.1
"""How near the oracle's expected round time counts as having followed, as a share of it."""

BLOCK = 20
"""Rounds over which it must be so near, on average: one short round is not enough."""

NEVER = -1
"""The delay of a policy that has not followed before its window ends."""


def delay(expected: Floats, best: Floats, within: float = WITHIN, block: int = BLOCK) -> NDArray[np.int64]:
    """Rounds from a change until expected round times are within a share of the oracle's.

    It is the least d such that over the rounds d, d + 1, ..., d + block - 1 after the change (fewer, where the window
    ends) the mean of expected / best is at most 1 + within.

    Parameters
    ----------
    expected
        (..., K) expected round times of a policy's allocations under the distributions of each round after the change.
    best
        (..., K) those of the oracle's.
    within
        The share.
    block
        How many rounds.

    Returns
    -------
    (...,) rounds, 0 where there was nothing to follow, ``NEVER`` where there is no such d.

    Examples
    --------
    >>> delay(np.array([9.0, 1.0, 9.0, 1.0, 1.0, 1.0]), np.ones(6), block=3)
    array(3)
    >>> delay(np.array([9.0, 1.0, 9.0]), np.ones(3), block=3)
    array(-1)
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # recorded times may be 0
        ratio = np.where(expected == best, 1.0, expected / best)
    rounds = ratio.shape[-1]
    block = min(block, rounds)
    near = np.stack([ratio[..., d : d + block].mean(axis=-1) <= 1 + within for d in range(rounds - block + 1)], axis=-1)
    return np.where(near.any(axis=-1), near.argmax(axis=-1), NEVER)


def delays(records: pl.DataFrame, tracking: Tracking) -> pl.DataFrame:
    """The delays of every policy, seed and change; ``records`` are as ``tracking.SCHEMA`` says.

    Returns
    -------
    Columns policy, seed, change (the rounds before it), oracle, delay (null: never).
    """
    frames = []
    for policy, mine in _by_policy(records):
        for _, change, end in tracking.windows():
            after = mine.filter((pl.col("round") > change) & (pl.col("round") <= end))
            seeds = after["seed"].unique(maintain_order=True)
            for oracle in ORACLES:
                expected, best = (after[name].to_numpy().reshape(len(seeds), -1) for name in ("expected", oracle))
                about = {"policy": policy, "change": change, "oracle": oracle}
                frames.append(
                    pl.DataFrame({"seed": seeds, "delay": delay(expected, best)}).with_columns(**_literals(about))
                )
    found = pl.concat(frames).with_columns(delay=pl.when(pl.col("delay") != NEVER).then("delay"))
    return found.select("policy", "seed", "change", "oracle", "delay")


def summarise(records: pl.DataFrame, tracking: Tracking) -> pl.DataFrame:
    """What a policy's changes have in common.

    Returns
    -------
    Columns policy, quantity, mean, low, high: means over seeds, with 95 % confidence intervals, of the quantities
    ``before/dynamic-oracle``, ``after/dynamic-oracle``, ... (the expected round times in all windows before or after
    the changes, added up, over those of the oracle) and ``regret`` (proxy regret from a change to the end of its
    window, mean over changes).
    """
    parts = {
        "before": [(low, change) for low, change, _ in tracking.windows()],
        "after": [(change, end) for _, change, end in tracking.windows()],
    }
    rows = []
    for policy, mine in _by_policy(records):
        of: dict[str, Floats] = {}
        for part, windows in parts.items():
            sums = np.sum([_sums(mine, low, end) for low, end in windows], axis=0)
            of |= {f"{part}/{oracle}": sums[0] / sums[k] for k, oracle in enumerate(ORACLES, 1)}
        of["regret"] = np.mean([_regret(mine, end) - _regret(mine, change) for change, end in parts["after"]], axis=0)
        for quantity, sample in of.items():
            mean, half = estimate(sample)
            rows.append((policy, quantity, float(mean), float(mean - half), float(mean + half)))
    schema = ["policy", "quantity", "mean", "low", "high"]
    return pl.DataFrame(rows, schema, orient="row").fill_nan(None)


def _by_policy(records: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [(str(policy), mine) for (policy,), mine in records.group_by("policy", maintain_order=True)]


def _literals(values: dict[str, object]) -> dict[str, pl.Expr]:
    return {name: pl.lit(value) for name, value in values.items()}


def _sums(mine: pl.DataFrame, low: int, end: int) -> Floats:
    """Expected round times, the policy's and the oracles', of the rounds after ``low`` up to ``end``: (3, seeds)."""
    part = mine.filter((pl.col("round") > low) & (pl.col("round") <= end))
    return part.group_by("seed", maintain_order=True).agg(pl.col("expected", *ORACLES).sum()).drop("seed").to_numpy().T


def _regret(mine: pl.DataFrame, round: int) -> Floats:
    """The regret after so many rounds, shape (seeds,)."""
    return mine.filter(pl.col("round") == round)["regret"].to_numpy()
