"""A round as text of up to 80 columns, without colours."""

from collections.abc import Iterable

import numpy as np

from ata_gym.envs.rendering.timeline import CANCELLED, DONE, KINDS, RUNNING, Timeline, number

_MARKS = "█▒╳▓"  # the mark of each kind of segment, in the order of ``timeline.KINDS``
_END_OF_TASK = "▉"  # the last cell of a result: a thin gap shows where a task ends
_WAITING, _AWAY = "·", " "
_BAR = 46  # the columns of a bar
MOST = 16  # the workers that have a line


def as_text(timeline: Timeline, most: int = MOST, brief: bool = False) -> str:
    """The round, a line for each of the ``most`` busiest workers, and what the marks mean.

    The right end of a bar is the round's end; a bar reads ``███▉██▉▒▒▒``: two results and a cancelled task. A ``brief``
    text has a line on the round and those of the workers.
    """
    shown = timeline.shown(most)
    rows = [_row(timeline, worker) for worker in shown.tolist()]
    rest = timeline.about_rest(shown)
    first, second = timeline.headings()
    title = f"{'worker':>7} {'tasks':>5} {'':{_BAR}} {'estimate':>9} {'mean':>9}"
    above, below = ([first], []) if brief else ([first, second, title], [legend({DONE, CANCELLED, *timeline.kind})])
    return "\n".join(line.rstrip() for line in (*above, *rows, *([rest] if rest else []), *below))


def legend(kinds: Iterable[int] = (DONE, CANCELLED)) -> str:
    """What the marks of some kinds of segments mean, and that of waiting."""
    return "  ".join([*(f"{_MARKS[kind]} {KINDS[kind]}" for kind in sorted(kinds)), f"{_WAITING} waiting"])


def _row(timeline: Timeline, worker: int) -> str:
    estimate, mean = (
        "-" if np.isnan(value) else "away" if np.isinf(value) else number(value)
        for value in (timeline.estimate[worker], timeline.mean[worker])
    )
    estimate = "≥ " * bool(timeline.at_least[worker]) + estimate
    return f"{worker:>7} {timeline.tasks[worker]:>5} {_bar(timeline, worker)} {estimate:>9} {mean:>9}"


def _bar(timeline: Timeline, worker: int) -> str:
    if timeline.time <= 0:
        return _WAITING * _BAR if timeline.round else " " * _BAR
    alive = _cell(timeline, min(float(timeline.dies[worker]), timeline.time))
    cells = list(_WAITING * alive + _AWAY * (_BAR - alive))
    for k in np.flatnonzero(timeline.worker == worker):
        first = min(_cell(timeline, timeline.start[k]), _BAR - 1)
        last = max(_cell(timeline, timeline.end[k]), first + 1)
        kind = timeline.kind[k]
        cells[first:last] = _MARKS[kind] * (last - first)
        if last - first > 1 and kind != RUNNING:
            cells[last - 1] = _END_OF_TASK if kind == DONE else _MARKS[kind]
    return "".join(cells)


def _cell(timeline: Timeline, moment: float) -> int:
    return round(_BAR * float(moment) / timeline.time)
