"""A picture of policies side by side: who works, who waits and what is thrown away."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ata_gym.bench.report import style
from ata_gym.bench.side_by_side.play import Player
from ata_gym.envs.rendering.timeline import CANCELLED, DONE, LOST, Timeline
from ata_gym.scenarios import Scenario

MOST = 8  # workers with a bar of their own
WORKING: dict[str, Any] = {"facecolor": style.OKABE_ITO[0]}
WAITING: dict[str, Any] = {"facecolor": "#E3E3E3"}
THROWN_AWAY: dict[str, Any] = {"facecolor": "#F6C9A8", "edgecolor": style.OKABE_ITO[1], "hatch": "////"}
_TEXT = 12.0


def draw(players: Sequence[Player], scenario: Scenario, stem: Path) -> list[Path]:
    """Write the picture as PNG and SVG; give the paths. The players have played the same number of rounds, not 0."""
    rounds = [player.typical() for player in players]
    limit = 1.02 * max(played.time for played in rounds)
    with style.figure(10.667, 1.6 + 1.1 * len(players)) as made:
        made.set_layout_engine("none")
        high = made.get_figheight()
        grid = {"left": 0.27, "right": 0.77, "top": 1 - 0.95 / high, "bottom": 0.7 / high, "hspace": 0.28}
        panels = np.atleast_1d(made.subplots(len(players), 1, sharex=True, gridspec_kw=grid))
        for axes, player, played in zip(panels, players, rounds, strict=True):
            axes.set_xlim(0, limit)
            draw_round(axes, played, MOST)
            _tell(axes, player)
        _label_workers(panels[0], rounds[0])
        panels[-1].set_xlabel("seconds", fontsize=_TEXT - 1)
        panels[-1].tick_params(axis="x", labelbottom=True, labelsize=_TEXT - 1)
        panels[-1].xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        title = f"{scenario.pool.n:,} unequal workers must deliver {scenario.budget:,} results. Who works, who waits?"
        made.text(0.012, 1 - 0.28 / high, title, fontsize=16, fontweight="bold", va="center")
        handles = [Patch(**look, linewidth=0) for look in (WORKING, WAITING, THROWN_AWAY)]
        made.legend(
            handles, ["working", "waiting", "thrown away"], ncols=3, loc="center left", fontsize=_TEXT + 1,
            bbox_to_anchor=(0.263, 1 - 0.7 / high), handlelength=1.5, columnspacing=1.6, borderpad=0, borderaxespad=0,
        )  # fmt: skip
        made.text(0.79, 1 - 0.7 / high, f"until {scenario.budget:,} results are in", fontsize=_TEXT - 1, va="center")
        settled = players[0].settled
        made.text(
            0.012, 0.16 / high,
            f"Simulated. A round ends at the black line. Bars: one typical round. "
            f"Numbers: averages of rounds {settled.start + 1:,} to {len(players[0].times):,}.",
            fontsize=9.5, color="#505050", va="center",
        )  # fmt: skip
        return style.save(made, stem)


def draw_round(axes: Axes, played: Timeline, most: int) -> None:
    """Draw a bar for each of the busiest workers and a line where the round ends, on axes whose limits are set."""
    shown = played.shown(most)
    place = {worker: row for row, worker in enumerate(shown.tolist())}
    axes.barh(range(len(shown)), np.minimum(played.dies[shown], played.time), height=0.78, **WAITING)
    gap = 0.0022 * axes.get_xlim()[1]  # between tasks
    for kind, look in ((DONE, WORKING), (CANCELLED, THROWN_AWAY), (LOST, THROWN_AWAY)):
        which = [k for k in np.flatnonzero(played.kind == kind) if int(played.worker[k]) in place]
        length = (played.end - played.start)[which]
        rows = [place[worker] for worker in played.worker[which].tolist()]
        width = np.maximum(length - gap, 0.5 * length)
        axes.barh(rows, width, left=played.start[which], height=0.78, linewidth=0, **look)
    axes.plot([played.time] * 2, [-0.6, len(shown) - 0.4], color="black", linewidth=2.2, clip_on=False)
    axes.set(ylim=(len(shown) - 0.5, -0.5), yticks=[])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", labelbottom=False, length=0)


def _label_workers(axes: Axes, played: Timeline) -> None:
    """Write beside the bars of one panel which workers are fast; the shown workers stand in the order of the pool."""
    means = played.mean[played.shown(MOST)]
    look: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": _TEXT - 2, "color": "#505050"}
    for row, name in ((int(np.argmin(means)), "fastest"), (int(np.argmax(means)), "slowest")):
        axes.annotate(name, (0.0, row), (-6, 0), textcoords="offset points", **look)


def _tell(axes: Axes, player: Player) -> None:
    title, gloss = player.plain_words()
    time, work, share = player.averages()
    beside: dict[str, Any] = {"transform": axes.transAxes}
    lines = 1 + title.count("\n")
    axes.text(-0.516, 0.6, title, fontsize=_TEXT + 1, fontweight="bold", va="center", **beside)
    axes.text(-0.516, 0.36 - 0.13 * (lines - 1), gloss, fontsize=_TEXT - 2, color="#505050", va="top", **beside)
    axes.text(1.04, 0.66, f"{_short(time)} s", fontsize=20, fontweight="bold", va="center", **beside)
    bad = share >= 0.005
    lost = f"{100 * share:.0f} % thrown away" if bad else "nothing thrown away"
    axes.text(1.04, 0.31, f"{_short(work, 10)} s of work,", fontsize=_TEXT - 1, color="#303030", va="center", **beside)
    look: dict[str, Any] = {"color": style.OKABE_ITO[1], "fontweight": "bold"} if bad else {"color": "#303030"}
    axes.text(1.04, 0.08, lost, fontsize=_TEXT - 1, va="center", **look, **beside)


def _short(value: float, whole: float = 100) -> str:
    """A number with at most one decimal, and none if it is ``whole`` or more.

    >>> _short(10.53), _short(10.53, 10), _short(7.2273), _short(1234.5), _short(0.0321)
    ('10.5', '11', '7.2', '1,234', '0.032')
    """
    return f"{value:,.0f}" if value >= whole else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
