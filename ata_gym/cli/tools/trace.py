"""``ata-gym trace``: a clean trace from recorded data of any form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli.console import say


def trace(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Recorded data: CSV, maybe compressed, or Parquet.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The trace to write: .parquet or .csv.")],
    worker_column: Annotated[str, typer.Option(help="The column that names the worker.")],
    duration: Annotated[str, typer.Option(help="The task time: a column, or a SQL expression over the columns.")],
    round_column: Annotated[str | None, typer.Option(help="The column of rounds, if there is one.")] = None,
) -> None:
    r"""Make a trace, with columns worker, duration and maybe round, from any CSV or Parquet file.

    For example, the time of one task (a window of batches) from the training speeds that MLPerf publishes:

    ```
    ata-gym trace mlperf_v07_resnet50_speed.csv.gz mlperf.parquet --worker-column system \
        --duration "(batch_to - batch_from) * global_batch_size / samples_per_sec"
    ata-gym bench --trace mlperf.parquet --worker-column worker \
        --duration-column duration --budget 23 --out results/mlperf
    ```
    """
    from ata_gym.bench.recordings import make_trace  # noqa: PLC0415 - its imports take a second

    pool = make_trace(source, target, worker=worker_column, duration=duration, round=round_column)
    mean = pool.mean()
    say(
        f"{target}: {pool.n} workers, {int(pool.distributions.length.sum()):,} tasks, "
        f"mean task times {mean.min():.4g} to {mean.max():.4g}"
    )
