"""What the names of files, columns and keys say of a worker."""

import re
from collections.abc import Sequence, Set

from ata_gym.bench.logs.tables.words import words

_OTHER_WORDS = frozenset(
    (
        *("epoch", "step", "iter", "iteration", "run", "part", "cycle", "seed", "attempt", "trial"),
        *("batch", "fold", "job", "version", "checkpoint", "date", "day", "train", "training"),
        *("lr", "learning", "rate", "wd", "bs", "size", "config", "exp", "experiment", "dropout"),
        *("eval", "evaluation", "val", "valid", "validation", "test", "forward", "backward"),
    )
)
"""Words of names that tell files apart which are not files of different workers."""

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


def names_worker(name: str) -> bool:
    """Whether a word of a name stands for a worker, as in "my_rank"."""
    return bool({*words(name)} & {*_WORKER_WORDS, "hostname", "pid", "ip"})


def tells_no_workers(name_words: Set[str]) -> bool:
    """Whether one of these words tells other things apart than workers, such as epochs."""
    return bool(_OTHER_WORDS & name_words)


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
