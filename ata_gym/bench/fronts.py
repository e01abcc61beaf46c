"""The picture of the leaderboard: runtime against worker time, a point for each policy, and what can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from ata_gym.bench import style
from ata_gym.bench.leaderboard import LEARNER, ORACLE
from ata_gym.bench.ranking import RUNTIME, WORKER_TIME

LOOKS = {
    "TaskAllocation": (style.OKABE_ITO[0], "o", "allocation"),
    "TaskRace": (style.OKABE_ITO[1], "^", "race"),
    "TaskDispatch": (style.OKABE_ITO[2], "s", "dispatch"),
}
"""Colour, marker and name of each env."""

_SIZE = 7.0
"""Of the labels, in points."""


def draw(points: pl.DataFrame, title: str, stem: Path) -> list[Path]:
    """Draw runtime against worker time, both over OFTA's, as PNG and SVG.

    A policy that looks at the price has a point for each, joined by a line; so has an oracle, whose line is a front.
    Learners are filled, the others hollow.

    Parameters
    ----------
    points
        As ``ranking.by_world`` gives it, of one world.
    title
        Above the picture.
    stem
        Where it goes, without the ending.
    """
    with style.figure(8.0, 6.2) as picture:
        axes = picture.subplots()
        labelled = []
        for (env, policy, kind), group in points.group_by("env", "policy", "kind", maintain_order=True):
            colour, marker, _ = LOOKS[str(env)]
            mine = group.unique([RUNTIME, WORKER_TIME], maintain_order=True).sort("price")
            x, y = (mine[quantity].to_numpy() for quantity in (WORKER_TIME, RUNTIME))
            front = kind == ORACLE and len(x) > 1
            axes.plot(
                x, y, color=colour, marker=marker, markersize=3.5 if len(x) > 1 else 5.5,
                markerfacecolor=colour if kind == LEARNER else "white",
                linewidth=1.6 if front else 0.6, linestyle="solid" if front else (0, (2, 2)), alpha=0.9,
                zorder=2 if front else 3,
            )  # fmt: skip
            labelled.append((str(policy), colour, len(x) // 2, x, y))
        _scales(axes)
        axes.set(xlabel="worker time / OFTA", ylabel="runtime / OFTA", title=title)
        picture.legend(
            handles=_legend(points), loc="outside lower center", ncols=6, handlelength=1.2, columnspacing=1.2
        )
        picture.draw_without_rendering()  # the layout, before labels are placed in it
        picture.set_layout_engine("none")
        place_labels(picture, axes, labelled)
        return style.save(picture, stem)


def _scales(axes: Axes) -> None:
    axes.set(xscale="log", yscale="log")
    axes.margins(0.09)
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        subs = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0) if high < 20 * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(NullFormatter())


def _legend(points: pl.DataFrame) -> list[Line2D]:
    envs = points["env"].unique().to_list()
    kinds = [LEARNER, *(["oracle or baseline"] if (points["kind"] != LEARNER).any() else [])]
    of_envs = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", label=name)
        for env, (colour, marker, name) in LOOKS.items()
        if env in envs
    ]
    of_kinds = [
        Line2D([], [], color="#555555", marker="o", linestyle="none", label=kind,
               markerfacecolor="#555555" if kind == LEARNER else "white")
        for kind in kinds
    ]  # fmt: skip
    return [*of_envs, *of_kinds]


Labelled = tuple[str, str, int, NDArray[np.float64], NDArray[np.float64]]
"""Text, colour, which of its points is labelled, and the points."""


def place_labels(picture: Figure, axes: Axes, labelled: Sequence[Labelled]) -> list[Annotation]:
    """Put each label in the nearest free place around its point: on no other label, point or line, inside the axes."""
    renderer = picture.canvas.get_renderer()  # type: ignore[attr-defined]
    scale = picture.dpi / 72
    taken = [
        Bbox.from_bounds(px - 3 * scale, py - 3 * scale, 6 * scale, 6 * scale)
        for _, _, _, x, y in labelled
        for px, py in _along(axes.transData.transform(np.column_stack([x, y])), 6 * scale)
    ]
    room = axes.get_window_extent(renderer)
    placed = []
    for text, colour, which, x, y in sorted(labelled, key=lambda label: label[4][label[2]]):
        note = axes.annotate(
            text, (x[which], y[which]), (0, 0), textcoords="offset points", fontsize=_SIZE, color=colour,
            ha="center", va="center", arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.4,
                                                  "shrinkA": 0.0, "shrinkB": 2.0},
        )  # fmt: skip
        size = Text.get_window_extent(note, renderer)  # without its line
        px, py = axes.transData.transform((x[which], y[which]))
        box = _free(px, py, size.width + 2 * scale, size.height + 2 * scale, scale, taken, room)
        note.set_position((((box.x0 + box.x1) / 2 - px) / scale, ((box.y0 + box.y1) / 2 - py) / scale))
        taken.append(box)
        placed.append(note)
    return placed


def _along(corners: NDArray[np.float64], apart: float) -> NDArray[np.float64]:
    """Points on a line with these corners, shape (corners, 2), no more than ``apart`` from each other."""
    length = np.concatenate([[0.0], np.hypot(*np.diff(corners, axis=0).T).cumsum()])
    places = np.union1d(length, np.arange(0.0, length[-1], apart))
    return np.column_stack([np.interp(places, length, coordinate) for coordinate in corners.T])


def _free(px: float, py: float, width: float, height: float, scale: float, taken: Sequence[Bbox], room: Bbox) -> Bbox:
    """The free box nearest to a point; the last one tried, far away, if there is none."""
    directions = [np.pi * k / 8 for k in (0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 5, 11, 13)]
    box = Bbox.null()
    for away, angle in product(range(4, 300, 4), directions):
        cx = px + np.cos(angle) * (away * scale + width / 2)
        cy = py + np.sin(angle) * (away * scale + height / 2)
        box = Bbox.from_bounds(cx - width / 2, cy - height / 2, width, height)
        inside = room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1
        if inside and not any(box.overlaps(other) for other in taken):
            break
    return box
