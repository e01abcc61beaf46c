"""What the names of columns, files and keys say: their role, their unit, and a worker."""

import re
from collections.abc import Mapping, Sequence, Set


def _set_of(names: str) -> frozenset[str]:
    return frozenset(names.split())


_UNIT_WORDS: Mapping[float, tuple[str, ...]] = {
    1e-9: ("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"),
    1e-6: ("us", "µs", "μs", "usec", "usecs", "micros", "microsecond", "microseconds"),
    1e-3: ("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("min", "mins", "minute", "minutes"),
    3600.0: ("hr", "hrs", "hour", "hours"),
}
"""Words for units of time, by their seconds."""

UNITS: Mapping[str, float] = {
    word: seconds for seconds, words in _UNIT_WORDS.items() for word in words
}
"""The seconds of a unit, by each of its words."""

_WORKER_NAMES = _set_of(
    "worker worker_id worker_rank worker_name rank global_rank world_rank rank_id node node_id"
    " node_name host hostname host_name machine machine_id device device_id gpu gpu_id local_rank"
    " process process_id proc proc_id process_index trainer trainer_id replica replica_id"
)
_ROUND_NAMES = _set_of(
    "round step step_id step_num step_idx step_index global_step iteration iter it batch batch_id"
    " batch_idx batch_index epoch cycle"
)
_DURATION_NAMES = _set_of(
    "duration dur step_time step_duration iter_time iteration_time compute_time batch_time"
    " batch_time_norm train_time elapsed elapsed_time time_elapsed time_taken took latency runtime"
    " run_time wall_time walltime time_per_step time_per_iter time_per_iteration"
)
_MOMENT_WORDS = _set_of(
    "start started begin began end ended stop stopped finish finished timestamp ts eta since"
    " date datetime"
)
"""Words that say that a time is a point of time and no duration."""

_RATE_WORDS = _set_of(
    "it its iter iters iteration iterations sample samples token tokens step steps example examples"
    " img imgs image images flop flops batch batches byte bytes"
)

_OTHER_WORDS = _set_of(
    "epoch step iter iteration run part cycle seed attempt trial batch fold job version checkpoint"
    " date day train training eval evaluation val valid validation test forward backward"
)
"""Words of names that tell files apart which are not those of different workers."""

_WORKER_WORDS = (
    *("globalrank", "worldrank", "rank", "worker", "process", "proc", "trainer", "replica"),
    *("localrank", "gpu", "device", "cuda", "node", "host", "machine", "server", "instance", "pod"),
)
"""Words before the number of a worker; where the numbers of several tell the workers apart, the
first is the worker's."""

_WORKER_PART = re.compile(
    r"(?<![a-z])(?P<word>(?:global|world|local)[ _-]?rank|"
    + "|".join(word for word in _WORKER_WORDS if not word.endswith("lrank"))
    + r")(?P<gap>[ _.:#=\[\"'-]{0,3})(?P<number>\d{1,18}|(?<=[ _.-])[a-z](?![a-z0-9]))[\]\"']{0,2}",
    re.IGNORECASE,
)

WorkerKey = tuple[tuple[str, str], ...]
"""The words and numbers of a worker in a name, such as (("node", "1"), ("rank", "0"))."""


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case.

    Example:
        >>> words_of("stepTimeMs"), words_of("t0"), words_of("timing/step_time [s]")
        (['step', 'time', 'ms'], ['t0'], ['timing', 'step', 'time', 's'])
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", spaced.lower())


def name_and_unit(name: str) -> tuple[str, float | None]:
    """Return a name without its unit, and the seconds of the unit; None if it says none.

    The name is that of ``words_of``, joined by "_", after the last "/" or "." of a path.

    Example:
        >>> name_and_unit("step_time (ms)"), name_and_unit("timing.forward_us")
        (('step_time', 0.001), ('forward', 1e-06))
        >>> name_and_unit("seconds"), name_and_unit("samples_per_second")
        (('', 1.0), ('samples_per_second', None))
    """
    rate = re.fullmatch(r"(.+?)\s*/\s*([^\W\d_]+)", name)
    if rate and words_of(rate[1])[-1:] and words_of(rate[1])[-1] in {*_RATE_WORDS, *UNITS}:
        # "s/it" is a time for each, "tokens/s" is none
        first = words_of(rate[1])
        return "_".join(first[:-1]), UNITS.get(first[-1])
    words = words_of(re.split(r"[/.](?=[^/.]*[^\W\d_])", name)[-1])
    per = words.index("per") if "per" in words else len(words)
    if per < len(words):
        unit = UNITS.get(words[per - 1]) if per else None
        if unit is not None:
            return "_".join(words[: per - 1]), unit
        if words[-1] not in UNITS or words[per + 1 :] == words[-1:]:
            return "_".join(words), None
    if not words or words[-1] not in UNITS:
        return "_".join(words), None
    before = words[:-1]
    if before[-1:] == ["in"]:
        before = before[:-1]
    return "_".join(before), UNITS[words[-1]]


def is_worker(name: str) -> bool:
    """Whether a column of this name usually holds workers."""
    return name_and_unit(name)[0] in _WORKER_NAMES


def is_place(name: str) -> bool:
    """Whether a column of workers names a machine or a device, of which several may be alike."""
    return bool(
        {"host", "hostname", "node", "machine", "device", "gpu", "local"} & {*words_of(name)}
    )


def names_worker(name: str) -> bool:
    """Whether a word of a name is that of a worker, as in "my_rank"."""
    return bool({*words_of(name)} & {*_WORKER_WORDS, "hostname", "pid", "ip"})


def tells_no_workers(words: Set[str]) -> bool:
    """Whether one of these words tells other things apart than workers, such as epochs."""
    return bool(_OTHER_WORDS & words)


def is_round(name: str) -> bool:
    """Whether a column of this name usually holds the numbers of steps, or of what they are in."""
    return name_and_unit(name)[0] in _ROUND_NAMES


def is_duration(name: str) -> bool:
    """Whether a column of this name usually holds the time of a step."""
    plain, unit = name_and_unit(name)
    if plain in {"", "time"}:
        return unit is not None
    return plain in _DURATION_NAMES


def is_time(name: str) -> bool:
    """Whether a column of this name holds durations, be they of a step or of a part of it."""
    plain, unit = name_and_unit(name)
    words = set(plain.split("_"))
    if words & _MOMENT_WORDS:
        return False
    return is_duration(name) or unit is not None or bool(words & {"time", "duration", "latency"})


def worker_key(name: str) -> WorkerKey:
    """Return the words for workers in a name with their numbers, or an empty key.

    Example:
        >>> worker_key("node1/rank_0"), worker_key("step_time")
        ((('node', '1'), ('rank', '0')), ())
    """
    return tuple(
        (re.sub("[ _-]", "", part["word"].lower()), part["number"])
        for part in _WORKER_PART.finditer(name)
    )


def without_worker(name: str) -> str:
    """Return what a name says besides the worker.

    Example:
        >>> without_worker("rank0"), without_worker("rank_3/step_time (ms)")
        ('', 'step_time (ms)')
    """
    rest = _WORKER_PART.sub("", name.partition("{")[0])
    return re.sub(r"^[\s_./:|-]+|[\s_./:|-]+$", "", rest)


def worker_names(keys: Sequence[WorkerKey]) -> list[int | str]:
    """Return the names of workers by their keys: a number, where one word tells them apart.

    Args:
        keys: Keys, none of them empty; equal keys get equal names.

    Example:
        >>> worker_names([worker_key("host7-rank1"), worker_key("host9-rank0")])
        [1, 0]
        >>> worker_names([worker_key("node0/gpu0"), worker_key("node1/gpu0")])
        [0, 1]
        >>> worker_names([worker_key(f"node{i}/gpu{j}") for i in (0, 1) for j in (0, 1)])
        ['node0/gpu0', 'node0/gpu1', 'node1/gpu0', 'node1/gpu1']
    """
    count = len(set(keys))
    for word in _WORKER_WORDS:
        numbers = [dict(key).get(word) for key in keys]
        if None not in numbers and len(set(numbers)) == count:
            return [_number(str(number)) for number in numbers]
    return ["/".join(word + number for word, number in key) for key in keys]


def _number(text: str) -> int | str:
    if text.isdecimal():
        return int(text)
    return text
