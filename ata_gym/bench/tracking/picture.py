"""The picture of a change: the tasks of each worker round by round, and the round times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, PowerNorm
from numpy.typing import NDArray

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.report import style
from ata_gym.bench.tracking.experiment import ORACLES, Tracking
from ata_gym.typing import Floats, Ints

_COLUMNS = 400
"""Of a heat map at most; each shows the mean over its rounds."""

_SMOOTH = 20
"""Rounds over which round times are smoothed."""


def draw(records: pl.DataFrame, tracking: Tracking, folder: Path) -> list[Path]:
    """Draw the first change: a panel for each policy with the tasks of each worker, and the round times under them.

    The panels show the first seed; the round times are expected ones over the dynamic oracle's, their mean over seeds,
    smoothed.
    """
    low, change, end = tracking.windows()[0]
    inside = records.filter((pl.col("round") > low) & (pl.col("round") <= end))
    policies = records["policy"].unique(maintain_order=True).to_list()
    slowest_last = np.argsort(means_before(tracking), kind="stable")
    since = np.arange(low - change, end - change)
    looks = style.lines(policies)
    with style.figure(9.0, 1.25 * len(policies) + 2.8) as picture:
        axes = picture.subplots(
            len(policies) + 1, 1, sharex=True, gridspec_kw={"height_ratios": [1.0] * len(policies) + [1.5]}
        )
        most = max(2, int(inside["tasks"].list.max().quantile(0.99) or 0))
        for panel, policy in zip(axes, policies, strict=False):
            mine = inside.filter((pl.col("policy") == policy) & (pl.col("seed") == tracking.seed))
            tasks = np.array(mine["tasks"].to_list()).T[slowest_last]
            image = _heat(panel, since, tasks, most)
            panel.set_title(policy, fontweight="bold")
        _round_times(axes[-1], inside, looks, since)
        for panel in axes:
            panel.axvline(0, color="black", linewidth=1.0, linestyle=(0, (4, 3)))
        picture.supylabel("workers, the fastest before the change at the bottom", fontsize=10)
        picture.colorbar(image, ax=axes[:-1], label="tasks of a worker in a round", fraction=0.03, pad=0.01)
        axes[-1].set(xlabel=f"rounds since the change, before which {change:,} were played")
        picture.legend(loc="outside lower center", ncols=4, handlelength=2.6)
        picture.suptitle(
            f"{tracking.about}; tasks of seed {tracking.seed}, round times of {plural(tracking.seeds, 'seed')}",
            x=0.01, ha="left", fontsize=10, fontweight="bold",
        )  # fmt: skip
        return style.save(picture, folder / "change")


def means_before(tracking: Tracking) -> Floats:
    """Mean task times of the first seed's workers over the rounds before the first change, shape (n,)."""
    low, change, _ = tracking.windows()[0]
    envs = tracking.make_envs("ata_gym/TaskAllocation-v0", rows=1)
    envs.reset(seed=tracking.seed)
    anything = np.zeros((1, tracking.scenario.pool.n), np.int64)
    anything[0, 0] = tracking.scenario.budget
    bare: Any = envs.unwrapped
    total = np.zeros(tracking.scenario.pool.n)
    for k in range(change):
        if k >= low:
            total += bare.means()[0]
        envs.step(anything)
    return total / (change - low)


def _heat(axes: Axes, since: Ints, tasks: NDArray[np.int64], most: int) -> Any:
    """Draw tasks, shape (n, rounds)."""
    edges = np.unique(np.linspace(0, tasks.shape[1], _COLUMNS + 1).astype(np.int64))
    shown = np.add.reduceat(tasks, edges[:-1], axis=1) / np.diff(edges)
    rows = np.arange(len(tasks) + 1)
    axes.grid(visible=False)
    axes.set(yticks=[], ylim=(0, len(tasks)))
    norm = PowerNorm(0.5, 0, most)
    return axes.pcolormesh(since[0] + edges, rows, shown, cmap=_colours(), norm=norm, rasterized=True)


def _colours() -> ListedColormap:
    """White for no task at all, then darker and darker."""
    return ListedColormap(["white", *colormaps["magma_r"](np.linspace(0.1, 1.0, 255))])


def _round_times(axes: Axes, inside: pl.DataFrame, looks: Mapping[str, Mapping[str, Any]], since: Ints) -> None:
    """Draw expected round times over the oracle's."""
    for policy, line in looks.items():
        mine = inside.filter(pl.col("policy") == policy)
        expected, best = (mine[name].to_numpy().reshape(-1, len(since)) for name in ("expected", ORACLES[0]))
        ratio = (expected / best).mean(axis=0)
        axes.plot(since, smooth(ratio, int((since < 0).sum())), label=policy, **line)
    axes.set(yscale="log", xlim=(since[0], since[-1] + 1))
    axes.set_title("round time / least possible", fontweight="bold")
    style.plain_numbers(axes)


def smooth(values: Floats, change: int) -> Floats:
    """The mean over each value and the ones before it, up to ``_SMOOTH`` in all, never across ``change``."""
    smoothed = []
    for part in np.split(values, [change]):
        total = np.concatenate([[0.0], np.cumsum(part)])
        last = np.arange(1, len(part) + 1)
        first = np.maximum(last - _SMOOTH, 0)
        smoothed.append((total[last] - total[first]) / (last - first))
    return np.concatenate(smoothed)
