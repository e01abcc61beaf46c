"""The one door to logs: recognise the format, read it."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from ata_gym.bench.logs import flight_recorder, megatron, tables, tensorboard, traceml, traces
from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.refused import refuse
from ata_gym.bench.logs.task_streams import dask_stream, ray_timeline
from ata_gym.utils.files.atomic import check_source

FORMATS = (
    flight_recorder.FORMAT,
    ray_timeline.FORMAT,
    dask_stream.FORMAT,
    traceml.FORMAT,
    tensorboard.FORMAT,
    megatron.FORMAT,
    traces.FORMAT,
    tables.FORMAT,
)
"""All formats; the first that recognises a file or folder reads it. The last takes any."""


def read_log(
    path: str | PathLike[str],
    *,
    worker: str | None = None,
    duration: str | None = None,
    round: str | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    pattern: str | None = None,
    warmup: int | None = None,
) -> Log:
    r"""Read a job's times from a file, or from a folder with a file of each rank.

    Steps that lack a worker are left out.

    Args:
        path: A table (.csv, .csv.gz, .parquet, .jsonl, .ndjson) with a row for each worker and
            step, or for each task, as a ``TraceRecorder`` writes; or a folder with Chrome traces
            (.json, .json.gz) of each rank, with the steps of ``torch.profiler.profile``. From
            traces, the time in which collectives blocked a rank is taken out.
        worker: The name of the column of workers; by default a usual name.
        duration: The name of the column of times; by default a usual name.
        round: The name of the column of steps; by default a usual name. Without such a column, the
            k-th row of each worker is of step k.
        where: The entries of the rows that count, by the name of the column: a row has one of them.
        pattern: A regular expression that finds worker, step and time in the lines of a text.
        warmup: The number of first steps that are left out; by default those that the data show.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: For what cannot be read, for columns that are not found or could be several, and
            for fewer than two workers or two whole steps.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "times.csv")
        >>> _ = path.write_text("rank,step,seconds\n0,1,2\n1,1,4\n0,2,3\n1,2,6\n0,3,1\n")
        >>> log = read_log(path)
        >>> log.workers, log.seconds.tolist(), log.remarks
        (['0', '1'], [[2.0, 4.0], [3.0, 6.0]], ['1 of 3 steps lack a worker, and are left out.'])
        >>> folder.cleanup()
    """
    path = Path(path)
    if not path.is_dir():
        check_source(path)
    options = Options(worker, duration, round, where or {}, pattern, warmup)
    try:
        known_format = next(one for one in FORMATS if one.recognises(path))
        # a pattern finds times in the text of any tool
        if known_format is tables.FORMAT and pattern is None:
            refuse(path)
        return known_format.read(path, options)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
