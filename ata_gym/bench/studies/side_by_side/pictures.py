"""A picture of policies side by side: who works, who waits and what is not used."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ata_gym.bench.report import style
from ata_gym.bench.studies.side_by_side.play import WatchedPolicy
from ata_gym.envs.rendering.timeline import CANCELLED, DONE, LOST, Timeline
from ata_gym.scenarios import Scenario

BAR_LIMIT = 8
"""The largest number of workers that have a bar."""

WORKING: dict[str, Any] = {"facecolor": style.OKABE_ITO[0]}
WAITING: dict[str, Any] = {"facecolor": "#E3E3E3"}
UNUSED: dict[str, Any] = {
    "facecolor": "#F6C9A8",
    "edgecolor": style.OKABE_ITO[1],
    "hatch": "////",
}
_TEXT = 12.0


def draw(policies: Sequence[WatchedPolicy], scenario: Scenario, stem: Path) -> list[Path]:
    """Write the picture as PNG and SVG; give the paths.

    Args:
        policies: Policies that have played the same number of rounds, at least 1.
        scenario: The scenario that they have played.
        stem: The path without its ending.
    """
    rounds = [policy.typical() for policy in policies]
    limit = 1.02 * max(timeline.time for timeline in rounds)
    with style.figure(10.667, 1.6 + 1.1 * len(policies)) as picture:
        # places are fixed; heights are given in inches from an edge, over the height in inches
        picture.set_layout_engine("none")
        height = picture.get_figheight()
        grid = {
            "left": 0.27,
            "right": 0.77,
            "top": 1 - 0.95 / height,
            "bottom": 0.7 / height,
            "hspace": 0.28,
        }
        panels = np.atleast_1d(picture.subplots(len(policies), 1, sharex=True, gridspec_kw=grid))
        for axes, policy, timeline in zip(panels, policies, rounds, strict=True):
            axes.set_xlim(0, limit)
            draw_round(axes, timeline, BAR_LIMIT)
            _label_policy(axes, policy)
        _label_workers(panels[0], rounds[0])
        panels[-1].set_xlabel("seconds", fontsize=_TEXT - 1)
        panels[-1].tick_params(axis="x", labelbottom=True, labelsize=_TEXT - 1)
        panels[-1].xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        title = (
            f"{scenario.pool.n:,} unequal workers must deliver {scenario.budget:,} results. Who"
            " works, who waits?"
        )
        picture.text(0.012, 1 - 0.28 / height, title, fontsize=16, fontweight="bold", va="center")
        handles = [Patch(**look, linewidth=0) for look in (WORKING, WAITING, UNUSED)]
        picture.legend(
            handles,
            ["working", "waiting", "not used"],
            ncols=3,
            loc="center left",
            fontsize=_TEXT + 1,
            bbox_to_anchor=(0.263, 1 - 0.7 / height),
            handlelength=1.5,
            columnspacing=1.6,
            borderpad=0,
            borderaxespad=0,
        )
        picture.text(
            0.79,
            1 - 0.7 / height,
            f"until {scenario.budget:,} results are in",
            fontsize=_TEXT - 1,
            va="center",
        )
        settled = policies[0].settled
        picture.text(
            0.012,
            0.16 / height,
            "Simulated. A round ends at the black line. Bars: one typical round. Numbers: averages"
            f" of rounds {settled.start + 1:,} to {len(policies[0].times):,}.",
            fontsize=9.5,
            color="#505050",
            va="center",
        )
        return style.save(picture, stem)


def draw_round(axes: Axes, timeline: Timeline, limit: int) -> None:
    """Draw a bar for each of the busiest workers, and a line where the round ends.

    Args:
        axes: Axes whose limits of time are set.
        timeline: The round.
        limit: The largest number of bars.
    """
    workers = timeline.busiest(limit)
    row_by_worker = {worker: row for row, worker in enumerate(workers.tolist())}
    axes.barh(
        range(len(workers)),
        np.minimum(timeline.death_time[workers], timeline.time),
        height=0.78,
        **WAITING,
    )
    # tasks are drawn shorter by this time, so that a gap shows between them
    gap = 0.0022 * axes.get_xlim()[1]
    for kind, look in ((DONE, WORKING), (CANCELLED, UNUSED), (LOST, UNUSED)):
        tasks = [
            k
            for k in np.flatnonzero(timeline.kind == kind)
            if int(timeline.worker[k]) in row_by_worker
        ]
        length = (timeline.end - timeline.start)[tasks]
        rows = [row_by_worker[worker] for worker in timeline.worker[tasks].tolist()]
        width = np.maximum(length - gap, 0.5 * length)
        axes.barh(rows, width, left=timeline.start[tasks], height=0.78, linewidth=0, **look)
    axes.plot(
        [timeline.time] * 2,
        [-0.6, len(workers) - 0.4],
        color="black",
        linewidth=2.2,
        clip_on=False,
    )
    axes.set(ylim=(len(workers) - 0.5, -0.5), yticks=[])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", labelbottom=False, length=0)


def _label_workers(axes: Axes, timeline: Timeline) -> None:
    """Write beside the bars of one panel which workers are the fastest and the slowest."""
    # the shown workers stand in the order of the pool
    means = timeline.mean[timeline.busiest(BAR_LIMIT)]
    look: dict[str, Any] = {
        "ha": "right",
        "va": "center",
        "fontsize": _TEXT - 2,
        "color": "#505050",
    }
    for row, name in ((int(np.argmin(means)), "fastest"), (int(np.argmax(means)), "slowest")):
        axes.annotate(name, (0.0, row), (-6, 0), textcoords="offset points", **look)


def _label_policy(axes: Axes, policy: WatchedPolicy) -> None:
    """Write the policy to the left of its panel, and its averages to the right."""
    title, gloss = policy.title_and_gloss()
    time, work, share = policy.averages()
    placement: dict[str, Any] = {"transform": axes.transAxes}
    lines = 1 + title.count("\n")
    axes.text(-0.516, 0.6, title, fontsize=_TEXT + 1, fontweight="bold", va="center", **placement)
    axes.text(
        -0.516,
        0.36 - 0.13 * (lines - 1),
        gloss,
        fontsize=_TEXT - 2,
        color="#505050",
        va="top",
        **placement,
    )
    axes.text(
        1.04,
        0.66,
        f"{_short(time)} s",
        fontsize=20,
        fontweight="bold",
        va="center",
        **placement,
    )
    wasteful = share >= 0.005
    if wasteful:
        waste_text = f"{100 * share:.0f} % of it not used"
    else:
        waste_text = "all of it used"
    axes.text(
        1.04,
        0.31,
        f"{_short(work, 10)} s of work,",
        fontsize=_TEXT - 1,
        color="#303030",
        va="center",
        **placement,
    )
    look: dict[str, Any]
    if wasteful:
        look = {"color": style.OKABE_ITO[1], "fontweight": "bold"}
    else:
        look = {"color": "#303030"}
    axes.text(1.04, 0.08, waste_text, fontsize=_TEXT - 1, va="center", **look, **placement)


def _short(value: float, whole: float = 100) -> str:
    """A number with at most one decimal, and none if it is ``whole`` or more.

    Example:
        >>> _short(10.53), _short(10.53, 10), _short(7.2273), _short(1234.5), _short(0.0321)
        ('10.5', '11', '7.2', '1,234', '0.032')
    """
    if value >= whole:
        return f"{value:,.0f}"
    if value >= 1:
        return f"{value:.1f}"
    return f"{value:.2g}"
