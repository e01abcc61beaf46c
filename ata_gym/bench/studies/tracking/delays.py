"""How soon policies follow changes, and what they cost meanwhile."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from ata_gym.bench.report.headline import Samples
from ata_gym.bench.report.statistics import Estimate, estimates
from ata_gym.bench.studies.tracking.experiment import ORACLES, Window
from ata_gym.typing import Floats, Ints

WITHIN = 0.1
"""How far a policy that follows may be above the oracle's expected round time, as a share."""

BLOCK = 20
"""The rounds over which it must be so near on average: one short round is not enough."""

NEVER = -1
"""The delay of a policy that has not followed before its window ends."""


def ratio_to_best(expected: Floats, best: Floats) -> Floats:
    """Return expected round times over the oracle's, which may be 0 in recorded rounds.

    0 / 0 counts as 1. All have the same shape.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected == best, 1.0, expected / best)


def delay(expected: Floats, best: Floats, block: int = BLOCK) -> Ints:
    """The number of rounds from a change until expected round times are near the oracle's.

    It is the least d such that over the rounds d, d + 1, ..., d + block - 1 after the change
    (fewer, where the window is shorter) the mean of expected / best is at most 1 + ``WITHIN``.

    Args:
        expected: Expected round times of the policy in the rounds after the change, (..., K).
        best: Expected round times of the oracle in them, (..., K).
        block: The number of rounds over which the mean is taken.

    Returns:
        The delays d, shape (...,); ``NEVER`` where there is no such d.

    Example:
        >>> delay(np.array([9.0, 1.0, 9.0, 1.0, 1.0, 1.0]), np.ones(6), block=3)
        array(3)
        >>> delay(np.array([9.0, 1.0, 9.0]), np.ones(3), block=3)
        array(-1)
    """
    ratio = ratio_to_best(expected, best)
    rounds = ratio.shape[-1]
    block = min(block, rounds)
    starts = range(rounds - block + 1)
    means = [ratio[..., d : d + block].mean(axis=-1) for d in starts]
    near = np.stack([mean <= 1 + WITHIN for mean in means], axis=-1)
    # argmax of truth values is the first that is true
    return np.where(near.any(axis=-1), near.argmax(axis=-1), NEVER)


def delays(records: pl.DataFrame, windows: Sequence[Window]) -> pl.DataFrame:
    """The delay of each policy after each change, by seed and oracle.

    Returns:
        Columns policy, seed, change (the number of rounds before it), oracle, delay (null: never).
    """
    rows = []
    for (policy,), policy_rows in records.group_by("policy", maintain_order=True):
        for _, change, end in windows:
            after = between(policy_rows, change, end)
            seeds = after["seed"].unique(maintain_order=True).to_list()
            for oracle in ORACLES:
                expected, best = (
                    after[name].to_numpy().reshape(len(seeds), -1) for name in ("expected", oracle)
                )
                waits = delay(expected, best).tolist()
                rows += [
                    (policy, seed, change, oracle, d) for seed, d in zip(seeds, waits, strict=True)
                ]
    table = pl.DataFrame(rows, ["policy", "seed", "change", "oracle", "delay"], orient="row")
    return table.with_columns(delay=pl.when(pl.col("delay") != NEVER).then("delay"))


def after_changes(records: pl.DataFrame, windows: Sequence[Window]) -> Samples:
    """Expected round times after the changes, added up, (seeds,) for each policy.

    The oracle that knows the distributions is among them.
    """
    times_by_policy: dict[str, Floats] = {}
    for (policy,), rows in records.group_by("policy", maintain_order=True):
        sums = np.sum([_sums(rows, change, end) for _, change, end in windows], axis=0)
        times_by_policy |= {str(policy): sums[0], ORACLES[0]: sums[1]}
    return {"expected": times_by_policy}


def summarise(records: pl.DataFrame, windows: Sequence[Window]) -> pl.DataFrame:
    """What the changes have in common: means over seeds, and their 95 % intervals.

    The quantities are ``before/<oracle>`` and ``after/<oracle>`` (the expected round times in all
    windows, added up, relative to the oracle's) and ``regret`` (proxy regret from a change to the
    end of its window, mean over changes).

    Returns:
        Columns policy, quantity, mean, low, high.
    """
    before = [(low, change) for low, change, _ in windows]
    after = [(change, end) for _, change, end in windows]
    rows: list[tuple[object, ...]] = []
    for (policy,), policy_rows in records.group_by("policy", maintain_order=True):
        for part, rounds in (("before", before), ("after", after)):
            sums = np.sum([_sums(policy_rows, low, end) for low, end in rounds], axis=0)
            ratios = [Estimate.from_ratio(sums[0], best) for best in sums[1:]]
            rows += [
                (policy, f"{part}/{oracle}", ratio)
                for oracle, ratio in zip(ORACLES, ratios, strict=True)
            ]
        # by round, the regret of each seed since the first round of the episode
        regret = {
            n: round_rows["regret"].to_numpy()
            for (n,), round_rows in policy_rows.group_by("round", maintain_order=True)
        }
        regrets = [regret[end] - regret[change] for change, end in after]
        rows.append((policy, "regret", Estimate.from_sample(np.mean(regrets, axis=0))))
    return estimates(rows, ["policy", "quantity"])


def between(records: pl.DataFrame, low: int, end: int) -> pl.DataFrame:
    """The rounds after ``low`` up to ``end``."""
    return records.filter((pl.col("round") > low) & (pl.col("round") <= end))


def _sums(records: pl.DataFrame, low: int, end: int) -> Floats:
    """Expected round times of the policy and the oracles, added up between: (3, seeds)."""
    by_seed = between(records, low, end).group_by("seed", maintain_order=True)
    sums = by_seed.agg(pl.col("expected", *ORACLES).sum())
    return sums.drop("seed").to_numpy().T
