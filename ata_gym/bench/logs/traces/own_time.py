"""The own time of a rank in each step: without the time in which it was blocked by others.

A collective that runs does not show that its rank waits: buckets of gradients are reduced beside
the backward pass. A rank was blocked by a collective if it did nothing until its end, and then went
on.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ata_gym.bench.logs.traces.collectives import StepCollectives
from ata_gym.bench.logs.traces.events import Trace
from ata_gym.bench.logs.traces.kinds import DEVICE_WORK, OPERATIONS, Kind
from ata_gym.bench.logs.traces.spans import Spans, joined, overlap_until
from ata_gym.typing import Floats

_LATENCY = 200.0
"""Microseconds at most from the end of a collective until what waited for it goes on; from ten to a
few hundred were measured."""
_RELATIVE_LATENCY = 0.1
"""The same for long waits, as a part of them, where much else runs on the machine."""
_LATEST = 2000.0
"""The same at most, in microseconds, of waits of any length."""
_MOST_AT_ONCE = 4
"""Collectives of a host that run at once, at most; gloo has two threads for a group."""
_CLOCK = 1.0
"""Microseconds in which two times are the same."""


class StepTimes(NamedTuple):
    """The steps of a trace; times are in microseconds."""

    lengths: Floats
    """(S,)"""
    blocked: Floats
    """(S,): how long the rank was blocked by collectives."""
    collectives: Sequence[StepCollectives]
    """(S,)"""

    def part(self, places: Sequence[int]) -> "StepTimes":
        """Return some of the steps, by their places."""
        chosen = np.array(places, dtype=int)
        return StepTimes(
            self.lengths[chosen],
            self.blocked[chosen],
            [self.collectives[place] for place in places],
        )


def step_times(trace: Trace) -> StepTimes:
    """Return how long the steps of a rank took, and how long it was blocked in them.

    Where there is a device, a step lasts until the work is done that was launched in it, since a
    host runs ahead of its device.
    """
    starts, ends = (_when_done(trace, points) for points in trace.step_spans)
    starts[:1] = _first_start(trace)
    collectives = np.flatnonzero(_collectives(trace))
    inside = [
        _with_latency(trace, trace.spans_of(collectives)),
        joined([_blocked_on_device(trace), _blocked_on_host(trace)]),
    ]
    device_work = trace.spans_of(trace.of(Kind.KERNEL, Kind.COPY))
    # what was blocked from the end of one collective to the next is due to the latter
    collectives = collectives[np.argsort(trace.spans.ends[collectives], kind="stable")]
    until = overlap_until(
        np.concatenate([starts, ends, trace.spans.ends[collectives]]), inside, device_work
    )
    until_start, until_end, until_collective = np.split(until, [len(starts), 2 * len(starts)])
    waits = np.diff(until_collective, prepend=0.0)
    # it belongs to the step in which it starts: its end may be recorded in the next one
    order = np.argsort(trace.spans.starts[collectives], kind="stable")
    collectives = collectives[order]
    waits = waits[order]
    names = [trace.names[label] for label in trace.label[collectives].tolist()]
    collective_starts = trace.spans.starts[collectives]
    first = np.searchsorted(collective_starts, starts)
    last = np.searchsorted(collective_starts, ends)
    return StepTimes(
        ends - starts,
        until_end - until_start,
        [
            StepCollectives(names[a:b], waits[a:b])
            for a, b in zip(first.tolist(), last.tolist(), strict=True)
        ],
    )


def _with_latency(trace: Trace, collectives: Spans) -> Spans:
    """The same spans until the own threads go on, where they do so at once."""
    boundaries = _boundaries(trace, np.isin(trace.thread, _own_threads(trace)))
    after = np.append(boundaries, np.inf)[np.searchsorted(boundaries, collectives.ends)]
    is_soon = after - collectives.ends <= _LATENCY
    return Spans(collectives.starts, np.where(is_soon, after, collectives.ends))


def _collectives(trace: Trace) -> Any:
    """The events, (E,), in which the rank communicates."""
    collectives = trace.of(Kind.DEVICE_COLLECTIVE, Kind.HOST_COLLECTIVE)
    if collectives.any():
        return collectives
    # a library that leaves no event but the call: then the call lasts as long as it takes
    return trace.of(Kind.CALL)


def _when_done(trace: Trace, points: Floats) -> Floats:
    """The times, (P,), when a device has done what was launched before each point, or the point."""
    work = trace.of(*DEVICE_WORK)
    if not work.any():
        return points
    launches = _launches(trace)[work]
    order = np.argsort(launches, kind="stable")
    ends = np.maximum.accumulate(trace.spans.ends[work][order])
    count = np.searchsorted(launches[order], points)
    done: Floats = np.concatenate([[-np.inf], ends])[count]
    return np.maximum(points, done)


def _first_start(trace: Trace) -> Floats:
    """When the first step, (1,) or (0,), begins on the device.

    What the device has to do before is not in the trace; but the first kernel of the step is late
    by as much.
    """
    points = trace.step_spans.starts[:1].copy()
    work = _main_stream(trace)
    launches = _launches(trace)[work]
    starts = trace.spans.starts[work]
    for place in range(len(points)):
        inside = launches >= points[place]
        if inside.any():
            first = np.where(inside, launches, np.inf).argmin()
            delay = starts[first] - launches[first]
            # a shorter one is the usual time of a launch
            points[place] += delay if delay > _LATEST else 0.0
    return points


def _launches(trace: Trace) -> Floats:
    """When the work of each event, (E,), was launched; its start, where nothing says so."""
    starts = trace.spans.starts
    known = ~np.isnan(trace.correlation)
    calls = trace.of(Kind.LAUNCH, Kind.SYNCHRONIZATION) & known
    work = trace.of(*DEVICE_WORK) & known
    launches = starts.copy()
    if not calls.any():
        return launches
    order = np.argsort(trace.correlation[calls], kind="stable")
    correlations = trace.correlation[calls][order]
    place = np.searchsorted(correlations, trace.correlation[work]).clip(0, len(order) - 1)
    matched = correlations[place] == trace.correlation[work]
    launches[work] = np.where(matched, starts[calls][order][place], starts[work])
    # clocks of host and device agree to some microseconds
    return np.minimum(launches, starts)


def _blocked_on_host(trace: Trace) -> Spans:
    """The spans in which the own threads of the rank did nothing until a collective ended."""
    own = np.isin(trace.thread, _own_threads(trace))
    collectives = trace.of(Kind.HOST_COLLECTIVE)
    if not (collectives.any() or trace.of(Kind.DEVICE_COLLECTIVE).any()):
        collectives = _collectives(trace) & own
    if not collectives.any():
        return Spans(np.zeros(0), np.zeros(0))
    boundaries = _boundaries(trace, own)
    if not trace.of(Kind.CALL)[own].any():
        # nothing shows when a collective was called, so that its start does
        boundaries = np.union1d(boundaries, trace.spans.starts[collectives])
    collective_ends = np.unique(trace.spans.ends[collectives])
    starts = boundaries
    ends = np.append(boundaries[1:], max(boundaries[-1], collective_ends[-1]) + 1.0)
    # the last collective that ends while the threads are silent, and the first afterwards
    place = np.searchsorted(collective_ends, ends, side="right")
    before = np.concatenate([[-np.inf], collective_ends])[place]
    is_inside = before > starts
    goes_on_at_end = is_inside & _is_prompt(starts, before, ends)
    simple, composed = _operations(trace, own)
    middles = (starts + ends) / 2
    # outside of operations, and right after a call, a silent thread waits; else it may work, and is
    # known to have waited if it goes on when the collective ends
    call_ends = trace.spans.ends[own & trace.of(Kind.CALL)]
    must_wait = ~composed.cover(middles) | np.isin(starts, call_ends)
    latest = np.where(must_wait, np.minimum(ends - starts, _LATEST), _latency(ends - starts))
    goes_on_before_end = _goes_on_before_end(trace.spans_of(collectives), ends, latest)
    waits = goes_on_at_end | goes_on_before_end | (is_inside & must_wait)
    waits &= ~simple.cover(middles)
    goes_on_late = is_inside & ~goes_on_before_end & (ends - before > _LATENCY)
    ends = np.where(goes_on_late, before, ends)
    return Spans(starts[waits], ends[waits])


def _goes_on_before_end(collectives: Spans, points: Floats, latest: Floats) -> Any:
    """Whether a thread that goes on at some points, (P,), does so since a collective is done.

    Its end may be recorded a little later, (P,) at most, but it runs when the thread goes on.
    """
    order = np.argsort(collectives.ends, kind="stable")
    never = np.full(_MOST_AT_ONCE, np.inf)
    collective_starts = np.concatenate([collectives.starts[order], never])
    collective_ends = np.concatenate([collectives.ends[order], never])
    place = np.searchsorted(collective_ends, points, side="right")
    goes_on = np.zeros(len(points), dtype=bool)
    for later in range(_MOST_AT_ONCE):
        is_soon = collective_ends[place + later] - points <= latest
        goes_on |= is_soon & (collective_starts[place + later] < points)
    return goes_on


def _own_threads(trace: Trace) -> Any:
    """The threads of the training loop and of the backward pass."""
    places = trace.of(Kind.STEP, Kind.BACKWARD)
    return np.unique(trace.thread[places])


def _boundaries(trace: Trace, own: Any) -> Floats:
    """When an event began or ended on the own threads, in order."""
    marks = own & trace.of(
        *(Kind.STEP, Kind.MARK, Kind.CALL, Kind.LAUNCH, Kind.SYNCHRONIZATION),
        *OPERATIONS,
    )
    spans = trace.spans_of(marks)
    return np.union1d(spans.starts, spans.ends)


def _operations(trace: Trace, own: Any) -> tuple[Spans, Spans]:
    """The operations of the own threads: those without others inside, and the other ones."""
    places = np.flatnonzero(own & trace.of(Kind.CALL, *OPERATIONS))
    starts, ends = trace.spans_of(places)
    thread = trace.thread[places]
    # In this order an operation comes right before those that run inside it.
    places = places[np.lexsort((-ends, starts, thread))]
    starts, ends = trace.spans_of(places)
    composed = np.zeros(len(places), dtype=bool)
    same_thread = trace.thread[places][1:] == trace.thread[places][:-1]
    composed[:-1] = same_thread & (starts[1:] < ends[:-1])
    is_work = trace.kind[places] != Kind.CALL
    return (
        trace.spans_of(places[is_work & ~composed]),
        trace.spans_of(places[is_work & composed]),
    )


def _is_prompt(since: Floats, ends: Floats, after: Floats) -> Any:
    """Whether something goes on, (P,), at once after a collective for which it waited."""
    return after - ends <= _latency(ends - since)


def _latency(waits: Floats) -> Floats:
    """How long, (P,), it takes at most to go on after a wait."""
    of_long_waits = np.clip(_RELATIVE_LATENCY * waits, _LATENCY, _LATEST)
    return np.minimum(waits, of_long_waits)


def _blocked_on_device(trace: Trace) -> Spans:
    """The spans in which a device had nothing to compute until a collective ended.

    Work that was launched before the end waited for it. Else the host was late; then the rank was
    blocked only as far as its host waited.
    """
    collectives = trace.of(Kind.DEVICE_COLLECTIVE)
    if not collectives.any():
        return Spans(np.zeros(0), np.zeros(0))
    launches = _launches(trace)
    work = _main_stream(trace)
    computing = trace.spans_of(work).merged()
    ends = np.unique(trace.spans.ends[collectives])
    ends = ends[~computing.cover(ends - _CLOCK)]
    # since when the device had nothing to compute, or waited for this collective alone
    place = np.searchsorted(computing.ends, ends)
    since = np.concatenate([[-np.inf], computing.ends])[place]
    since = np.maximum(since, np.concatenate([[-np.inf], ends[:-1]]))
    next_work = _next_launch(trace, launches, work, ends)
    next_collective = _next_launch(trace, launches, collectives, ends)
    host_waits = _host_waits(trace, since, ends)
    # what follows the last collective of a trace is not in it
    is_last = np.isinf(next_work[0]) & np.isinf(next_collective[0])
    queued = (
        _is_queued(since, ends, *next_work) | is_last,
        _is_queued(since, ends, *next_collective),
        next_collective[0] < next_work[0],
    )
    starts = np.where(_waited(*queued, host_waits <= since), since, host_waits)
    return joined([Spans(starts, ends), _synchronizations(trace)])


def _waited(work: Any, collective: Any, collective_is_next: Any, host: Any) -> Any:
    """Whether the device waited for each collective, (P,), and not for its host.

    Between two collectives without work, the device waited for the first if the second was
    launched before, and the device waited for the second as well.
    """
    waited = np.zeros(len(work), dtype=bool)
    later = False
    for place in range(len(work) - 1, -1, -1):
        if collective_is_next[place]:
            later = bool(work[place] or host[place] or (collective[place] and later))
        else:
            later = bool(work[place] or host[place])
        waited[place] = later
    return waited


def _main_stream(trace: Trace) -> Any:
    """The kernels, (E,), of the stream that computes for the longest time."""
    kernels = trace.of(Kind.KERNEL)
    if not kernels.any():
        return kernels
    lengths = trace.spans.ends - trace.spans.starts
    by_stream = np.bincount(trace.thread[kernels], lengths[kernels])
    return kernels & (trace.thread == by_stream.argmax())


def _next_launch(trace: Trace, launches: Floats, work: Any, ends: Floats) -> tuple[Floats, Floats]:
    """When the next work after each end, (P,), starts, and when it was launched."""
    starts = trace.spans.starts[work]
    order = np.argsort(starts, kind="stable")
    place = np.searchsorted(starts[order], ends - _CLOCK)
    return (
        np.append(starts[order], np.inf)[place],
        np.append(launches[work][order], np.inf)[place],
    )


def _is_queued(since: Floats, ends: Floats, starts: Floats, launches: Floats) -> Any:
    """Whether the next work was launched before a collective ended, or started at once."""
    return np.where(launches < starts, launches <= ends, _is_prompt(since, ends, starts))


def _host_waits(trace: Trace, since: Floats, ends: Floats) -> Floats:
    """Since when, for each end, (P,), the host did nothing until it; the end, where it did."""
    own = np.isin(trace.thread, _own_threads(trace))
    simple, composed = _operations(trace, own)
    if not (trace.of(Kind.LAUNCH) & ~np.isnan(trace.correlation)).any():
        # nothing says that a host was late, but an operation that goes on past the end
        works = joined([simple, composed]).cover(ends)
        return np.where(works, ends, since)
    boundaries = _boundaries(trace, own)
    place = np.searchsorted(boundaries, ends - _CLOCK)
    before = np.maximum(since, np.concatenate([[-np.inf], boundaries])[place])
    after = np.append(boundaries, np.inf)[place]
    middles = np.where(np.isinf(before), ends, (before + ends) / 2)
    waits = _is_prompt(before, ends, after) & ~simple.cover(middles)
    return np.where(waits, before, ends)


def _synchronizations(trace: Trace) -> Spans:
    """The spans in which the host waited for its device."""
    return trace.spans_of(trace.of(Kind.SYNCHRONIZATION, Kind.READ))
