"""Pictures of charts, by matplotlib: what a page draws for a browser, drawn for a paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ata_gym.bench.report import charts, style
from ata_gym.bench.report.page.sections import Chart
from ata_gym.typing import Floats

_LOWEST = 0.05
"""The lowest part of a mean at which the band of a logarithmic axis ends."""

_HIGHEST_BOUND = 1.5
"""The highest part of a bound that is drawn, over the highest curve."""

_LABEL_WIDTH = 30
"""The number of letters in a line of the label of an axis."""

_OF_CLOCKS = (
    "how long training takes (left is faster)",
    "how much work it costs (left is cheaper)",
)
"""The titles of panels against runtime and against worker time."""


class Panel(NamedTuple):
    """One chart of curves in a picture."""

    chart: Chart
    """A chart of kind ``curves``, with one view."""
    title: str = ""
    """What stands above the panel; by default the quantity."""
    per_round: bool = False
    """Whether the mean per round is drawn, on logarithmic axes, and not the sum."""
    in_table: bool = False
    """Whether the panels of a row have one vertical axis, whose label is the quantity.

    The title is then the heading of a column, and empty in all rows but the first."""

    @property
    def quantity(self) -> str:
        """What is drawn."""
        if self.per_round:
            return f"{self.chart.settings['y']}, mean per round"
        return str(self.chart.settings["y"])

    def titled(self, scenario: str) -> "Panel":
        """Return the panel with the name of a scenario in its title."""
        if self.in_table:
            return self._replace(title=": ".join(filter(None, (scenario, self.title))))
        return self._replace(title=f"{scenario}: {self.quantity}")


@dataclass(frozen=True)
class Drawing:
    """A picture as data: panels in rows, with a line for each policy."""

    rows: Sequence[Sequence[Panel]]
    names: Sequence[str]
    """The names of the lines, in the order in which the charts number them."""
    note: str = ""
    """A text below the panels."""

    def __call__(self) -> style.Picture:
        """Draw all panels, and one legend for them."""
        in_table = self.rows[0][0].in_table
        rows = self.rows
        # A column of a paper has room for one panel in a row.
        if style.in_paper() and not in_table:
            rows = [[panel] for row in self.rows for panel in row]
        columns = max(map(len, rows))
        looks = style.lines(self.names)
        # A single panel is wider than one of several.
        if columns == 1:
            width = 6.5
        else:
            width = 2.5 + 3.5 * columns
        with style.figure(width, 0.6 + 3.0 * len(rows)) as picture:
            grid = picture.subplots(len(rows), columns, squeeze=False)
            if in_table:
                for panels in grid:
                    _share_vertical_axis(panels)
            for panels, row in zip(grid, rows, strict=True):
                for axes in panels[len(row) :]:
                    axes.set_visible(False)
                for axes, panel in zip(panels, row, strict=False):
                    _draw_panel(axes, panel, self.names, looks)
                if in_table:
                    panels[0].set_ylabel(fill(row[0].quantity, _LABEL_WIDTH))
            picture.align_ylabels(grid[:, 0])
            legend(picture, grid[0][0])
            for panels, row in zip(grid, rows, strict=True):
                # Losses are written as 0.01, and not as 10m.
                if not row[0].chart.settings.get("perRound", False):
                    for axes in panels:
                        axes.yaxis.set_major_formatter("{x:g}")
            if self.note:
                picture.supxlabel(fill(self.note, 120), x=0.01, ha="left", fontsize="small")
        return picture


def sums_and_means(chart: Chart) -> list[Panel]:
    """Return a panel of the sums of a quantity over the rounds, and one of its means.

    A quantity that may be 0 has no panel of means, since their axis is logarithmic.
    """
    panels = [Panel(chart)]
    if chart.settings["logY"]:
        panels.append(Panel(chart, per_round=True))
    return panels


def _share_vertical_axis(panels: Sequence[Axes]) -> None:
    """Give panels side by side one vertical axis, whose numbers the first has."""
    for axes in panels[1:]:
        axes.sharey(panels[0])
        axes.tick_params(labelleft=False)


def against_clocks(rows: Sequence[Sequence[Chart]]) -> list[list[Panel]]:
    """Return the rows of a picture of figures against both clocks, under titles of the clocks.

    Args:
        rows: For each figure what ``charts.against_clocks`` returns.
    """
    headings: Sequence[str] = _OF_CLOCKS
    panels = []
    for clock_charts in rows:
        panels.append(
            [
                Panel(chart, title, in_table=True)
                for chart, title in zip(clock_charts, headings, strict=True)
            ],
        )
        headings = [""] * len(_OF_CLOCKS)
    return panels


def _draw_panel(
    axes: Axes,
    panel: Panel,
    names: Sequence[str],
    looks: Mapping[str, Mapping[str, Any]],
) -> None:
    """Draw a line and a band for each policy of a chart."""
    settings = panel.chart.settings
    data = panel.chart.views[0].data
    # Sums are drawn on plain axes, where a straight line is a constant time per round.
    by_round = bool(settings.get("perRound", False))
    logarithmic = panel.per_round or (settings["logY"] and not by_round)
    for series in data["series"]:
        name = names[series["p"]]
        x = np.asarray(series.get("x", data["x"]), np.float64)
        if panel.per_round:
            scale = x
        else:
            scale = np.ones(len(x))
        mean = np.asarray(series["mean"], np.float64) / scale
        if logarithmic:
            # A logarithmic axis has no 0.
            mean = np.where(mean > 0, mean, np.nan)
        axes.plot(x, mean, label=name, **looks[name])
        band = {"color": looks[name]["color"], "alpha": 0.2, "linewidth": 0}
        if series["half"] is not None:
            half = np.asarray(series["half"], np.float64) / scale
            axes.fill_between(x, _low(mean, half, logarithmic), mean + half, **band)
        if series.get("halfX") is not None:
            half = np.asarray(series["halfX"], np.float64)
            axes.fill_betweenx(mean, _low(x, half, settings["logX"]), x + half, **band)
    if "bound" in data:
        _draw_bound(axes, data["x"], data["bound"], names)
    axes.set(xlabel=settings["x"])
    if panel.in_table:
        axes.set_title(panel.title)
    else:
        axes.set_title(panel.title or panel.quantity)
    axes.margins(x=0.01)
    # Recorded times may be 0, so that a panel may have nothing to draw on a logarithmic axis.
    heights = [np.asarray(line.get_ydata()) for line in axes.get_lines()]
    drawn = any(np.isfinite(values).any() for values in heights)
    if drawn and settings["logX"] and (panel.per_round or not (by_round and settings["logY"])):
        axes.set_xscale("log")
    if logarithmic and panel.in_table:
        # All panels of the row have the same limits.
        axes.set_yscale("log")
    elif logarithmic:
        lines = [np.asarray(line.get_ydata(), np.float64) for line in axes.get_lines()]
        _set_logarithmic(axes, lines)


def _draw_bound(
    axes: Axes, x: Sequence[float], bound: Mapping[str, Any], names: Sequence[str]
) -> None:
    """Draw a line below which no policy stays, and name those that have not reached it.

    It stays in the picture as far as ``_HIGHEST_BOUND`` says, so that the curves can be told apart.
    """
    heights = [np.asarray(line.get_ydata(), np.float64) for line in axes.get_lines()]
    highest = max((float(np.nanmax(height)) for height in heights), default=0.0)
    axes.plot(x, bound["y"], label=bound["name"], **style.BOUND)
    if 0 < _HIGHEST_BOUND * highest < np.max(bound["y"]):
        axes.set_ylim(top=_HIGHEST_BOUND * highest)
    if bound["below"]:
        below = ", ".join(names[place] for place in bound["below"])
        text = fill(f"bound not reached by {below}", _LABEL_WIDTH)
        axes.text(0.02, 0.98, text, transform=axes.transAxes, va="top", fontsize="small")


def _low(mean: Floats, half: Floats, logarithmic: bool) -> Floats:
    """Return the lower ends of a band, which are above 0 on a logarithmic axis."""
    if logarithmic:
        return np.maximum(mean - half, _LOWEST * mean)
    return mean - half


def _set_logarithmic(axes: Axes, lines: Sequence[Floats]) -> None:
    """Give a panel a logarithmic axis, whose limits are set by the lines alone."""
    heights = [height for line in lines for height in line if height > 0]
    # Recorded times may be 0, so that there may be no heights.
    if heights:
        axes.set(yscale="log", ylim=(0.8 * min(heights), 1.25 * max(heights)))


def legend(picture: Figure, axes: Axes) -> None:
    """Add a legend to a picture, and plain numbers to all its axes.

    The entries of the legend stand in the order in which the lines of the panel ``axes`` end.
    """
    style.plain_numbers(*picture.axes)
    by_end = sorted(axes.get_lines(), key=lambda line: -np.asarray(line.get_ydata())[-1])
    # Where this panel has no bound, the panel of another scenario may have one.
    all_lines = [*by_end]
    for other in picture.axes:
        all_lines += other.get_lines()
    bounds = [line for line in all_lines if line.get_label() == charts.LOWER_BOUND]
    if bounds and bounds[0] not in by_end:
        by_end.append(bounds[0])
    style.legend(picture, by_end)
