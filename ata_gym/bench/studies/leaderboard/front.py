"""Runtime against worker time, a point for each policy: the picture, and the page's chart."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from ata_gym.bench.report import charts, style
from ata_gym.bench.report.page.sections import Chart, View
from ata_gym.bench.role import LEARNER, ORACLE
from ata_gym.bench.studies.leaderboard.ranking import RUNTIME, WORKER_TIME, parts

LOOKS = {
    "TaskAllocation": (style.OKABE_ITO[0], "o", "allocation"),
    "TaskRace": (style.OKABE_ITO[1], "^", "race"),
    "TaskDispatch": (style.OKABE_ITO[2], "s", "dispatch"),
}
"""Colour, marker and name of each env."""

_LABEL_SIZE = 7.5  # the size of the labels, in points
_PICTURE_WIDTH = 9.6  # the width of the picture, in inches
_CHARACTER_WIDTH = 0.075  # the width of a character of a label, in inches
_FEW_POLICIES = 20  # up to this number, all policies have their names beside them

_PUBLISHED = ("uta", "gta", "ofta", "ata", "ata-icml", "ata-empirical", "ata-empirical-icml")
"""Policies that readers know; they have their names beside them, too."""

Label = tuple[str, str, float, float]
"""A text, its colour, and the point that it belongs to, in the units of the axes."""


_AXES = {"x": WORKER_TIME, "y": RUNTIME}
"""The quantity of each axis of the chart."""


def chart(
    by_scenario: pl.DataFrame,
    by_price: pl.DataFrame,
    places: Mapping[str, int],
    seeds: int,
) -> Chart:
    """Make the chart of runtime against worker time, in each scenario and over all.

    Args:
        by_scenario: What ``ranking.by_scenario`` returns.
        by_price: What ``ranking.overall`` returns for each price.
        places: The place of each policy in the list of the page.
        seeds: The number of seeds.
    """
    everywhere = by_price.with_columns(scenario=pl.lit("all scenarios"))
    views = []
    frame = pl.concat([everywhere, by_scenario], how="diagonal")
    for (scenario, price), cells in parts(frame, "scenario", "price"):
        points = []
        for row in cells.drop_nulls([*_AXES.values()]).to_dicts():
            point: dict[str, Any] = {"p": places[row["policy"]]}
            for axis, name in _AXES.items():
                point[axis] = [row[f"{name}{suffix}"] for suffix in ("", "_low", "_high")]
            points.append(point)
        views.append(View({"points": points}, {"scenario": scenario, "price": f"{price:g}"}))
    front = charts.front_of(views, " / OFTA's", seeds)
    return front._replace(settings={**front.settings, "half": False})


def draw(points: pl.DataFrame, scenario: str, heading: str) -> style.Picture:
    """Draw runtime against worker time, both divided by OFTA's.

    A policy whose decisions depend on the price has a point for each price, joined by a line; the
    line of an oracle is a front, which shows what can be reached. Learners are filled, the others
    hollow. Published policies, and learners that no other learner beats in both, have their names
    beside them; the rest have numbers, which are listed at the right. Where there are few policies,
    all have their names.

    Args:
        points: What ``ranking.by_scenario`` returns for one scenario.
        scenario: The name of the scenario.
        heading: The line above the picture.
    """
    groups = sorted(
        (list(LOOKS).index(str(env)), group[RUNTIME].min(), str(policy), str(kind), group)
        for (env, policy, kind), group in points.group_by(
            ["env", "policy", "kind"],
            maintain_order=True,
        )
    )
    policies = set(points["policy"].unique())
    if len(policies) <= _FEW_POLICIES:
        named_policies = policies
    else:
        named_policies = unbeaten(points) | set(_PUBLISHED)
    with style.figure(_PICTURE_WIDTH, max(6.2, 0.14 * (len(groups) + 6))) as picture:
        lengths = [len(policy) + 4 for *_, policy, _, _ in groups if policy not in named_policies]
        list_width = _CHARACTER_WIDTH * max(lengths, default=0)
        widths = [_PICTURE_WIDTH - list_width, max(list_width, 0.1)]
        axes, margin = picture.subplots(1, 2, width_ratios=widths)
        named_labels = []
        number_labels = []
        listed = []
        for env_index, _, policy, kind, group in groups:
            colour, marker, env = list(LOOKS.values())[env_index]
            point = _draw_policy(axes, group, kind, colour, marker)
            if policy in named_policies:
                named_labels.append((policy, colour, *point))
            else:
                listed.append((env, colour, policy))
                number_labels.append((str(len(listed)), "#333333", *point))
        _describe(axes, f"Time against work in {scenario}, a point for each policy")
        _list(margin, listed)
        picture.legend(
            handles=_legend(points),
            loc="outside lower center",
            ncols=6,
            handlelength=1.2,
            columnspacing=1.2,
        )
        # The layout must stand before labels are placed in it, and ``style.save`` writes the same
        # heading.
        style.head(picture, heading)
        picture.draw_without_rendering()
        picture.set_layout_engine("none")
        distance = 5.0 * picture.dpi / 72
        labels = [
            *_joined(axes, named_labels, distance, ", "),
            *_joined(axes, number_labels, distance, " "),
        ]
        place_labels(picture, axes, labels)
    return picture


def _draw_policy(
    axes: Axes,
    group: pl.DataFrame,
    kind: str,
    colour: str,
    marker: str,
) -> tuple[float, float]:
    """Draw the points of one policy, in the order of prices; return the one in the middle."""
    rows = group.unique([RUNTIME, WORKER_TIME], maintain_order=True).sort("price")
    x, y = (rows[quantity].to_numpy() for quantity in (WORKER_TIME, RUNTIME))
    if kind == ORACLE and len(x) > 1:
        line: dict[str, Any] = {"linewidth": 1.6, "linestyle": "solid", "zorder": 2}
    else:
        line = {"linewidth": 0.6, "linestyle": (0, (2, 2)), "zorder": 3}
    if kind == LEARNER:
        filling = colour
    else:
        filling = "white"
    if len(x) > 1:
        size = 3.5
    else:
        size = 5.5
    axes.plot(
        x,
        y,
        color=colour,
        marker=marker,
        markersize=size,
        markerfacecolor=filling,
        alpha=0.9,
        **line,
    )
    return x[len(x) // 2], y[len(x) // 2]


def _describe(axes: Axes, title: str) -> None:
    """Set the scales and titles of the axes, and an arrow to the better corner."""
    axes.margins(0.09)
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis)
    axes.set(
        xlabel=(
            "work spent: worker time over OFTA's, which knows the mean times    (further"
            " left is cheaper)"
        ),
        ylabel="time needed: runtime over OFTA's    (lower is faster)",
        title=title,
    )
    axes.annotate(
        "better",
        (0.012, 0.015),
        (0.075, 0.085),
        xycoords="axes fraction",
        textcoords="axes fraction",
        fontsize="medium",
        color="#777777",
        arrowprops={"arrowstyle": "-|>", "color": "#777777", "linewidth": 1.2},
    )


def unbeaten(points: pl.DataFrame) -> set[str]:
    """Return the learners with a point that no other learner beats in runtime and worker time."""
    learners = points.filter(pl.col("kind") == LEARNER)
    x, y = (learners[quantity].to_numpy() for quantity in (WORKER_TIME, RUNTIME))
    # Entry (i, j): point j is at least as good as point i in both, and better in one.
    as_good = (x <= x[:, None]) & (y <= y[:, None])
    better = (x < x[:, None]) | (y < y[:, None])
    beaten = (as_good & better).any(axis=1)
    return set(learners["policy"].to_numpy()[~beaten])


def _list(margin: Axes, listed: Sequence[tuple[str, str, str]]) -> None:
    """Write the numbered policies into the margin, under the names of their envs.

    ``listed`` has the env, the colour and the name of each, in the order of their numbers.
    """
    margin.set_axis_off()
    lines: list[tuple[str, str, str]] = []
    for number, (env, colour, policy) in enumerate(listed, 1):
        # A new env begins with its name, after an empty line.
        if number == 1 or env != listed[number - 2][0]:
            if lines:
                lines.append(("", colour, "normal"))
            lines.append((env, colour, "bold"))
        lines.append((f"{number:>2}  {policy}", colour, "normal"))
    places = 1 - np.arange(len(lines)) / max(len(lines), 40)
    for y, (text, colour, weight) in zip(places, lines, strict=True):
        look: dict[str, Any] = {"color": colour, "weight": weight, "size": _LABEL_SIZE}
        margin.text(0, y, text, va="top", transform=margin.transAxes, **look)


def _joined(axes: Axes, labels: Sequence[Label], distance: float, separator: str) -> list[Label]:
    """Join the labels of points that are at most ``distance`` pixels from each other."""
    joined: list[Label] = []
    for label in labels:
        point, *joined_points = axes.transData.transform([item[2:] for item in (label, *joined)])
        distances = [np.hypot(*(joined_point - point)) for joined_point in joined_points]
        near = [k for k, far in enumerate(distances) if far <= distance]
        if near:
            text, colour, x, y = joined[near[0]]
            joined[near[0]] = (f"{text}{separator}{label[0]}", colour, x, y)
        else:
            joined.append(label)
    return joined


def _legend(points: pl.DataFrame) -> list[Line2D]:
    """Return the entries of the legend: the envs and kinds of policies that are drawn."""
    envs = points["env"].unique().to_list()
    # Of each entry: its name, marker and colour, and the colour inside.
    entries = [
        (name, marker, colour, colour)
        for env, (colour, marker, name) in LOOKS.items()
        if env in envs
    ]
    entries.append((LEARNER, "o", "#555555", "#555555"))
    if (points["kind"] != LEARNER).any():
        entries.append(("oracle or baseline", "o", "#555555", "white"))
    marks = [
        Line2D(
            [],
            [],
            label=label,
            marker=marker,
            color=colour,
            markerfacecolor=inner_colour,
            linestyle="none",
        )
        for label, marker, colour, inner_colour in entries
    ]
    several_label = "one policy, at several prices of work"
    return [*marks, Line2D([], [], label=several_label, color="#555555", linewidth=1.0)]


def place_labels(picture: Figure, axes: Axes, labels: Sequence[Label]) -> list[Annotation]:
    """Put each label in the nearest free place around its point.

    The place is inside the axes, and on no other label, point or line. The layout of the picture
    must be done.

    Returns:
        The labels, each with a thin line to its point.
    """
    renderer = picture.canvas.get_renderer()  # type: ignore[attr-defined]
    # Places are in pixels: this is how many are in a point.
    scale = picture.dpi / 72
    # Lines are covered by boxes of 8 points, 6 points apart.
    side = 8 * scale
    taken_boxes = []
    for line in axes.get_lines():
        corners = axes.transData.transform(np.asarray(line.get_xydata()))
        for px, py in _along(corners, 6 * scale):
            taken_boxes.append(Bbox.from_bounds(px - side / 2, py - side / 2, side, side))
    axes_box = axes.get_window_extent(renderer)
    annotations = []
    for text, colour, x, y in sorted(labels, key=lambda label: label[3]):
        annotation = axes.annotate(
            text,
            (x, y),
            (0, 0),
            textcoords="offset points",
            fontsize=_LABEL_SIZE,
            color=colour,
            ha="center",
            va="center",
            bbox={"pad": 1.0, "facecolor": "none", "edgecolor": "none"},
            arrowprops={
                "arrowstyle": "-",
                "color": "#999999",
                "linewidth": 0.4,
                "shrinkA": 0.0,
                "shrinkB": 2.0,
            },
        )
        # Of the text, without the line to its point.
        size = Text.get_window_extent(annotation, renderer)
        px, py = axes.transData.transform((x, y))
        box = _free(
            px, py, size.width + 2 * scale, size.height + 2 * scale, scale, taken_boxes, axes_box
        )
        annotation.set_position(
            (((box.x0 + box.x1) / 2 - px) / scale, ((box.y0 + box.y1) / 2 - py) / scale),
        )
        taken_boxes.append(box)
        annotations.append(annotation)
    return annotations


def _along(corners: NDArray[np.float64], spacing: float) -> NDArray[np.float64]:
    """Return points on a line, no more than ``spacing`` from each other, its corners among them.

    Corners and points have the shape (number, 2).
    """
    parts = np.hypot(*np.diff(corners, axis=0).T)
    length = np.concatenate([[0.0], parts.cumsum()])
    positions = np.union1d(length, np.arange(0.0, length[-1], spacing))
    return np.column_stack([np.interp(positions, length, coordinate) for coordinate in corners.T])


def _free(
    px: float,
    py: float,
    width: float,
    height: float,
    scale: float,
    taken_boxes: Sequence[Bbox],
    axes_box: Bbox,
) -> Bbox:
    """Return the nearest box around a point that is inside ``axes_box`` and overlaps no other.

    Where there is none, it is the last one that was tried. All lengths are in pixels.
    """
    # First right, left, above and below, then the directions between them.
    directions = [np.pi * k / 8 for k in (0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 5, 11, 13)]
    box = Bbox.null()
    for distance, angle in product(range(4, 300, 4), directions):
        cx = px + np.cos(angle) * (distance * scale + width / 2)
        cy = py + np.sin(angle) * (distance * scale + height / 2)
        box = Bbox.from_bounds(cx - width / 2, cy - height / 2, width, height)
        inside = (
            axes_box.x0 <= box.x0
            and box.x1 <= axes_box.x1
            and axes_box.y0 <= box.y0
            and box.y1 <= axes_box.y1
        )
        if inside and not any(box.overlaps(taken_box) for taken_box in taken_boxes):
            break
    return box
