"""Recording the task times of real workers in a CSV file, which envs and experiments replay."""

import csv
import io
from contextlib import AbstractContextManager, suppress
from os import PathLike
from pathlib import Path

from ata_gym.cluster.round_record import RoundRecord

_COLUMNS = ("worker", "round", "duration")


class TraceRecorder(AbstractContextManager["TraceRecorder"]):
    """Appends the times of each round's results to a CSV file.

    The columns are worker, round and duration.
    ``ata_gym.pools.read_trace(path, worker="worker", duration="duration")`` replays it in an env,
    and so does ``ata-gym bench --trace``. There the workers are in the order of their names, and
    each task takes its worker's next time; a worker without results has no place.
    ``ata-gym what-if`` reads the file as the log of a job.

    Every round is written and flushed at once, so that a kill loses one round at most. An existing
    file is continued, and a last line that was cut off is removed. Close the recorder at the end,
    or use it in a ``with`` statement.

    Args:
        path: The file.

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

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        length = 0
        if self.path.exists():
            whole_lines = _whole_lines(self.path)
            length = len(whole_lines)
            self.last_round = _last_round(whole_lines)
        self._file = self.path.open("ab")
        # This removes a last line that was cut off.
        self._file.truncate(length)
        if not length:
            self._write([_COLUMNS])

    def add(self, record: RoundRecord) -> None:
        """Write the times of a round.

        Raises:
            ValueError: If the recorder is closed, or a worker's name has a line break.
        """
        for worker in record.seconds:
            if len(str(worker).splitlines()) > 1:
                raise ValueError(
                    f"the name of a worker in a trace must be one line, not {worker!r}",
                )
        rows: list[tuple[object, ...]] = [
            (worker, record.round, time)
            for worker, times in record.seconds.items()
            for time in times
        ]
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


def _whole_lines(path: Path) -> bytes:
    """The whole lines of a trace; ``ValueError`` if it is no such trace."""
    header = ",".join(_COLUMNS).encode() + b"\n"
    content = path.read_bytes()
    if not header.startswith(content[: len(header)]):
        raise ValueError(
            f"{path} holds something else than the columns {', '.join(_COLUMNS)}: give another"
            " file",
        )
    return content[: content.rfind(b"\n") + 1]


def _last_round(whole_lines: bytes) -> int:
    """The number of the round of the last line; 0 where there is no number."""
    rows = whole_lines.decode(errors="replace").splitlines()[1:]
    cells = next(csv.reader(rows[-1:]), [])
    with suppress(IndexError, ValueError):
        return int(cells[_COLUMNS.index("round")])
    return 0
