"""What the names of columns and the entries of rows mean, by the words that they consist of."""

import re
from collections.abc import Iterable, Mapping

from ata_gym.utils.validation import first_of

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
    word: seconds for seconds, unit_words in _UNIT_WORDS.items() for word in unit_words
}
"""The seconds of a unit, by each of its words."""

_WAIT_WORDS = frozenset(
    (
        *("wait", "waiting", "waited", "idle", "stall", "stalled", "blocked", "bubble", "barrier"),
        *("send", "recv", "receive", "sync", "synchronize", "synchronization", "exchange", "p2p"),
        *("comm", "comms", "communication", "communicate", "collective", "collectives", "network"),
        *("nccl", "gloo", "rccl", "mpi", "c10d", "broadcast", "bcast", "gather", "scatter"),
        *("reduce", "exposed"),
    )
)
_WAIT_PARTS = (
    *("allreduce", "allgather", "reducescatter", "alltoall", "sendrecv", "broadcast"),
    *("nccl", "gloo", "rccl", "c10d", "barrier"),
)
_LOADING_WORDS = frozenset(
    (
        *("data", "dataloader", "dataloading", "loader", "loading", "load", "fetch", "prefetch"),
        *("input", "io", "read"),
    )
)
_COMPUTE_WORDS = frozenset(
    (
        *("compute", "computation", "computing", "comp", "calc", "busy", "own", "kernel"),
        *("forward", "backward", "fwd", "bwd", "fb", "grad", "gradient", "gradients"),
        *("forwardbackward", "fwdbwd", "forwards", "backwards"),
    )
)
_LATENCY_WORDS = frozenset(
    (
        *("startup", "setup", "launch", "launching", "queue", "queued", "queueing", "queuing"),
        *("latency", "latencies", "transfer", "transferring", "download", "provisioning"),
    )
)
"""Words for what a worker pays before its first task, whatever the size of its share."""
_WITHOUT_WORDS = frozenset(("without", "wo", "excluding", "excl", "minus", "no"))
"""Words before what a time does not hold, such as "step_time_wo_comm"."""
_PART_WORDS = _WAIT_WORDS | _LOADING_WORDS | _COMPUTE_WORDS | {"all", "to"}
"""The words of a column of times that does not say that it is one."""
_WHOLE_WORDS = frozenset(
    (
        *("step", "steps", "iter", "iteration", "batch", "minibatch", "round", "total", "whole"),
        *("overall", "e2e", "end2end", "cycle", "epoch"),
    )
)
# "min" is as often a minimum
_TIME_WORDS = frozenset(UNITS) - {"min", "mins"} | frozenset(
    (
        *("time", "times", "duration", "durations", "dur", "elapsed", "latency", "latencies"),
        *("timing", "timings"),
        *("took", "dt", "runtime", "walltime"),
    )
)
_MOMENT_WORDS = frozenset(
    (
        *("timestamp", "timestamps", "ts", "start", "started", "begin", "began", "end", "ended"),
        *("stop", "stopped", "finish", "finished", "date", "datetime", "eta", "since"),
    )
)
"""Words that say that a time is a point of time and no duration."""
_NO_DURATION_WORDS = _MOMENT_WORDS | frozenset(
    (
        *("now", "remaining", "throughput", "at", "cumulative", "cum"),
        *("relative", "unix", "zone", "rate", "speed"),
        *("percent", "percentage", "pct", "ratio", "fraction", "utilization", "utilisation"),
        *("samples", "tokens", "images", "examples", "items", "bytes", "mb", "gb", "flops"),
    )
)
_RATE_WORDS = frozenset(
    (
        *("it", "its", "iter", "iters", "iteration", "iterations", "step", "steps", "sample"),
        *("samples", "token", "tokens", "example", "examples", "img", "imgs", "image", "images"),
        *("flop", "flops", "batch", "batches", "byte", "bytes"),
    )
)
"""What a time is for each of, or a rate counts."""
_RATE_NAMES = frozenset(("throughput", "ips", "fps", "qps", "tps", "tflops", "tflop"))
_RATE = re.compile(r"([^\W\d_]+)\s*(?:[\W_]+per[\W_]+|/\s*)(?=([^\W\d_]+)(?![^\W\d_]))")
"""A count and a unit of time, such as "samples_per_sec" and "it/s"."""
_SECONDS = frozenset(("s", "sec", "second", "min", "minute", "hour"))
"""The units of time of a rate; where "/" parts the groups of a name, its last part is another."""
_COMMON_WORDS = frozenset(("train", "training", "per", "wall", "run", "norm", "in", "taken"))
"""Words that may stand beside a word for a length of time, and do not say what takes it."""
_EVALUATION_WORDS = frozenset(
    (
        *("eval", "evaluation", "evaluate", "evaluating", "val", "valid", "validation"),
        *("validate", "validating", "test", "testing", "sanity", "predict", "inference"),
    )
)
_PAUSE_WORDS = frozenset(
    ("warmup", "checkpoint", "checkpointing", "ckpt", "save", "saving", "compile", "compilation")
)
_TRAINING_WORDS = frozenset(("train", "training", "trainer", "step", "fit"))
SUMMARY_WORDS = frozenset(
    (
        *("mean", "avg", "average", "median", "max", "min", "std", "stdev", "p50", "p90", "p95"),
        *("p99", "total", "sum", "overall", "all"),
    )
)
"""Words for figures over several workers."""
_FORWARD_WORDS = frozenset(("forward", "forwards", "fwd"))
_BACKWARD_WORDS = frozenset(("backward", "backwards", "bwd"))


def words(name: str) -> list[str]:
    """Return the words of a name, in small letters.

    Example:
        >>> words("trainer/globalStep"), words("Local Rank"), words("_step")
        (['trainer', 'global', 'step'], ['local', 'rank'], ['step'])
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    # it is a whole, and no end
    spaced = re.sub(r"\bend[\W_]to[\W_]end", "e2e", spaced.replace("_", " "))
    # it is no moment, either
    spaced = re.sub(r"\b(start|set)[\W_]up\b", r"\1up", spaced)
    return re.findall(r"[^\W_]+", spaced)


def plain(name: str) -> str:
    """Return a name in small letters, with one underscore between its words.

    Example:
        >>> plain("Global Rank"), plain("step-time.ms")
        ('global_rank', 'step_time_ms')
    """
    return "_".join(words(name))


def last_part(name: str) -> str:
    """Return a name after the last "/" or "." of a path.

    Example:
        >>> last_part("timing/step.ms"), last_part("seconds.5")
        ('ms', 'seconds.5')
    """
    return re.split(r"[/.](?=[^/.]*[^\W\d_])", name)[-1]


def name_and_unit(name: str) -> tuple[str, float | None]:
    """Return a name without its unit, and the seconds of the unit; None if it says none.

    The name is made of its ``words``, joined by "_", after the last "/" or "." of a path.

    Example:
        >>> name_and_unit("step_time (ms)"), name_and_unit("timing.forward_us")
        (('step_time', 0.001), ('forward', 1e-06))
        >>> name_and_unit("seconds"), name_and_unit("samples_per_second")
        (('', 1.0), ('samples_per_second', None))
    """
    rate = re.fullmatch(r"(.+?)\s*/\s*([^\W\d_]+)", name)
    first = words(rate[1]) if rate else []
    if first and first[-1] in {*_RATE_WORDS, *UNITS}:
        # "s/it" is a time for each, "tokens/s" is none
        return "_".join(first[:-1]), UNITS.get(first[-1])
    parts = words(last_part(name))
    per = parts.index("per") if "per" in parts else len(parts)
    if per < len(parts):
        unit = UNITS.get(parts[per - 1]) if per else None
        if unit is not None:
            return "_".join(parts[: per - 1]), unit
        if parts[-1] not in UNITS or parts[per + 1 :] == parts[-1:]:
            return "_".join(parts), None
    if not parts or parts[-1] not in UNITS:
        return "_".join(parts), None
    before = parts[:-1]
    if before[-1:] == ["in"]:
        before = before[:-1]
    return "_".join(before), UNITS[parts[-1]]


def is_waiting(name: str) -> bool:
    """Whether an operation or a column of times is waiting or communication, by its name.

    Example:
        >>> [is_waiting(name) for name in ("grads-reduce-scatter", "ncclDevKernel_AllReduce")]
        [True, True]
        >>> [is_waiting(name) for name in ("forward-compute", "data_wait", "async_forward")]
        [False, False, False]
    """
    # who waits for data waits for no other worker
    if is_loading(name) or _has(name, _WITHOUT_WORDS):
        return False
    joined = "".join(words(name))
    return _has(name, _WAIT_WORDS) or any(part in joined for part in _WAIT_PARTS)


def is_loading(name: str) -> bool:
    """Whether a name says that data are loaded."""
    if "parallel" in words(name):
        return False
    return _has(name, _LOADING_WORDS)


def is_compute(name: str) -> bool:
    """Whether a name says that it is computation, and no waiting."""
    without_wait = _has(name, _WITHOUT_WORDS) and _has(name, _WAIT_WORDS)
    return without_wait or (_has(name, _COMPUTE_WORDS) and not is_waiting(name))


def is_latency(name: str) -> bool:
    """Whether a name says that a time is over before the first task of a share begins.

    Where it is the only time of a table, "latency" is the time of the share.

    Example:
        >>> [is_latency(name) for name in ("startup_ms", "start-up time", "queue_s", "data_queue")]
        [True, True, True, False]
        >>> [is_latency(name) for name in ("step_latency", "compute_ms", "transfer_wait_ms")]
        [False, False, False]
    """
    if is_loading(name) or is_waiting(name) or is_compute(name) or is_whole(name):
        return False
    return _has(name, _LATENCY_WORDS)


def is_whole(name: str) -> bool:
    """Whether a name says that it is a step as a whole, and none of its parts."""
    parts = is_waiting(name) or is_loading(name) or is_compute(name)
    return _has(name, _WHOLE_WORDS) and not parts


def is_duration(name: str) -> bool:
    """Whether a name is one of a length of time, and not of a point in time or of a rate.

    Example:
        >>> [is_duration(name) for name in ("train_step_ms", "dt", "sec/iter", "all_reduce")]
        [True, True, True, True]
        >>> [is_duration(name) for name in ("start_time", "tokens_per_s", "it/s", "grad_norm")]
        [False, False, False, False]
    """
    name_words = words(name)
    # what Weights & Biases calls so is the time since the start
    if name == "_runtime" or "%" in name or not name_words or _has(name, _NO_DURATION_WORDS):
        return False
    if is_rate(name):
        return False
    if name_words[1:] and name_words[-1] in _TIME_WORDS and name_words[-2] in ("per", "it"):
        return False
    return _has(name, _TIME_WORDS) or _PART_WORDS.issuperset(name_words)


def is_rate(name: str) -> bool:
    """Whether a name is one of what is done in a unit of time: the higher, the faster.

    Example:
        >>> [is_rate(name) for name in ("tokens_per_s", "global_step/sec", "throughput")]
        [True, True, True]
        >>> [is_rate(name) for name in ("s/it", "ms_per_step", "step/ms", "step_sec")]
        [False, False, False, False]
    """
    if _has(name, _RATE_NAMES):
        return True
    return any(
        match[2] in _SECONDS and not _RATE_WORDS.isdisjoint(words(match[1])[-1:])
        for text in (name.lower(), plain(name))
        for match in _RATE.finditer(text)
    )


def is_time(name: str) -> bool:
    """Whether a name says in a word that it is a length of time, of a step or of a part of it.

    Example:
        >>> [is_time(name) for name in ("forward_ms", "took", "all_reduce", "time")]
        [True, True, False, False]
    """
    return is_duration(name) and has_time_word(name) and not is_clock(name)


def is_share_time(name: str) -> bool:
    """Whether a name is a usual one of the time of a share of work, and of no part of it.

    Example:
        >>> [is_share_time(name) for name in ("step_time", "compute_ms", "elapsed", "data_time")]
        [True, True, True, False]
    """
    others = {*words(name)} - _TIME_WORDS - _COMMON_WORDS
    return is_time(name) and others <= _WHOLE_WORDS | _COMPUTE_WORDS and not is_half_pass(name)


def is_clock(name: str) -> bool:
    """Whether a name is "time" alone, which may be the point of time of a row."""
    return plain(last_part(name)) == "time"


def is_moment(name: str) -> bool:
    """Whether a name says that it is a point of time, such as "timestamp" or "start_ns"."""
    return _has(name, _MOMENT_WORDS)


def is_summary(name: str) -> bool:
    """Whether a name is one of a figure over several times, such as "max_ms"."""
    return _has(name, SUMMARY_WORDS)


def is_half_pass(name: str) -> bool:
    """Whether a name is one of the forward or of the backward pass alone."""
    return _has(name, _FORWARD_WORDS) != _has(name, _BACKWARD_WORDS)


def has_time_word(name: str) -> bool:
    """Whether a name has a word for a length of time, such as "time" or "ms"."""
    return _has(name, _TIME_WORDS)


def is_evaluation(name: str) -> bool:
    """Whether an entry is one of evaluation, warm-up or checkpoints, by its name."""
    return is_strictly_evaluation(name) or _has(name, _PAUSE_WORDS)


def is_strictly_evaluation(name: str) -> bool:
    """Whether an entry is one of evaluation, by its name."""
    return _has(name, _EVALUATION_WORDS)


def is_training(name: str) -> bool:
    """Whether an entry is one of training, by its name.

    Example:
        >>> is_training("train"), is_training("eval_step"), is_evaluation("eval_step")
        (True, False, True)
    """
    return _has(name, _TRAINING_WORDS) and not is_evaluation(name)


def listed(names: Iterable[str], last: str = "and", most: int = 8) -> str:
    """Return names as a text, cut after some.

    Example:
        >>> listed("abc", "or"), listed("abc", most=2)
        ('a, b or c', 'a, b and 1 more')
    """
    all_names = list(names)
    if len(all_names) > most:
        return first_of(all_names, most)
    if len(all_names) < 2:
        return "".join(all_names)
    return f"{', '.join(all_names[:-1])} {last} {all_names[-1]}"


def _has(name: str, some: frozenset[str]) -> bool:
    return not some.isdisjoint(words(name))
