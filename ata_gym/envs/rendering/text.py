"""A round as text of up to 80 columns, without colours."""

from collections.abc import Iterable

import numpy as np

from ata_gym.envs.rendering.timeline import CANCELLED, DONE, KINDS, Timeline, number

_MARKS = "█▒╳▓"
"""The mark of each kind of segment, in the order of ``timeline.KINDS``."""
_END_OF_TASK = "▉"
"""The last cell of a result: a thin gap shows where a task ends."""
_WAITING = "·"
_AWAY = " "
_BAR = 46
"""The columns of a bar."""
MAX_WORKERS = 16
"""The largest number of workers that have a line."""


def as_text(timeline: Timeline, max_workers: int = MAX_WORKERS, brief: bool = False) -> str:
    """The round as lines of text, with the meanings of the marks.

    The right end of a bar is the round's end. The bar ``███▉██▉▒▒▒`` shows two results and a
    cancelled task.

    Args:
        timeline: The round.
        max_workers: How many of the busiest workers have a line.
        brief: Whether the text has only a line on the round and the lines of the workers.
    """
    workers = timeline.busiest(max_workers)
    rows = [_row(timeline, worker) for worker in workers.tolist()]
    rest_text = timeline.summary_without(workers)
    heading, subheading = timeline.headings()
    title = f"{'worker':>7} {'tasks':>5} {'':{_BAR}} {'estimate':>9} {'mean':>9}"
    if brief:
        lines = [heading, *rows]
    else:
        lines = [heading, subheading, title, *rows]
    if rest_text:
        lines.append(rest_text)
    if not brief:
        lines.append(legend({DONE, CANCELLED, *timeline.kind}))
    return "\n".join(line.rstrip() for line in lines)


def legend(kinds: Iterable[int] = (DONE, CANCELLED)) -> str:
    """The meanings of the marks of some kinds of segments, and of the mark of waiting."""
    marks = [f"{_MARKS[kind]} {KINDS[kind]}" for kind in sorted(kinds)]
    return "  ".join([*marks, f"{_WAITING} waiting"])


def _time(value: float) -> str:
    if np.isnan(value):
        return "-"
    if np.isinf(value):
        return "away"
    return number(value)


def _row(timeline: Timeline, worker: int) -> str:
    estimate = _time(timeline.estimate[worker])
    mean = _time(timeline.mean[worker])
    if timeline.is_lower_bound[worker]:
        estimate = f"≥ {estimate}"
    return (
        f"{worker:>7} {timeline.tasks[worker]:>5} {_bar(timeline, worker)} {estimate:>9} {mean:>9}"
    )


def _bar(timeline: Timeline, worker: int) -> str:
    """The bar of a worker, of ``_BAR`` cells."""
    if timeline.time <= 0:
        if timeline.round:
            return _WAITING * _BAR
        return " " * _BAR
    alive = _cell(timeline, min(float(timeline.death_time[worker]), timeline.time))
    cells = list(_WAITING * alive + _AWAY * (_BAR - alive))
    for k in np.flatnonzero(timeline.worker == worker):
        # A task that is shorter than a cell is shown, too.
        first = min(_cell(timeline, timeline.start[k]), _BAR - 1)
        last = max(_cell(timeline, timeline.end[k]), first + 1)
        kind = timeline.kind[k]
        cells[first:last] = _MARKS[kind] * (last - first)
        if last - first > 1 and kind == DONE:
            cells[last - 1] = _END_OF_TASK
    return "".join(cells)


def _cell(timeline: Timeline, time: float) -> int:
    return round(_BAR * float(time) / timeline.time)
