"""From matched collectives to steps: what repeats, where ranks wait, and their times before it.

A rank does its own work from the end of a collective in which it waited to its arrival at the next
such one. It does not wait in each: while the gradients of one bucket are reduced, a backward pass
goes on to the next bucket.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ata_gym.bench.logs.flight_recorder.collectives import Collectives
from ata_gym.typing import Floats, Ints, Mask

_SHARE_OVERTAKEN = 0.05
"""The share of the steps in which a rank may leave a collective before the last one has come, since
the clocks of two hosts differ a little."""
_REDUCES = "reduce"
"""What the names of operations have in common that may run beside a backward pass."""
_SHARE_OF_ENDS = 0.95
"""The share of the ends that lie between the last arrival and the next one, where ends are used."""
_FEWEST_REPEATS = 3
"""How often a sequence repeats at least."""
_SHARE_REPEATED = 0.5
"""The share of the collectives that repeat at least; the shortest sequence that repeats at least
this share of the longest run that any sequence has."""


_SHARE_EXPLAINED = 0.5
"""The share of the differences of the pauses that the place in a step explains at least."""
_FEWEST_PAUSES = 5
"""How often a step repeats at least that only pauses show."""
_SMALLEST_CHANGE = 1e-4
"""The smallest change from step to step that says something, in lengths of a step."""
_SHORTEST_PAUSE = 1e-6
"""The shortest pause between two collectives that counts, in seconds."""


@dataclass(frozen=True)
class Steps:
    """The steps of a job."""

    seconds: Floats
    """(steps, ranks): the time of each rank's own work."""
    rest: Floats
    """(steps,): the time of each step that is no rank's work."""
    remarks: list[str]
    """What a step is, and which collectives the ranks wait in."""


def steps_of(collectives: Collectives) -> Steps:
    """Return the steps of a job and the times of its ranks' own work in them.

    Args:
        collectives: The collectives of all ranks.

    Raises:
        ValueError: If no rank waits in any of them, and for fewer than two whole steps.
    """
    if len(collectives.names) < _FEWEST_REPEATS:
        raise _too_short(len(collectives.names), 0)
    codes, length, repeats = _repetition(collectives)
    waits = _waits(collectives, repeats, length)
    in_time = _repetition_in_time(collectives, repeats) if length == 1 else None
    if in_time:
        waits_in_time = _waits(collectives, in_time[2], in_time[1])
        # where ranks wait in all of them, each is a step as good
        if waits_in_time.any() and not waits_in_time.all():
            codes, length, repeats = in_time
            waits = waits_in_time
    if not waits.any():
        raise ValueError(
            "the ranks wait for each other in none of the collectives: each goes on before the last"
            " one has come. Then arrivals do not show who was waited for: record traces of"
            " torch.profiler, or with NCCL the durations, by TORCH_NCCL_ENABLE_TIMING=1; over"
            " several hosts, synchronise their clocks",
        )
    # a step ends with a collective in which the ranks wait, and so does the one before it
    shift = int(np.flatnonzero(waits)[-1]) + 1
    first = int(repeats[0]) + shift
    starts = _occurrences(codes, codes[first : first + length])
    starts = starts[np.isin(starts - length, starts)]
    barriers = np.flatnonzero(np.roll(waits, -shift))
    if len(starts) < 2:
        raise _too_short(len(codes), len(starts))
    ends, known = _ends(collectives, np.unique(starts[:, None] + barriers))
    # the barrier before the first one of a step is the last one of the step before
    barriers_before = np.concatenate([[-1], barriers[:-1]])
    released = ends[starts[:, None] + barriers_before]
    arrivals = collectives.arrivals[starts[:, None] + barriers]
    seconds = np.maximum(arrivals - released[:, :, None], 0.0).sum(axis=1)
    lengths = ends[starts + length - 1] - ends[starts - 1]
    rest = np.maximum(lengths - seconds.max(axis=1), 0.0)
    remarks = [_what_a_step_is(codes, length, len(barriers))]
    if not known:
        remarks.append(
            "The recorder does not say precisely when the collectives ended: the time of their"
            " transfers counts as work of all ranks.",
        )
    return Steps(seconds, rest, remarks)


def _too_short(collectives: int, steps: int) -> ValueError:
    return ValueError(
        f"the dumps of all ranks have {collectives} collectives in common, which hold {steps} whole"
        " steps, and at least 2 are needed: keep more of them, with TORCH_FR_BUFFER_SIZE=20000",
    )


def _repetition(collectives: Collectives) -> tuple[Ints, int, Ints]:
    """What repeats: the collectives as numbers, (K,), how many a step has, where each begins."""
    names = collectives.names
    for kinds in (zip(names, collectives.shapes, strict=True), names):
        codes = _numbered(kinds)
        length, first = _shortest_repetition(codes)
        starts = _occurrences(codes, codes[first : first + length])
        enough = len(starts) * length >= _SHARE_REPEATED * len(codes)
        if enough and len(starts) >= _FEWEST_REPEATS:
            return codes, length, starts[starts >= first]
    # nothing repeats: all are alike
    return np.zeros(len(names), dtype=np.int64), 1, np.arange(len(names))


def _repetition_in_time(collectives: Collectives, starts: Ints) -> tuple[Ints, int, Ints] | None:
    """The repetition of the pauses between collectives that are all alike, as for ``_repetition``.

    The buckets of a step are often alike; then the pauses between them show where a step begins.

    Args:
        collectives: The collectives.
        starts: The numbers of those that are alike.
    """
    # the first ones, up to a gap in the numbers or their end
    gaps = np.append(np.diff(starts), -1)
    count = int(np.argmax(gaps != 1)) + 1
    first = int(starts[0])
    means = collectives.arrivals[first : first + count].mean(axis=1)
    pauses = np.log(np.maximum(np.diff(means), _SHORTEST_PAUSE))
    lengths = range(1, len(pauses) // _FEWEST_PAUSES + 1)
    explained = np.array([_explained(pauses, length) for length in lengths])
    if not len(explained) or explained.max() < _SHARE_EXPLAINED:
        return None
    length = 1 + int(np.argmax(explained >= 0.9 * explained.max()))
    # numbers by the place in a step; what is outside is like nothing
    codes = length + np.arange(len(collectives.names))
    codes[first : first + count] = np.arange(count) % length
    return codes, length, np.arange(first, first + count - length + 1, length)


def _explained(values: Floats, length: int) -> float:
    """The share of the variance that the place in a sequence explains, less for more places."""
    place = np.arange(len(values)) % length
    means = np.bincount(place, values) / np.bincount(place)
    inside = float(((values - means[place]) ** 2).sum()) / (len(values) - length)
    whole = float(values.var(ddof=1))
    if whole < _SMALLEST_CHANGE**2:
        return 0.0
    return 1.0 - inside / whole


def _numbered(kinds: Iterable[object]) -> Ints:
    numbers = dict[object, int]()
    return np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds])


def _shortest_repetition(codes: Ints) -> tuple[int, int]:
    """How long the shortest sequence is that repeats, and where it does so first.

    A step may hold fifty equal collectives: it is the longest run that counts, not how much repeats
    with a shorter sequence.
    """
    most = len(codes) // _FEWEST_REPEATS
    runs = [_longest_run(codes[length:] == codes[:-length]) for length in range(1, most + 1)]
    repeated = [
        run + length if run >= (_FEWEST_REPEATS - 1) * length else 0
        for length, (run, _) in enumerate(runs, start=1)
    ]
    enough = _SHARE_REPEATED * max(repeated, default=0)
    for length, covered in enumerate(repeated, start=1):
        if covered and covered >= enough:
            return length, runs[length - 1][1]
    return len(codes), 0


def _longest_run(flags: Mask) -> tuple[int, int]:
    """How long the longest run of true flags is, and where it begins."""
    bordered = np.concatenate([[0], flags.astype(np.int8), [0]])
    edges = np.flatnonzero(np.diff(bordered))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(lengths.argmax())
    return int(lengths[longest]), int(edges[::2][longest])


def _occurrences(codes: Ints, sequence: Ints) -> Ints:
    """Where a sequence begins in the codes."""
    places = len(codes) - len(sequence) + 1
    fits = np.ones(places, dtype=bool)
    for shift, code in enumerate(sequence):
        fits &= codes[shift : shift + places] == code
    return np.flatnonzero(fits)


def _waits(collectives: Collectives, starts: Ints, length: int) -> Mask:
    """Whether ranks wait in each collective of a step, (length,), until the last one has come."""
    starts = starts[starts + 2 * length <= len(collectives.names)]
    overtaken = np.ones(length, dtype=bool)
    waits = np.zeros(length, dtype=bool)
    pauses = np.zeros(length)
    if not len(starts):
        return waits
    for place in range(length):
        here = starts + place
        arrivals = collectives.arrivals[here]
        following = collectives.arrivals[here + 1]
        last = arrivals.max(axis=1)
        overtaken[place] = (following.min(axis=1) < last).mean() > _SHARE_OVERTAKEN
        # an end that is not known, NaN, is before nothing
        left_early = (following.min(axis=1) < collectives.ends[here]).mean() > 0.5
        pauses[place] = np.median(following.min(axis=1) - last)
        lengths = (collectives.arrivals[here + length] - arrivals).mean(axis=1, keepdims=True)
        lengths = np.maximum(lengths, _SHORTEST_PAUSE)
        relative = arrivals / lengths, following / lengths
        # while gradients are reduced, a backward pass may go on; other results are needed at once
        reduces = _REDUCES in collectives.names[int(here[0])]
        goes_on = left_early or (reduces and not _released(*relative))
        waits[place] = not overtaken[place] and not goes_on
    # without any wait, the ranks would drift apart
    if not waits.any() and not overtaken.all():
        waits[np.where(overtaken, -np.inf, pauses).argmax()] = True
    return waits


def _released(arrivals: Floats, following: Floats) -> bool:
    """Whether who comes earlier to a collective, comes no earlier to the next one.

    A rank that waits comes to the next collective later by what it waited; one that goes on does
    not. Only the changes from step to step count, apart from what is common to the ranks: a rank
    that is always early has less to do in both cases.

    Args:
        arrivals: (steps, ranks): the arrivals at a collective, in lengths of the step.
        following: (steps, ranks): those at the next one, likewise.
    """
    early = arrivals.max(axis=1, keepdims=True) - arrivals
    gap = following - arrivals
    changes = [np.diff(values, axis=0) for values in (early, gap)]
    early_change, gap_change = (one - one.mean(axis=1, keepdims=True) for one in changes)
    if early_change.size == 0 or np.abs(early_change).max() < _SMALLEST_CHANGE:
        # nothing changes: ranks rather have equal work between two collectives than unequal
        after_wait = following - arrivals.max(axis=1, keepdims=True)
        return bool(np.ptp(after_wait.mean(axis=0)) <= np.ptp(gap.mean(axis=0)))
    return bool((early_change * gap_change).sum() > 0.5 * (early_change**2).sum())


def _ends(collectives: Collectives, chosen: Ints) -> tuple[Floats, bool]:
    """When each collective ended, (K,), and whether that is known, or stands for the last arrival.

    An end that was noticed after the next arrival at a collective is not precise.

    Args:
        collectives: The collectives.
        chosen: The numbers of those whose ends are needed.
    """
    last = collectives.arrivals.max(axis=1)
    following = np.append(collectives.arrivals[1:].min(axis=1), np.inf)
    precise = (collectives.ends >= last) & (collectives.ends <= following)
    if precise[chosen].mean() < _SHARE_OF_ENDS:
        return last, False
    return np.where(precise, collectives.ends, last), True


def _what_a_step_is(codes: Ints, length: int, barriers: int) -> str:
    if length > 1:
        return (
            f"A step is the {length} collectives that repeat, and ranks wait for each other in"
            f" {barriers} of them."
        )
    if codes.any():
        return "A step is one collective, the one that repeats."
    return "Each collective of all ranks counts as a step."
