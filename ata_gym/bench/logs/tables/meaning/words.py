"""What the names of columns and the entries of rows mean, by the words that they consist of."""

import re
from collections.abc import Iterable

_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
"""Where a new word begins: after a sign, and at a capital letter."""

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
_PART_WORDS = _WAIT_WORDS | _LOADING_WORDS | _COMPUTE_WORDS | {"all", "to"}
"""The words of a column of times that does not say that it is one."""
_WHOLE_WORDS = frozenset(
    (
        *("step", "steps", "iter", "iteration", "batch", "minibatch", "round", "total", "whole"),
        *("overall", "e2e", "end2end", "cycle", "epoch"),
    )
)
_TIME_WORDS = frozenset(
    (
        *("time", "times", "duration", "durations", "dur", "elapsed", "latency", "took", "dt"),
        *("seconds", "second", "secs", "sec", "s", "ms", "us", "ns", "msec", "usec", "msecs"),
        *("millis", "milliseconds", "millisecond", "micros", "microseconds", "nanoseconds"),
        *("runtime", "walltime"),
    )
)
_NO_DURATION_WORDS = frozenset(
    (
        *("timestamp", "timestamps", "ts", "start", "started", "end", "ended", "begin", "stop"),
        *("date", "datetime", "now", "eta", "remaining", "throughput", "at", "since"),
        *("cumulative", "cum", "relative", "unix", "zone", "rate", "speed"),
        *("samples", "tokens", "images", "examples", "items", "bytes", "mb", "gb", "flops"),
    )
)
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


def words(name: str) -> list[str]:
    """Return the words of a name, in small letters.

    Example:
        >>> words("trainer/globalStep"), words("Local Rank"), words("_step")
        (['trainer', 'global', 'step'], ['local', 'rank'], ['step'])
    """
    return [word.lower() for word in _BOUNDARY.split(name) if word]


def plain(name: str) -> str:
    """Return a name in small letters, with one underscore between its words.

    Example:
        >>> plain("Global Rank"), plain("step-time.ms")
        ('global_rank', 'step_time_ms')
    """
    return "_".join(words(name))


def is_waiting(name: str) -> bool:
    """Whether an operation or a column of times is waiting or communication, by its name.

    Example:
        >>> [is_waiting(name) for name in ("grads-reduce-scatter", "ncclDevKernel_AllReduce")]
        [True, True]
        >>> [is_waiting(name) for name in ("forward-compute", "data_wait", "async_forward")]
        [False, False, False]
    """
    # who waits for data waits for no other worker
    if is_loading(name):
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
    return _has(name, _COMPUTE_WORDS) and not is_waiting(name)


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
    if name == "_runtime" or not name_words or _has(name, _NO_DURATION_WORDS):
        return False
    if name_words[1:] and name_words[-1] in _TIME_WORDS and name_words[-2] in ("per", "it"):
        return False
    return _has(name, _TIME_WORDS) or _PART_WORDS.issuperset(name_words)


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
        return f"{', '.join(all_names[:most])} and {len(all_names) - most} more"
    if len(all_names) < 2:
        return "".join(all_names)
    return f"{', '.join(all_names[:-1])} {last} {all_names[-1]}"


def _has(name: str, some: frozenset[str]) -> bool:
    return not some.isdisjoint(words(name))
