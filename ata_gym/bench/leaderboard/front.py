"""The picture of the leaderboard: runtime against worker time, a point for each policy, and what can be reached."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from ata_gym.bench.leaderboard.ranking import RUNTIME, WORKER_TIME
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import LEARNER, ORACLE

LOOKS = {
    "TaskAllocation": (style.OKABE_ITO[0], "o", "allocation"),
    "TaskRace": (style.OKABE_ITO[1], "^", "race"),
    "TaskDispatch": (style.OKABE_ITO[2], "s", "dispatch"),
}
"""Colour, marker and name of each env."""

_SIZE = 7.5  # the size of the labels, in points
_WIDTH, _CHARACTER = 9.6, 0.075  # the widths of the picture and of a character of a label, in inches
_FEW = 20  # up to this number, all policies have their names beside them

_PUBLISHED = ("uta", "gta", "ofta", "ata", "ata-icml", "ata-empirical", "ata-empirical-icml")
"""Policies that readers know; they have their names beside them, too."""

Label = tuple[str, str, float, float]  # Text, colour and the point that it belongs to


def draw(points: pl.DataFrame, title: str, stem: Path) -> list[Path]:
    """Draw runtime against worker time, both over OFTA's, as PNG and SVG; points as of ``ranking.by_scenario``.

    A policy that looks at the price has a point for each, joined by a line; so has an oracle, whose line is a front.
    Learners are filled, the others hollow. Published policies, and learners that no other learner beats in both, have
    their names beside them; the rest have numbers, which are listed at the right, or names where they are few.
    """
    groups = sorted(
        (list(LOOKS).index(str(env)), group[RUNTIME].min(), str(policy), str(kind), group)
        for (env, policy, kind), group in points.group_by("env", "policy", "kind", maintain_order=True)
    )
    everybody = set(points["policy"].unique())
    best = everybody if len(everybody) <= _FEW else unbeaten(points) | set(_PUBLISHED)
    with style.figure(_WIDTH, max(6.2, 0.14 * (len(groups) + 6))) as picture:
        list_width = _CHARACTER * max((len(policy) + 4 for *_, policy, _, _ in groups if policy not in best), default=0)
        axes, margin = picture.subplots(1, 2, width_ratios=[_WIDTH - list_width, max(list_width, 0.1)])
        names, numbers, listed = [], [], []
        for place, _, policy, kind, group in groups:
            colour, marker, env = list(LOOKS.values())[place]
            mine = group.unique([RUNTIME, WORKER_TIME], maintain_order=True).sort("price")
            x, y = (mine[quantity].to_numpy() for quantity in (WORKER_TIME, RUNTIME))
            front = kind == ORACLE and len(x) > 1
            axes.plot(
                x, y, color=colour, marker=marker, markersize=3.5 if len(x) > 1 else 5.5,
                markerfacecolor=colour if kind == LEARNER else "white",
                linewidth=1.6 if front else 0.6, linestyle="solid" if front else (0, (2, 2)), alpha=0.9,
                zorder=2 if front else 3,
            )  # fmt: skip
            at = x[len(x) // 2], y[len(x) // 2]
            if policy in best:
                names.append((policy, colour, *at))
            else:
                listed.append((env, colour, policy))
                numbers.append((str(len(listed)), "#333333", *at))
        _scales(axes)
        axes.set(
            xlabel="work spent: worker time over that of OFTA, which knows the mean times    (further left is cheaper)",
            ylabel="time needed: runtime over that of OFTA    (lower is faster)",
            title=f"Time against work, a point for each policy\n{title}",
        )
        axes.annotate(
            "better", (0.012, 0.015), (0.075, 0.085), xycoords="axes fraction", textcoords="axes fraction",
            fontsize=10, color="#777777", arrowprops={"arrowstyle": "-|>", "color": "#777777", "linewidth": 1.2},
        )  # fmt: skip
        _list(margin, listed)
        handles = _legend(points)
        picture.legend(handles=handles, loc="outside lower center", ncols=6, handlelength=1.2, columnspacing=1.2)
        picture.draw_without_rendering()  # the layout, before labels are placed in it
        picture.set_layout_engine("none")
        near = 5.0 * picture.dpi / 72
        place_labels(picture, axes, [*_joined(axes, names, near, ", "), *_joined(axes, numbers, near, " ")])
        return style.save(picture, stem)


def unbeaten(points: pl.DataFrame) -> set[str]:
    """The learners with a point that no other learner beats in runtime and in worker time."""
    learners = points.filter(pl.col("kind") == LEARNER)
    x, y = (learners[quantity].to_numpy() for quantity in (WORKER_TIME, RUNTIME))
    beaten = ((x <= x[:, None]) & (y <= y[:, None]) & ((x < x[:, None]) | (y < y[:, None]))).any(axis=1)
    return set(learners["policy"].to_numpy()[~beaten])


def _list(margin: Axes, listed: Sequence[tuple[str, str, str]]) -> None:
    margin.set_axis_off()
    lines: list[tuple[str, str, str]] = []
    for number, (env, colour, policy) in enumerate(listed, 1):
        if number == 1 or env != listed[number - 2][0]:
            lines += [("", colour, "normal")] * bool(lines) + [(env, colour, "bold")]
        lines.append((f"{number:>2}  {policy}", colour, "normal"))
    places = 1 - np.arange(len(lines)) / max(len(lines), 40)
    for y, (text, colour, weight) in zip(places, lines, strict=True):
        margin.text(0, y, text, color=colour, weight=weight, size=_SIZE, va="top", transform=margin.transAxes)


def _joined(axes: Axes, labels: Sequence[Label], near: float, between: str) -> list[Label]:
    joined: list[Label] = []
    for label in labels:
        here, *there = axes.transData.transform([one[2:] for one in (label, *joined)])
        k = next((k for k, other in enumerate(there) if np.hypot(*(other - here)) <= near), None)
        if k is None:
            joined.append(label)
        else:
            joined[k] = (f"{joined[k][0]}{between}{label[0]}", *joined[k][1:])
    return joined


def _scales(axes: Axes) -> None:
    axes.margins(0.09)
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis)


def _legend(points: pl.DataFrame) -> list[Line2D]:
    envs = points["env"].unique().to_list()
    entries = [(name, marker, colour, colour) for env, (colour, marker, name) in LOOKS.items() if env in envs]
    entries.append((LEARNER, "o", "#555555", "#555555"))
    if (points["kind"] != LEARNER).any():
        entries.append(("oracle or baseline", "o", "#555555", "white"))
    marks = [
        Line2D([], [], label=label, marker=marker, color=colour, markerfacecolor=inside, linestyle="none")
        for label, marker, colour, inside in entries
    ]
    return [*marks, Line2D([], [], label="one policy, at several prices of work", color="#555555", linewidth=1.0)]


def place_labels(picture: Figure, axes: Axes, labels: Sequence[Label]) -> list[Annotation]:
    """Put each label in the nearest free place around its point: on no other label, point or line, inside the axes."""
    renderer = picture.canvas.get_renderer()  # type: ignore[attr-defined]
    scale = picture.dpi / 72
    taken = [
        Bbox.from_bounds(px - 4 * scale, py - 4 * scale, 8 * scale, 8 * scale)
        for line in axes.get_lines()
        for px, py in _along(axes.transData.transform(np.asarray(line.get_xydata())), 6 * scale)
    ]
    room = axes.get_window_extent(renderer)
    placed = []
    for text, colour, x, y in sorted(labels, key=lambda label: label[3]):
        note = axes.annotate(
            text, (x, y), (0, 0), textcoords="offset points", fontsize=_SIZE, color=colour, ha="center", va="center",
            bbox={"pad": 1.0, "facecolor": "none", "edgecolor": "none"},
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.4, "shrinkA": 0.0, "shrinkB": 2.0},
        )  # fmt: skip
        size = Text.get_window_extent(note, renderer)  # without its line
        px, py = axes.transData.transform((x, y))
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
