"""Recording the task times of real workers in a CSV file, which envs and experiments replay."""

import csv
import io
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from os import PathLike
from pathlib import Path

from ata_gym.cluster.round_record import RoundRecord
from ata_gym.typing import Worker
from ata_gym.utils.validation import as_float, short
from ata_policies.propensities import Propensities

_COLUMNS = ("worker", "round", "duration")
_NONE = Propensities({}, 1.0)
_PROPENSITY_COLUMNS = (*_COLUMNS, "propensity", "allocation_propensity")


class TraceRecorder(AbstractContextManager["TraceRecorder"]):
    """Appends the times of each round's results to a CSV file.

    The columns are worker, round and duration.
    ``ata_gym.pools.read_trace(path, worker="worker", duration="duration")`` replays it in an env,
    and so does ``ata-gym bench --trace``. There the workers are in the order of their names, and
    each task takes its worker's next time; a worker without results has no place.
    ``ata-gym what-if`` reads the file as the log of a job, in which a worker without times in a
    round was given no task.

    Every round is written and flushed at once, so that a kill loses one round at most. An existing
    file is continued, and a last line that was cut off is removed. Close the recorder at the end,
    or use it in a ``with`` statement.

    Args:
        path: The file.
        propensities: Whether the file says how likely each decision was, so that ``what-if`` can
            give doubly robust estimates. Each record must have its ``propensities`` then. Two
            columns are added: propensity, the probability that the worker gets a task in the round,
            and allocation_propensity, the probability of the whole allocation. A worker without a
            task has a row without a duration. A round with other results than its allocation asked
            for, such as where a worker was lost, is left out: its probability is not known.

    Raises:
        ValueError: If the file holds something else.

    Example:
        >>> import tempfile
        >>> from ata_gym.pools import read_trace
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "times.csv")
        >>> seconds = {"a": (0.5, 0.25), "b": (1.5,)}
        >>> with TraceRecorder(path) as recorder:
        ...     recorder.add(RoundRecord(1, {"a": 2, "b": 1}, seconds, round_time=1.6))
        >>> print(path.read_text(encoding="utf-8"), end="")
        worker,round,duration
        a,1,0.5
        a,1,0.25
        b,1,1.5
        >>> read_trace(path, worker="worker", duration="duration").mean()
        array([0.375, 1.5  ])
        >>> folder.cleanup()
    """

    last_round: int = 0
    """The number of the last round in the file; 0 if there is none."""

    def __init__(self, path: str | PathLike[str], *, propensities: bool = False) -> None:
        self.path = Path(path)
        self._columns = _PROPENSITY_COLUMNS if propensities else _COLUMNS
        length = 0
        if self.path.exists():
            whole_lines = _whole_lines(self.path, self._columns)
            length = len(whole_lines)
            self.last_round = _last_round(whole_lines)
        self._file = self.path.open("ab")
        # This removes a last line that was cut off.
        self._file.truncate(length)
        if not length:
            self._write([self._columns])

    def add(self, record: RoundRecord) -> None:
        """Write the times of a round.

        Raises:
            ValueError: If the recorder is closed, a worker's name has a line break, or propensities
                are asked for and missing or no probabilities.
        """
        for worker in (*record.seconds, *(record.propensities or _NONE).workers):
            if len(str(worker).splitlines()) > 1:
                raise ValueError(
                    f"the name of a worker in a trace must be one line, not {worker!r}",
                )
        rows: list[tuple[object, ...]] = []
        if self._columns == _COLUMNS:
            for worker, times in record.seconds.items():
                rows += [(worker, record.round, time) for time in times]
        else:
            rows = _rows_with_propensities(record)
        self._write(rows)
        self.last_round = record.round

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, rows: list[tuple[object, ...]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode())
        self._file.flush()


def _rows_with_propensities(record: RoundRecord) -> list[tuple[object, ...]]:
    """The rows of a round; none if its results are not those that its allocation asked for.

    Raises:
        ValueError: If propensities are missing or no probabilities.
    """
    propensities = record.propensities
    if propensities is None:
        raise ValueError(
            f"round {record.round} has no propensities: give RoundRecord(propensities="
            "allocator.propensities()), or record without propensities",
        )
    results = {worker: len(times) for worker, times in record.seconds.items() if times}
    if results != {worker: count for worker, count in record.tasks.items() if count}:
        return []
    unknown: list[Worker] = [name for name in results if name not in propensities.workers]
    if unknown:
        raise ValueError(
            f"round {record.round} has times of worker {unknown[0]!r}, and no propensity of it:"
            " give one of each worker that is there",
        )
    _check_propensity("the allocation", propensities.allocation, True)
    rows: list[tuple[object, ...]] = []
    for worker, propensity in propensities.workers.items():
        _check_propensity(f"worker {worker!r}", propensity, worker in results)
        # A worker without a task has a row with an empty cell.
        times_or_none = record.seconds.get(worker, ()) or ("",)
        ends = (propensity, propensities.allocation)
        rows += [(worker, record.round, time, *ends) for time in times_or_none]
    return rows


def _check_propensity(owner: str, propensity: float, positive: bool) -> None:
    """Raise a ValueError unless a number is a probability, above 0 where it has come true."""
    number = as_float(propensity)
    if not (0.0 <= number <= 1.0 and (number > 0.0 or not positive)):
        lower = "above 0" if positive else "from 0"
        raise ValueError(
            f"the propensity of {owner} must be a probability, {lower} to 1, not"
            f" {short(propensity)}",
        )


def _whole_lines(path: Path, columns: Sequence[str]) -> bytes:
    """The whole lines of a trace; ``ValueError`` if it is no such trace."""
    header = ",".join(columns).encode() + b"\n"
    content = path.read_bytes()
    if not header.startswith(content[: len(header)]):
        raise ValueError(
            f"{path} holds something else than the columns {', '.join(columns)}: give another file",
        )
    return content[: content.rfind(b"\n") + 1]


def _last_round(whole_lines: bytes) -> int:
    """The number of the round of the last line; 0 where there is no number."""
    rows = whole_lines.decode(errors="replace").splitlines()[1:]
    cells = next(csv.reader(rows[-1:]), [])
    with suppress(IndexError, ValueError):
        return int(cells[_COLUMNS.index("round")])
    return 0
