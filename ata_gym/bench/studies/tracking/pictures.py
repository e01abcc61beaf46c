"""A change in pictures: who works before and after it, and how long rounds are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, PowerNorm
from numpy.typing import NDArray

from ata_gym.bench.experiment import Sizes, group_edges, plural
from ata_gym.bench.report import charts, style
from ata_gym.bench.report.page.sections import Chart, View
from ata_gym.bench.report.statistics import estimate
from ata_gym.bench.report.summary_tables import band
from ata_gym.bench.studies.tracking.delays import between, ratio_to_best
from ata_gym.bench.studies.tracking.experiment import ORACLES, Window
from ata_gym.typing import Floats, Ints

_HEAT_COLUMNS = 400
"""The largest number of columns of a heat map; each shows the mean over its rounds."""

_PAGE_COLUMNS = 80
"""The same on a page."""

_CURVE_POINTS = 200
"""The largest number of points of a curve on a page."""

_SMOOTHED_ROUNDS = 20
"""The number of rounds over which round times are smoothed."""

_SINCE = "rounds since the change"


@dataclass(frozen=True)
class Changes:
    """What pictures and charts of the changes are made of."""

    records: pl.DataFrame
    windows: Sequence[Window]
    sizes: Sizes
    order: Sequence[int]
    """The workers of the first seed, the fastest before the first change first."""

    @property
    def policies(self) -> list[str]:
        """The policies, in the order of the records."""
        return self.records["policy"].unique(maintain_order=True).to_list()

    def tasks(self, policy: str) -> NDArray[np.int64]:
        """The tasks around the first change, in the first seed.

        Returns:
            An array of shape (n, rounds), the worker that was the fastest before the change first.
        """
        window = self.windows[0]
        rows = between(self.records, window.first, window.end).filter(
            policy=policy, seed=self.sizes.first_seed
        )
        tasks: NDArray[np.int64] = np.array(rows["tasks"].to_list(), np.int64).T
        ordered: NDArray[np.int64] = tasks[np.asarray(self.order)]
        return ordered

    def ratios(self, policy: str, window: Window) -> Floats:
        """Expected round times around a change over the least possible ones, smoothed.

        Returns:
            An array of shape (seeds, rounds).
        """
        rows = between(self.records, window.first, window.end).filter(policy=policy)
        expected, best = (
            rows[name].to_numpy().reshape(self.sizes.seeds, -1) for name in ("expected", ORACLES[0])
        )
        change = window.change - window.first
        return np.array([smooth(ratio, change) for ratio in ratio_to_best(expected, best)])

    def draw(self) -> style.Picture:
        """Draw the first change: who works in each policy, and the round times below.

        The tasks of each worker are its tasks on the first seed.
        """
        window = self.windows[0]
        since = np.arange(window.first, window.end) - window.change
        tasks = {policy: self.tasks(policy) for policy in self.policies}
        with style.figure(9.0, 1.25 * len(tasks) + 2.8) as picture:
            heights = [1.0] * len(tasks) + [1.5]
            axes = picture.subplots(len(tasks) + 1, 1, sharex=True, height_ratios=heights)
            # few cells have more tasks than the largest shade
            largest = between(self.records, window.first, window.end)["tasks"].list.max()
            most_tasks = max(2, int(largest.quantile(0.99) or 0))
            for panel, (policy, by_round) in zip(axes, tasks.items(), strict=False):
                image = heat_map(panel, since, by_round, most_tasks)
                panel.set_title(policy, fontweight="bold")
            self._draw_round_times(axes[-1], since)
            for panel in axes:
                panel.axvline(0, color="black", linewidth=1.0, linestyle=(0, (4, 3)))
            picture.supylabel(
                "who works: a line for each worker, the fastest before the change at the bottom",
                fontsize="medium",
            )
            picture.colorbar(
                image,
                ax=axes[:-1],
                label=f"tasks of a worker in a round, seed {self.sizes.first_seed}",
                fraction=0.03,
                pad=0.01,
            )
            placement = {
                "xycoords": ("data", "axes fraction"),
                "textcoords": "offset points",
                "fontsize": "small",
            }
            axes[0].annotate("the workers change", (0, 1.0), (4, 2), **placement)
            axes[-1].set(xlabel=f"{_SINCE}, before which {window.change:,} were played")
            picture.legend(loc="outside lower center", ncols=4, handlelength=2.6)
        return picture

    def _draw_round_times(self, axes: Axes, since: Ints) -> None:
        """Draw each policy's expected round times over the oracle's, means over seeds."""
        for policy, line in style.lines(self.policies).items():
            ratio = self.ratios(policy, self.windows[0]).mean(axis=0)
            axes.plot(since, ratio, label=policy, **line)
        axes.set(yscale="log", xlim=(since[0], since[-1] + 1))
        seeds = plural(self.sizes.seeds, "seed")
        heading = f"time of a round / least possible: 1 is best; {seeds}"
        axes.set_title(heading, fontweight="bold")
        style.plain_numbers(axes)

    def curves(self, places: Mapping[str, int]) -> Chart:
        """Make the chart of the expected round times around each change.

        Args:
            places: The place of each policy in the list of the page.
        """
        views = []
        for window in self.windows:
            since = np.arange(window.first, window.end) - window.change
            indices = charts.thinned(len(since), _CURVE_POINTS)
            series = []
            for policy in self.policies:
                mean, half = estimate(self.ratios(policy, window)[:, indices])
                shown_half = None if np.isnan(half).all() else half
                series.append({"p": places[policy], "mean": mean, "half": shown_half})
            choice = {"change": f"after {window.change:,} rounds"}
            views.append(View({"x": since[indices], "series": series}, choice))
        note = (
            "The expected round time of the allocations over the least possible one, a mean over"
            f" {_SMOOTHED_ROUNDS} rounds before and after the change: 1 is best."
            f"{band(self.sizes.seeds)}"
        )
        settings = {"x": _SINCE, "y": "round time / least possible", "logY": True, "half": False}
        heading = "Round times around a change: lower is better"
        return Chart("changes", heading, note, "curves", views, settings)

    def allocations(self) -> Chart:
        """Make the chart of who works around the first change, a picture for each policy."""
        window = self.windows[0]
        since = np.arange(window.first, window.end) - window.change
        groups = group_edges(self.sizes.workers)
        shares = {}
        for policy in self.policies:
            edges, means = column_means(self.tasks(policy), _PAGE_COLUMNS)
            rounds = since[edges[:-1]].tolist()
            shares[policy] = rounds, np.add.reduceat(means, groups[:-1], axis=0).T
        chart = charts.allocations(shares, np.diff(groups).tolist(), self.sizes.budget)
        note = (
            "Each row is a worker, the fastest before the change at the bottom, or a group of"
            f" neighbours where there are more than 100; the colour is its share of the budget in"
            f" seed {self.sizes.first_seed}. The workers change at 0, before which"
            f" {window.change:,} rounds were played."
        )
        settings = {name: value for name, value in chart.settings.items() if name != "logX"}
        return chart._replace(
            title="Who gets the tasks around the first change",
            note=note,
            settings={**settings, "x": _SINCE, "y": "worker, by its mean task time before"},
        )


def column_means(tasks: NDArray[np.int64], columns: int) -> tuple[Ints, Floats]:
    """Return the means of tasks, (n, rounds), over at most ``columns`` spans of rounds.

    Returns:
        Where each span begins, followed by the number of rounds, and the means, (n, spans).
    """
    edges = np.unique(np.linspace(0, tasks.shape[1], columns + 1).astype(np.int64))
    return edges, np.add.reduceat(tasks, edges[:-1], axis=1) / np.diff(edges)


def heat_map(axes: Axes, since: Ints, tasks: NDArray[np.int64], most_tasks: int) -> Any:
    """Draw tasks, (n, rounds), at the rounds ``since`` the change; ``most_tasks`` is darkest."""
    edges, means = column_means(tasks, _HEAT_COLUMNS)
    rows = np.arange(len(tasks) + 1)
    axes.grid(visible=False)
    axes.set(yticks=[], ylim=(0, len(tasks)))
    norm = PowerNorm(0.5, 0, most_tasks)
    colours = ["white", *colormaps["magma_r"](np.linspace(0.1, 1.0, 255))]
    return axes.pcolormesh(
        since[0] + edges,
        rows,
        means,
        cmap=ListedColormap(colours),
        norm=norm,
        rasterized=True,
    )


def smooth(values: Floats, change: int) -> Floats:
    """Means over each value and the values before it, up to ``_SMOOTHED_ROUNDS`` in all.

    No mean is taken across the index ``change``. The shape of both is (rounds,).
    """
    parts = np.split(values, [change])
    return np.concatenate(
        [
            pl.Series(part).rolling_mean(_SMOOTHED_ROUNDS, min_samples=1).to_numpy()
            for part in parts
        ],
    )
