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

_COLUMNS = 400  # the largest number of columns of a heat map; each shows the mean over its rounds

_SMOOTH = 20  # rounds over which round times are smoothed


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
    with style.figure(9.0, 1.25 * len(policies) + 2.8) as picture:
        axes = picture.subplots(len(policies) + 1, 1, sharex=True, height_ratios=[1.0] * len(policies) + [1.5])
        most = max(2, int(inside["tasks"].list.max().quantile(0.99) or 0))
        for panel, policy in zip(axes, policies, strict=False):
            mine = inside.filter((pl.col("policy") == policy) & (pl.col("seed") == tracking.seed))
            tasks = np.array(mine["tasks"].to_list()).T[slowest_last]
            image = _heat(panel, since, tasks, most)
            panel.set_title(policy, fontweight="bold")
        _round_times(axes[-1], inside, style.lines(policies), since)
        for panel in axes:
            panel.axvline(0, color="black", linewidth=1.0, linestyle=(0, (4, 3)))
        picture.supylabel("who works: a line for each worker, the fastest before the change at the bottom", fontsize=10)
        picture.colorbar(image, ax=axes[:-1], label="tasks of a worker in a round", fraction=0.03, pad=0.01)
        here = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 9}
        axes[0].annotate("the workers change", (0, 1.0), (4, 2), **here)
        axes[-1].set(xlabel=f"rounds since the change, before which {change:,} were played")
        picture.legend(loc="outside lower center", ncols=4, handlelength=2.6)
        seeds = f"tasks of seed {tracking.seed}, round times of {plural(tracking.seeds, 'seed')}"
        title = f"Who notices that the workers have changed?\n{tracking.about}; {seeds}"
        return style.save(picture, folder / "change", title)


def means_before(tracking: Tracking) -> Floats:
    """Mean task times of the first seed's workers over the rounds before the first change, shape (n,)."""
    low, change, _ = tracking.windows()[0]
    envs = tracking.make_envs("ata_gym/TaskAllocation-v0", rows=1)
    envs.reset(seed=tracking.seed)
    anything = tracking.scenario.budget * np.eye(1, tracking.scenario.pool.n, dtype=np.int64)
    total = np.zeros(tracking.scenario.pool.n)
    for k in range(change):
        if k >= low:
            total += envs.unwrapped.means()[0]  # type: ignore[attr-defined]
        envs.step(anything)
    return total / (change - low)


def _heat(axes: Axes, since: Ints, tasks: NDArray[np.int64], most: int) -> Any:
    """Draw tasks, shape (n, rounds)."""
    edges = np.unique(np.linspace(0, tasks.shape[1], _COLUMNS + 1).astype(np.int64))
    shown = np.add.reduceat(tasks, edges[:-1], axis=1) / np.diff(edges)
    rows = np.arange(len(tasks) + 1)
    axes.grid(visible=False)
    axes.set(yticks=[], ylim=(0, len(tasks)))
    norm, colours = PowerNorm(0.5, 0, most), ["white", *colormaps["magma_r"](np.linspace(0.1, 1.0, 255))]
    return axes.pcolormesh(since[0] + edges, rows, shown, cmap=ListedColormap(colours), norm=norm, rasterized=True)


def _round_times(axes: Axes, inside: pl.DataFrame, looks: Mapping[str, Mapping[str, Any]], since: Ints) -> None:
    """Draw expected round times over the oracle's."""
    for policy, line in looks.items():
        mine = inside.filter(pl.col("policy") == policy)
        expected, best = (mine[name].to_numpy().reshape(-1, len(since)) for name in ("expected", ORACLES[0]))
        ratio = (expected / best).mean(axis=0)
        axes.plot(since, smooth(ratio, int((since < 0).sum())), label=policy, **line)
    axes.set(yscale="log", xlim=(since[0], since[-1] + 1))
    axes.set_title("time of a round / least possible: 1 is best", fontweight="bold")
    style.plain_numbers(axes)


def smooth(values: Floats, change: int) -> Floats:
    """The mean over each value and the ones before it, up to ``_SMOOTH`` in all, never across ``change``."""
    parts = np.split(values, [change])
    return np.concatenate([pl.Series(part).rolling_mean(_SMOOTH, min_samples=1).to_numpy() for part in parts])
