"""A round as a Gantt chart beside the estimates of the workers' mean times, in pixels.

Matplotlib draws it.
"""

from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ata_gym.envs.rendering.colours import OKABE_ITO
from ata_gym.envs.rendering.timeline import KINDS, Timeline
from ata_gym.typing import Floats, Ints

MAX_WORKERS = 24
"""The largest number of workers that have a bar; the others share a line."""
# The size of each frame in pixels. Videos need even numbers.
WIDTH = 960
HEIGHT = 540
_DPI = 100
_WAITING = {"facecolor": "#ECECEC"}
_LOOKS: tuple[dict[str, Any], ...] = (
    {"facecolor": OKABE_ITO[0]},
    {"facecolor": "#F7DCA0", "edgecolor": OKABE_ITO[4], "hatch": "////"},
    {"facecolor": "#F5CDB5", "edgecolor": OKABE_ITO[1], "hatch": "xxxx"},
    {"facecolor": OKABE_ITO[5]},
)
"""The looks of segments of each kind, in the order of ``KINDS``."""
_ESTIMATE: dict[str, Any] = {"linestyle": "", "marker": "o", "color": OKABE_ITO[1], "markersize": 5}
_EXACT: dict[str, Any] = {
    "linestyle": "",
    "marker": "|",
    "color": "black",
    "markersize": 11,
    "markeredgewidth": 1.6,
}
_SETTINGS: dict[str, Any] = {
    "font.size": 9.0,
    "hatch.linewidth": 0.8,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
}


def as_pixels(timeline: Timeline) -> NDArray[np.uint8]:
    """The pixels of a round, shape (540, 960, 3)."""
    with matplotlib.style.context(_SETTINGS, after_reset=True):
        figure = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI, facecolor="white")
        # The methods that draw have no types.
        canvas: Any = FigureCanvasAgg(figure)
        bars = figure.add_axes((0.135, 0.15, 0.6, 0.69))
        means = figure.add_axes((0.77, 0.15, 0.215, 0.69), sharey=bars)
        for axes, label in ((bars, "time since the round's start"), (means, "mean task time")):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", left=False, labelleft=False)
            axes.grid(axis="x", color="#E4E4E4", linewidth=0.6)
            axes.set_xlabel(label)
        workers = timeline.busiest(MAX_WORKERS)
        rest_text = timeline.summary_without(workers)
        bars.set_ylim(max(len(workers) + 1.2 * bool(rest_text), 3) - 0.4, -0.75)
        bars.text(0.0, len(workers) + 0.2, rest_text, va="center", color="#404040")
        title, subtitle = timeline.headings()
        figure.text(0.012, 0.945, title, fontsize=13, fontweight="bold", va="center")
        figure.text(0.012, 0.893, subtitle, fontsize=10, color="#404040", va="center")
        _draw_bars(bars, timeline, workers)
        _draw_means(means, timeline, workers)
        _add_legends(figure)
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _draw_bars(axes: Any, timeline: Timeline, workers: Ints) -> None:
    """Draw the bar of each of ``workers``, with the worker's name and tasks beside it."""
    limit = _axis_end(timeline.longest)
    axes.set_xlim(0.0, 1.02 * limit)
    # The row of each worker in the picture, -1 for a worker without a row.
    rows = np.full(len(timeline.tasks), -1)
    rows[workers] = np.arange(len(workers))
    height = min(0.8, 0.1 * len(workers) + 0.25)
    alive = np.minimum(timeline.death_time[workers], timeline.time)
    axes.add_collection(
        _boxes(np.arange(len(workers)), np.zeros(len(workers)), alive, height, _WAITING),
    )
    # A gap between tasks is left where the segment is longer than the gap.
    length = timeline.end - timeline.start
    gap = 0.0016 * limit
    end = timeline.start + np.maximum(length - gap, np.minimum(length, gap))
    for kind, look in enumerate(_LOOKS):
        segments = (rows[timeline.worker] >= 0) & (timeline.kind == kind)
        axes.add_collection(
            _boxes(
                rows[timeline.worker[segments]],
                timeline.start[segments],
                end[segments],
                height,
                look,
            ),
        )
    if timeline.round > 0:
        axes.axvline(timeline.time, color="black", linewidth=1.2)
    if timeline.round_over:
        last_row = rows[timeline.last_worker]
    else:
        last_row = -1
    if last_row >= 0:
        axes.plot(
            [timeline.time],
            [last_row - 0.5 * height],
            "v",
            color="black",
            markersize=6,
            clip_on=False,
        )
    text_style: dict[str, Any] = {"va": "center", "transform": axes.get_yaxis_transform()}
    for row, worker in enumerate(workers.tolist()):
        tasks = timeline.tasks[worker]
        if tasks:
            times = f"×{tasks:,}"
        else:
            times = "–"
        axes.text(-0.205, row, f"worker {worker:,}", **text_style)
        axes.text(-0.012, row, times, ha="right", **text_style)
        has_begun = timeline.round > 0
        if timeline.away[worker]:
            label = "away"
        elif has_begun and timeline.death_time[worker] <= timeline.time:
            label = "died"
        else:
            label = ""
        axes.text(
            0.01 * limit + has_begun * alive[row],
            row,
            label,
            va="center",
            color="#606060",
            fontsize=8,
        )


def _draw_means(axes: Any, timeline: Timeline, workers: Ints) -> None:
    """Draw the estimate and the exact mean of each of ``workers``."""
    exact = timeline.mean[workers]
    bound = timeline.is_lower_bound[workers]
    limit = _axis_end(1.1 * float(exact[np.isfinite(exact)].max(initial=0.0)))
    axes.set_xlim(0.0, limit)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.plot(exact, np.arange(len(workers)), **_EXACT)
    guess = np.minimum(timeline.estimate[workers], limit)
    for mask, marker in ((~bound, "o"), (bound, ">")):
        axes.plot(
            guess[mask],
            np.flatnonzero(mask),
            clip_on=False,
            **_ESTIMATE | {"marker": marker},
        )


def _add_legends(figure: Figure) -> None:
    layout: dict[str, Any] = {
        "frameon": False,
        "handlelength": 1.6,
        "borderpad": 0.0,
        "columnspacing": 1.4,
    }
    layout |= {"loc": "lower left"}
    segments = [Patch(**look, linewidth=0.0) for look in (*_LOOKS, _WAITING)]
    figure.legend(segments, [*KINDS, "waiting"], ncols=5, bbox_to_anchor=(0.132, 0.005), **layout)
    points = [Line2D([], [], **look) for look in (_ESTIMATE, _EXACT)]
    layout |= {"bbox_to_anchor": (0.765, 0.005), "handletextpad": 0.2}
    figure.legend(points, ["estimate", "exact mean"], ncols=2, **layout)


def _boxes(
    rows: Ints,
    start: Floats,
    end: Floats,
    height: float,
    look: dict[str, Any],
) -> PolyCollection:
    """The boxes of one look, each at a row, from a start to an end."""
    low = rows - 0.5 * height
    high = rows + 0.5 * height
    corners = np.stack(
        [np.stack([start, end, end, start], -1), np.stack([low, low, high, high], -1)],
        -1,
    )
    return PolyCollection(list(corners), linewidth=0.0, **look)


def _axis_end(longest: float) -> float:
    """The end of an axis on which a number fits.

    It is the least of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten that is at least the number.

    Example:
        >>> _axis_end(47.0), _axis_end(0.0), _axis_end(10.1)
        (50.0, 1.0, 15.0)
    """
    if not longest > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(longest))
    steps = power * np.array([1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0])
    return float(steps[np.argmax(steps >= longest)])
