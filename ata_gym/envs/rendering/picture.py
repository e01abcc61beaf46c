"""A round as a Gantt chart beside the estimates of the workers' mean times, drawn by matplotlib into pixels."""

from __future__ import annotations

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

from ata_gym.envs.rendering.timeline import KINDS, Timeline
from ata_gym.typing import Floats, Ints
from ata_gym.utils.colours import OKABE_ITO

MOST = 24  # workers that have a bar; the others share a line
WIDTH, HEIGHT = 960, 540  # the size of each frame in pixels; videos need even numbers
_DPI = 100
_WAITING = "#ECECEC"
_LOOKS: tuple[dict[str, Any], ...] = (
    {"facecolor": OKABE_ITO[0]},
    {"facecolor": "#F7DCA0", "edgecolor": OKABE_ITO[4], "hatch": "////"},
    {"facecolor": "#F5CDB5", "edgecolor": OKABE_ITO[1], "hatch": "xxxx"},
    {"facecolor": OKABE_ITO[5]},
)
"""How segments of each kind look, in the order of ``KINDS``."""
_ESTIMATE: dict[str, Any] = {"marker": "o", "color": OKABE_ITO[1], "markersize": 5}
_EXACT: dict[str, Any] = {"marker": "|", "color": "black", "markersize": 11, "markeredgewidth": 1.6}
_SETTINGS: dict[str, Any] = {"font.size": 9.0, "hatch.linewidth": 0.8, "axes.linewidth": 0.6, "axes.axisbelow": True}


class Picture:
    """A figure that is drawn for each frame; the parts that seldom change are kept as pixels."""

    def __init__(self) -> None:
        with matplotlib.style.context(_SETTINGS, after_reset=True):
            self._figure = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI, facecolor="white")
            self._canvas: Any = FigureCanvasAgg(self._figure)  # its drawing has no types
            self._bars = self._figure.add_axes((0.135, 0.15, 0.6, 0.69))
            self._means = self._figure.add_axes((0.77, 0.15, 0.215, 0.69), sharey=self._bars)
            self._make_background()
            self._make_artists()
        self._scale: tuple[Any, ...] = ()  # what the kept pixels show
        self._pixels: Any = None

    def draw(self, timeline: Timeline) -> NDArray[np.uint8]:
        """The pixels of a round, shape (540, 960, 3)."""
        shown = timeline.shown(MOST)
        rest = timeline.about_rest(shown)
        exact = timeline.mean[shown]
        limits = _nice(timeline.longest), _nice(1.1 * float(exact[np.isfinite(exact)].max(initial=0.0)))
        scale = *limits, bool(rest), shown.tolist()
        with matplotlib.rc_context({"hatch.linewidth": _SETTINGS["hatch.linewidth"]}):
            if scale != self._scale:
                self._scale, self._pixels = scale, self._background(*limits, shown, bool(rest))
            self._canvas.restore_region(self._pixels)
            for text, heading in zip((self._title, self._subtitle), timeline.headings(), strict=True):
                text.set_text(heading)
            self._rest.set_text(rest)
            self._place_bars(timeline, shown, limits[0])
            self._exact.set_data(exact, np.arange(len(shown)))
            guess, bound = np.minimum(timeline.estimate[shown], limits[1]), timeline.at_least[shown]
            for points, where in ((self._guess, ~bound), (self._bound, bound)):
                points.set_data(guess[where], np.flatnonzero(where))
            for artist in self._moving:
                self._figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[:, :, :3].copy()

    def _make_background(self) -> None:
        """Make the axes, the names of the workers and the legend."""
        figure, bars, means = self._figure, self._bars, self._means
        for axes in (bars, means):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", left=False, labelleft=False)
            axes.grid(axis="x", color="#E4E4E4", linewidth=0.6)
        bars.set_xlabel("time since the round's start")
        means.set_xlabel("mean task time")
        means.xaxis.set_major_locator(MaxNLocator(4))
        beside: dict[str, Any] = {"va": "center", "transform": bars.get_yaxis_transform()}
        self._names = [bars.text(-0.205, row, "", **beside) for row in range(MOST)]
        self._counts = [bars.text(-0.012, row, "", ha="right", **beside) for row in range(MOST)]
        handles = [*(Patch(**look, linewidth=0.0) for look in _LOOKS), Patch(facecolor=_WAITING)]
        legend: dict[str, Any] = {
            "frameon": False,
            "handlelength": 1.6,
            "borderpad": 0.0,
            "columnspacing": 1.4,
            "loc": "lower left",
        }
        figure.legend(handles, [*KINDS, "waiting"], ncols=5, bbox_to_anchor=(0.132, 0.005), **legend)
        points = [Line2D([], [], linestyle="", **look) for look in (_ESTIMATE, _EXACT)]
        where: dict[str, Any] = {"bbox_to_anchor": (0.765, 0.005), "handletextpad": 0.2}
        figure.legend(points, ["estimate", "exact mean"], ncols=2, **legend | where)

    def _make_artists(self) -> None:
        """Make the artists that differ between frames, in the order in which they are drawn."""
        figure, bars, means = self._figure, self._bars, self._means
        self._title = figure.text(0.012, 0.945, "", fontsize=13, fontweight="bold", va="center")
        self._subtitle = figure.text(0.012, 0.893, "", fontsize=10, color="#404040", va="center")
        self._waiting, *self._kinds = (
            PolyCollection([], linewidth=0.0, **look) for look in ({"facecolor": _WAITING}, *_LOOKS)
        )
        for collection in (self._waiting, *self._kinds):
            bars.add_collection(collection)
        self._end = bars.axvline(0.0, color="black", linewidth=1.2)
        (self._last,) = bars.plot([], [], "v", color="black", markersize=6, clip_on=False)
        self._notes = [bars.text(0.0, row, "", va="center", color="#606060", fontsize=8) for row in range(MOST)]
        self._rest = bars.text(0.0, 0.0, "", va="center", color="#404040")
        (self._exact,) = means.plot([], [], linestyle="", **_EXACT)
        self._guess, self._bound = (
            means.plot([], [], linestyle="", clip_on=False, **{**_ESTIMATE, "marker": marker})[0]
            for marker in (_ESTIMATE["marker"], ">")
        )
        moving = (self._waiting, *self._kinds, self._end, self._last, *self._counts, *self._notes, self._rest)
        self._moving = (self._title, self._subtitle, *moving, self._exact, self._guess, self._bound)
        for artist in self._moving:
            artist.set_animated(True)

    def _background(self, limit: float, longest_mean: float, shown: Ints, rest: bool) -> Any:
        """The pixels of what does not change while the axes and the workers that are shown stay."""
        self._bars.set_xlim(0.0, 1.02 * limit)
        self._bars.set_ylim(max(len(shown) + 1.2 * rest, 3) - 0.4, -0.75)
        self._means.set_xlim(0.0, longest_mean)
        for row, name in enumerate(self._names):
            name.set_text(f"worker {shown[row]:,}" if row < len(shown) else "")
        self._rest.set_position((0.0, len(shown) + 0.2))
        with matplotlib.style.context(_SETTINGS, after_reset=True):
            self._canvas.draw()
        return self._canvas.copy_from_bbox(self._figure.bbox)

    def _place_bars(self, timeline: Timeline, shown: Ints, limit: float) -> None:
        """Put the bars, the round's end and the texts beside the bars in their places."""
        rows = np.full(len(timeline.tasks), -1)
        rows[shown] = np.arange(len(shown))
        height = min(0.8, 0.1 * len(shown) + 0.25)
        alive = np.minimum(timeline.dies[shown], timeline.time)
        self._waiting.set_verts(_boxes(np.arange(len(shown)), np.zeros(len(shown)), alive, height))
        length, gap = timeline.end - timeline.start, 0.0016 * limit  # between tasks
        end = timeline.start + np.maximum(length - gap, np.minimum(length, gap))
        for kind, collection in enumerate(self._kinds):
            which = (rows[timeline.worker] >= 0) & (timeline.kind == kind)
            collection.set_verts(_boxes(rows[timeline.worker[which]], timeline.start[which], end[which], height))
        self._end.set_xdata([timeline.time, timeline.time])
        self._end.set_visible(timeline.round > 0)
        last = rows[timeline.last] if timeline.over else -1
        self._last.set_data(*(([timeline.time], [last - 0.5 * height]) if last >= 0 else ([], [])))
        for row, worker in enumerate(shown.tolist()):
            tasks = timeline.tasks[worker]
            self._counts[row].set_text(f"×{tasks:,}" if tasks else "–")
            self._notes[row].set_text(_note(timeline, worker))
            self._notes[row].set_x(0.01 * limit + (alive[row] if timeline.round else 0.0))
        for artist in (*self._counts[len(shown) :], *self._notes[len(shown) :]):
            artist.set_text("")


def _note(timeline: Timeline, worker: int) -> str:
    if timeline.away[worker]:
        return "away"
    return "died" if timeline.round and timeline.dies[worker] <= timeline.time else ""


def _boxes(rows: Ints, start: Floats, end: Floats, height: float) -> Any:
    """The corners of boxes, shape (k, 4, 2)."""
    low, high = rows - 0.5 * height, rows + 0.5 * height
    return np.stack([np.stack([start, end, end, start], -1), np.stack([low, low, high, high], -1)], -1)


def _nice(longest: float) -> float:
    """The end of an axis: the least of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten that has room for a number.

    >>> _nice(47.0), _nice(0.0), _nice(10.1)
    (50.0, 1.0, 15.0)
    """
    if not longest > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(longest))
    steps = power * np.array([1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0])
    return float(steps[np.argmax(steps >= longest)])
