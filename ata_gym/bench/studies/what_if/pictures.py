"""The pictures of the answer: a heat map of steps and workers beside bars of what was lost."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from ata_gym.bench.report import style
from ata_gym.bench.report.charts import thinned
from ata_gym.bench.report.page.sections import Chart, View
from ata_gym.bench.store.note import Note
from ata_gym.bench.studies.what_if.answer import whole
from ata_gym.bench.studies.what_if.waiting import SHOWN_WORKERS, worst_first
from ata_gym.typing import Floats

_LEAST_LIMIT = 1.25
"""The smallest ratio at which the colours of a heat map end."""

_LARGEST_LIMIT = 4.0
"""The largest ratio at which the colours of a heat map end."""

_SHOWN_PART = 0.995
"""The part of the cells whose ratios have colours of their own; few extremes do not set these."""

_NAMED_RATIOS = (0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0)
"""The ratios that may be named beside the colours."""

_LABEL_WIDTH = 20
"""The number of letters in a line of the label of a narrow panel."""

_TICKS = 6
"""The largest number of named steps below a heat map."""

_ABOUT = (
    "The time of each share relative to the median of its step: red is slower than the others, blue"
    " is faster, white is alike or has no task. The workers that were waited for longest stand at"
    " the top"
)


def heat_chart(times: pl.DataFrame, note: Note) -> Chart:
    """Make the heat map of the page.

    Args:
        times: What ``waiting.heat_frame`` returns.
        note: The note of the log.
    """
    workers, first, last, cells = _matrix(times)
    others = "; the last row is the mean of all others" if _has_band(note) else ""
    joined = "; a column has several steps" if len(first) < note["steps"] else ""
    data = {"workers": workers, "first": first, "last": last, "cells": cells}
    limit = _limit(cells)
    settings = {"x": "step", "top": limit, "ticks": _ticks(limit)}
    return Chart(
        "times",
        "Which worker was slow, and when",
        f"{_ABOUT}{others}{joined}.",
        "times",
        [View(data)],
        settings,
    )


def draw_waiting(times: pl.DataFrame, note: Note) -> style.Picture:
    """Draw the heat map of steps and workers, and beside it what was lost to each worker.

    Args:
        times: What ``waiting.heat_frame`` returns.
        note: The note of the log.
    """
    workers, first, _, cells = _matrix(times)
    worst = worst_first(note)[:SHOWN_WORKERS]
    with style.figure(9.0, 1.6 + 0.28 * len(workers)) as picture:
        heat, lost, last = picture.subplots(1, 3, sharey=True, width_ratios=[4, 1.4, 1.4])
        image = _draw_heat(heat, cells, first)
        heat.set(yticks=range(len(workers)), yticklabels=workers, xlabel="step", ylabel="worker")
        heat.set_title("time of each share / median of its step")
        ticks = _ticks(_limit(cells))
        bar = picture.colorbar(
            image, ax=heat, location="bottom", aspect=50, pad=0.02, ticks=np.log2(ticks)
        )
        bar.outline.set_visible(False)
        bar.ax.set_xticklabels([f"{ratio:g}" for ratio in ticks])
        for panel, column, title, whole_name in (
            (lost, "lost", "lost to it", whole(note)),
            (last, "last", "it was last", "the steps"),
        ):
            panel.barh(
                range(len(worst)),
                [worker[column] for worker in worst],
                height=0.7,
                color=style.OKABE_ITO[0],
            )
            panel.set_title(title)
            panel.set_xlabel(fill(f"part of {whole_name}", _LABEL_WIDTH))
            panel.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            panel.locator_params(axis="x", nbins=3)
        # the panels share the axis of the picture, whose first row stands at the top
        heat.set_ylim(len(workers) - 0.5, -0.5)
    return picture


def _draw_heat(axes: Axes, cells: Floats, names: Sequence[str]) -> Any:
    """Draw the cells, with the names of some steps below."""
    limit = float(np.log2(_limit(cells)))
    image = axes.imshow(
        np.log2(np.clip(cells, 1e-3, 1e3)),
        aspect="auto",
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        interpolation="none",
    )
    places = thinned(len(names), _TICKS)
    axes.set(xticks=places, xticklabels=[names[place] for place in places])
    axes.grid(visible=False)
    return image


def _matrix(times: pl.DataFrame) -> tuple[list[str], list[str], list[str], Floats]:
    """The workers, the first and last steps of the columns, and the ratios, (workers, columns)."""
    workers = times["worker"].unique(maintain_order=True).to_list()
    columns = len(times) // len(workers)
    first, last = (times[name][:columns].to_list() for name in ("first", "last"))
    return workers, first, last, times["relative"].to_numpy().reshape(len(workers), columns)


def _limit(cells: Floats) -> float:
    """The ratio at which the colours end, above 1; they end at its inverse, too."""
    ratios = np.exp(np.abs(np.log(np.clip(cells, 1e-3, 1e3))))
    return float(np.clip(np.quantile(ratios, _SHOWN_PART), _LEAST_LIMIT, _LARGEST_LIMIT))


def _ticks(limit: float) -> list[float]:
    """The ratios that are named beside the colours."""
    return [ratio for ratio in _NAMED_RATIOS if 1.0 / limit <= ratio <= limit]


def _has_band(note: Note) -> bool:
    return bool(note["workers"] > SHOWN_WORKERS)
