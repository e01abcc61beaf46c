"""Make the animation of README.md: who gets how many tasks while policies learn, and how long their
rounds take.

``python notebooks/learning.py`` plays two policies on five workers, and writes
``notebooks/pictures/learning.gif``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from ata_gym.bench.report import style
from ata_gym.bench.studies.side_by_side.pictures import BAR_LIMIT, UNUSED, WAITING, WORKING
from ata_gym.bench.studies.side_by_side.play import WatchedPolicy
from ata_gym.scenarios import scenario
from ata_gym.typing import Floats
from ata_gym.utils.files.atomic import write_whole

FILE = Path(__file__).parent / "pictures" / "learning.gif"
POLICIES = ("ata-empirical-icml", "distribution-learner")
# what is shown, of an episode of so many rounds
ROUNDS = 500
HORIZON = 2_000
FRAMES = 60  # frames at most
# how long a frame is shown, and the last one, before it all starts again
SECONDS = 0.16
LAST_SECONDS = 2.0
_PALETTE = 64  # colours of the file: few make it small
_INCHES = (8.0, 4.7)
_DPI = 100


class Learner(WatchedPolicy):
    """A policy that remembers the rounds that it has played."""

    def __init__(self, policy: str, rounds: int) -> None:
        super().__init__(policy, scenario("five-workers"), HORIZON)
        timelines = [self.play_round() for _ in range(rounds)]
        self.played = np.array([(one.tasks, one.busy, one.wasted_time) for one in timelines])
        """(rounds, 3, n): tasks of each worker, its worker time, and the wasted part."""


def frame_rounds(rounds: int) -> list[int]:
    """The rounds of the frames, log-spaced from 1 on, since most is learned in the first ones.

    >>> frame_rounds(400)[:5], frame_rounds(400)[-2:], frame_rounds(3)
    ([1, 2, 3, 4, 5], [361, 400], [1, 2, 3])
    """
    return sorted({round(number) for number in np.geomspace(1, rounds, FRAMES).tolist()})


def animate(policies: Sequence[Learner], path: Path) -> None:
    """Write the animation of the first rounds as GIF; the policies have played and remembered at
    least one round.
    """
    rounds = frame_rounds(len(policies[0].played))
    frames = []
    with style.figure(*_INCHES) as made:
        made.set_dpi(_DPI)
        for k in rounds:
            made.clear()
            _draw_frame(made, policies, k, rounds[-1])
            canvas: Any = made.canvas
            canvas.draw()
            frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3].copy()))
    palette = frames[-1].quantize(_PALETTE, method=Image.Quantize.FASTOCTREE)
    # white paper
    palette.putpalette(
        [255 if value >= 250 else value for value in palette.getpalette() or []],
    )
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [round(1000 * SECONDS)] * (len(small) - 1) + [round(1000 * LAST_SECONDS)]
    path.parent.mkdir(parents=True, exist_ok=True)
    form: dict[str, Any] = {
        "format": "GIF",
        "save_all": True,
        "duration": times,
        "loop": 0,
        "optimize": False,
    }
    write_whole(path, partial(small[0].save, append_images=small[1:], **form))


def _draw_frame(made: Figure, policies: Sequence[Learner], k: int, last: int) -> None:
    """Draw a frame: at the top what each policy did until its k-th round, at the bottom how long
    its rounds took.
    """
    made.set_layout_engine("none")
    grid = made.add_gridspec(
        2,
        len(policies),
        height_ratios=(1.0, 0.9),
        left=0.1,
        right=0.985,
        top=0.83,
        bottom=0.125,
        hspace=0.62,
        wspace=0.27,
    )
    curves = [_trailing(np.array(policy.times[:last])) for policy in policies]
    colours = [look["color"] for look in style.lines([policy.name for policy in policies]).values()]
    limit = 1.03 * max(float(curve[np.array(frame_rounds(last)) - 1].max()) for curve in curves)
    shown = np.sort(
        np.argsort(-sum(policy.played[:, 1].sum(axis=0) for policy in policies), kind="stable")[
            :BAR_LIMIT
        ],
    )
    for place, (policy, curve) in enumerate(zip(policies, curves, strict=True)):
        axes = made.add_subplot(grid[0, place])
        tasks, busy, wasted = _trailing(policy.played[:k])[-1, :, shown].T
        rows = np.arange(len(shown))
        axes.barh(rows, curve[k - 1], height=0.78, **WAITING)
        axes.barh(rows, busy - wasted, height=0.78, **WORKING)
        axes.barh(rows, wasted, left=busy - wasted, height=0.78, linewidth=0, **UNUSED)
        axes.plot(
            [curve[k - 1]] * 2,
            [-0.6, len(shown) - 0.4],
            color="black",
            linewidth=2.2,
            clip_on=False,
        )
        axes.set(xlim=(0, limit), ylim=(len(shown) - 0.5, -0.5), xlabel="seconds")
        axes.set_yticks(rows, [f"{each:.1f} tasks" for each in tasks])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        name = policy.title_and_gloss()[0].replace("\n", " ")
        axes.set_title(name, fontsize=12.5, fontweight="bold", color=colours[place])
    title = f"Round {k:,}: {policies[0].budget:,} tasks, who gets how many?"
    made.text(0.012, 0.955, title, fontsize=14, fontweight="bold", va="center")
    made.text(
        0.012,
        0.02,
        "simulated; averages of the last third of the rounds",
        fontsize=8.5,
        color="#505050",
    )
    handles = [Patch(**look, linewidth=0) for look in (WORKING, WAITING)]
    made.legend(
        handles,
        ["working", "waiting"],
        ncols=2,
        loc="center right",
        bbox_to_anchor=(0.995, 0.955),
    )
    _draw_times(made.add_subplot(grid[1, :]), curves, colours, k)


def _draw_times(axes: Axes, curves: Sequence[Floats], colours: Sequence[str], k: int) -> None:
    for curve, colour in zip(curves, colours, strict=True):
        axes.plot(np.arange(1, k + 1), curve[:k], color=colour, linewidth=2.4)
        axes.plot(k, curve[k - 1], "o", color=colour, markersize=6, clip_on=False)
    limits = {
        "xlim": (1, max(len(curves[0]), 2)),
        "ylim": (0, 1.06 * max(float(curve.max()) for curve in curves)),
    }
    axes.set(xscale="log", **limits, xlabel="rounds played", ylabel="seconds per round")
    style.plain_numbers(axes)


def _trailing(amounts: Floats) -> Floats:
    """For each round the mean over the last third of the rounds until it, along the first axis.

    >>> _trailing(np.array([6.0, 3.0, 3.0, 1.0, 1.0, 1.0])).tolist()
    [6.0, 3.0, 3.0, 2.0, 1.0, 1.0]
    """
    sums = np.concatenate([np.zeros_like(amounts[:1]), np.cumsum(amounts, axis=0)])
    until = np.arange(1, len(amounts) + 1)
    over = -(-until // 3)
    means: Floats = (sums[until] - sums[until - over]) / over.reshape(-1, *[1] * (amounts.ndim - 1))
    return means


if __name__ == "__main__":
    animate([Learner(policy, ROUNDS) for policy in POLICIES], FILE)
