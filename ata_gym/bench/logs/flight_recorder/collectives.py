"""The collectives of all ranks, matched: when each rank came to each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.bench.logs.flight_recorder.dumps import Dump, Entry
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import first_of

_NOTICED_SECONDS = 0.2
"""How late the end of a collective may be noticed: the thread that looks sleeps a tenth of a second
between two looks."""


_SHARE_MEASURED = 0.9
"""The share of the collectives that have durations on all ranks, where these are used."""


@dataclass(frozen=True)
class Collectives:
    """Collectives in which all ranks took part, K in the order in which they were queued."""

    names: Sequence[str]
    """(K,): the group and the operation of each."""
    shapes: Sequence[str]
    """(K,): the shapes of the inputs of each."""
    arrivals: Floats
    """(K, ranks): when each rank came to it, in seconds."""
    ends: Floats
    """(K,): when it ended, or a little later; NaN where the dumps do not say."""
    remarks: Sequence[str]
    """What a reader should know of these times."""


def matched(dumps: Sequence[Dump]) -> Collectives:
    """Return the collectives that the dumps of all ranks hold.

    Args:
        dumps: The dumps of the ranks of a job.

    Raises:
        ValueError: If there are none, and for dumps of different times.
    """
    groups = [_by_group(dump.entries) for dump in dumps]
    common = [name for name in groups[0] if all(name in group for group in groups)]
    rows: list[list[Entry]] = []
    for name in common:
        rows += _rows([group[name] for group in groups])
    if not rows:
        ranges = [f"rank {dump.rank} {_range(dump)}" for dump in dumps]
        raise ValueError(
            f"no collective is in the dumps of all ranks: {first_of(ranges)}: write the dumps of"
            " all ranks at the same moment, with TORCH_FR_BUFFER_SIZE=20000",
        )
    rows.sort(key=lambda row: row[0].record_id)
    remarks = _other_operations(dumps, common)
    rows, mismatch = _before_mismatch(rows, dumps)
    remarks += mismatch
    times = _of_entries(rows, lambda entry: entry.time_created_ns)
    # floats would round nanoseconds since 1970 to a quarter of a microsecond
    start = times.min()
    arrivals = (times - start) / 1e9
    _check_same_time(arrivals, dumps)
    noticed = _of_entries(rows, lambda entry: entry.time_discovered_completed_ns or 0)
    noticed = np.where(noticed > 0, (noticed - start) / 1e9, np.nan)
    collectives = Collectives(
        [f"{row[0].process_group[0]} {row[0].profiling_name}" for row in rows],
        [str(row[0].input_sizes) for row in rows],
        arrivals,
        np.full(len(rows), np.nan),
        remarks,
    )
    if not np.isnan(noticed).any(axis=1).all():
        collectives = _aligned(collectives, noticed, dumps)
    durations = _of_entries(rows, lambda entry: entry.duration_ms or np.nan) / 1e3
    measured = np.flatnonzero(~np.isnan(durations).any(axis=1))
    # the last collectives may still run
    if len(measured) > _SHARE_MEASURED * len(rows):
        return _on_device(collectives, durations, measured)
    if any(not row[0].profiling_name.startswith("gloo") for row in rows):
        sentence = (
            "These are the times at which the processes queued the collectives: slowness of the"
            " CPU and of the loading of data is in them, slowness of a device only as far as the"
            " process waits for it. With TORCH_NCCL_ENABLE_TIMING=1 the recorder measures on the"
            " device."
        )
        collectives = replace(collectives, remarks=[*collectives.remarks, sentence])
    return collectives


def absent(dumps: Sequence[Dump]) -> list[str]:
    """Who had not come to the last collective of a group, a sentence for each group."""
    last = dict[str, dict[int, Entry]]()
    for dump in dumps:
        for name, entries in _by_group(dump.entries).items():
            last.setdefault(name, {})[dump.rank] = entries[max(entries)]
    sentences = []
    for name, entries_by_rank in last.items():
        newest = max(entries_by_rank.values(), key=lambda entry: entry.collective_seq_id)
        number = newest.collective_seq_id
        late = [rank for rank, entry in entries_by_rank.items() if entry.collective_seq_id < number]
        if late:
            here = [rank for rank in entries_by_rank if rank not in late]
            sentences.append(
                f"When the dumps were written, {_ranks(late)} had not come to collective {number}"
                f" of group {name} ({newest.process_group[1]}), {newest.profiling_name}, and"
                f" {_ranks(here)} had: a job that hangs there waits for {_ranks(late)}.",
            )
    return sentences


def _by_group(entries: Sequence[Entry]) -> dict[str, dict[int, Entry]]:
    """The collectives of a rank by group and number, the last of several that run as one."""
    groups = dict[str, dict[int, Entry]]()
    for entry in entries:
        if not entry.is_p2p:
            groups.setdefault(entry.process_group[0], {})[entry.collective_seq_id] = entry
    return groups


def _of_entries(rows: list[list[Entry]], value: Callable[[Entry], float | int]) -> NDArray[Any]:
    """A number of each entry, (collectives, ranks)."""
    return np.array([[value(entry) for entry in row] for row in rows])


def _rows(collectives: Sequence[dict[int, Entry]]) -> list[list[Entry]]:
    """The entries of all ranks, for each collective of a group that all of them have."""
    numbers = set(collectives[0]).intersection(*collectives[1:])
    return [[entries[number] for entries in collectives] for number in sorted(numbers)]


def _range(dump: Dump) -> str:
    """The numbers of the collectives of the largest group of a dump."""
    groups = _by_group(dump.entries)
    if not groups:
        return "none"
    numbers = max(groups.values(), key=len)
    return f"{min(numbers)} to {max(numbers)}"


def _before_mismatch(
    rows: Sequence[list[Entry]],
    dumps: Sequence[Dump],
) -> tuple[list[list[Entry]], list[str]]:
    """The collectives before the first in which ranks run different operations."""
    for index, row in enumerate(rows):
        for dump, entry in zip(dumps, row, strict=True):
            if entry.profiling_name == row[0].profiling_name:
                continue
            sentence = (
                f"In collective {entry.collective_seq_id} of group {entry.process_group[0]} rank"
                f" {dump.rank} runs {entry.profiling_name}, and rank {dumps[0].rank} runs"
                f" {row[0].profiling_name}"
            )
            if not index:
                raise ValueError(
                    f"{sentence}: these ranks run different programs, or are of different jobs:"
                    " put the dumps of one job in a folder",
                )
            return [*rows[:index]], [f"{sentence}: only the {index} collectives before count."]
    return [*rows], []


def _other_operations(dumps: Sequence[Dump], common: Sequence[str]) -> list[str]:
    """What of the dumps is not among the collectives of all ranks."""
    entries = [entry for dump in dumps for entry in dump.entries]
    remarks = []
    if any(dump.entries[0].record_id for dump in dumps):
        remarks.append(
            "The recorder had written over the first collectives, and the log begins later than"
            " the job: TORCH_FR_BUFFER_SIZE says how many it keeps.",
        )
    between_two = sum(entry.is_p2p for entry in entries)
    if between_two:
        remarks.append(
            f"{between_two} sends and receives are left out: the time in which a rank waits for"
            " another one in them counts as its own work.",
        )
    smaller = {entry.process_group[0] for entry in entries if not entry.is_p2p} - {*common}
    if smaller:
        remarks.append(
            f"The collectives of {len(smaller)} groups of some of the ranks are left out: the time"
            " in which a rank waits in them counts as its own work.",
        )
    return remarks


def _check_same_time(arrivals: Floats, dumps: Sequence[Dump]) -> None:
    """Refuse dumps of which one ends before another begins."""
    if len(arrivals) < 2:
        return
    first = arrivals.min(axis=0)
    last = arrivals.max(axis=0)
    early = int(last.argmin())
    late = int(first.argmax())
    if last[early] < first[late]:
        raise ValueError(
            f"{dumps[early].file} ends {first[late] - last[early]:.3g} s before {dumps[late].file}"
            " begins: put the dumps of one run of a job in a folder, or synchronise the clocks of"
            " its hosts",
        )


def _aligned(collectives: Collectives, noticed: Floats, dumps: Sequence[Dump]) -> Collectives:
    """Collectives with their ends, and with the clocks of the ranks set by them.

    Args:
        collectives: The collectives.
        noticed: (K, ranks): when each rank noticed the end of each.
        dumps: The dumps of the ranks.
    """
    arrivals = collectives.arrivals
    remarks = [*collectives.remarks]
    differences = noticed - np.median(noticed, axis=1, keepdims=True)
    offsets = np.nanmedian(differences, axis=0)
    if np.abs(offsets).max() > _NOTICED_SECONDS:
        arrivals = arrivals - offsets
        noticed = noticed - offsets
        worst = int(np.abs(offsets).argmax())
        remarks.append(
            f"The clocks of the hosts differ, the clock of rank {dumps[worst].rank} by"
            f" {offsets[worst]:+.3g} s: they were set by the ends of the collectives, which are"
            " noticed up to a tenth of a second late.",
        )
    return replace(
        collectives,
        arrivals=arrivals,
        # it has ended when the first rank notices it
        ends=noticed.min(axis=1),
        remarks=remarks,
    )


def _on_device(collectives: Collectives, durations: Floats, chosen: Ints) -> Collectives:
    """Collectives with the arrivals of the devices.

    A collective ends on all devices at once: who came last has the shortest duration, which is that
    of the transfer.

    Args:
        collectives: The collectives, with the arrivals of the processes.
        durations: (K, ranks): how long each was on each device, in seconds.
        chosen: The numbers of those for which that is known; the others are left out.
    """
    durations = durations[chosen]
    last = collectives.arrivals[chosen].max(axis=1)
    transfers = durations.min(axis=1)
    remark = (
        "The waiting is from the durations of the collectives on the devices; the length of a step"
        " is from when the last process queued them."
    )
    return replace(
        collectives,
        names=[collectives.names[index] for index in chosen.tolist()],
        shapes=[collectives.shapes[index] for index in chosen.tolist()],
        arrivals=last[:, None] - (durations - transfers[:, None]),
        ends=last + transfers,
        remarks=[*collectives.remarks, remark],
    )


def _ranks(numbers: Sequence[int]) -> str:
    """Ranks as text, consecutive ones as a range."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    ]
    texts = []
    for run in runs:
        if len(run) > 2:
            texts.append(f"{run[0]} to {run[-1]}")
        else:
            texts.append(", ".join(map(str, run)))
    if len(numbers) > 1:
        noun = "ranks"
    else:
        noun = "rank"
    return f"{noun} {first_of(texts)}"
