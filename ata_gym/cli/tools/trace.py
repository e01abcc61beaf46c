"""``ata-gym trace``: a clean trace from recorded data of any form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import say, say_json


def trace(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Recorded data: CSV, maybe compressed, or Parquet.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The trace to write: .parquet or .csv.")],
    worker_column: Annotated[str, typer.Option(help="The column that names the worker.")],
    duration: Annotated[str, typer.Option(help="The task time: a column, or a SQL expression over the columns.")],
    round_column: Annotated[str | None, typer.Option(help="The column of rounds, if there is one.")] = None,
    json: options.Json = False,
) -> None:
    r"""Make a trace of task times from any CSV or Parquet file.

    It has the columns worker, duration and maybe round. For example, the time of one task (a window of batches) from
    the training speeds that MLPerf publishes:

    ```
    ata-gym trace mlperf_v07_resnet50_speed.csv.gz mlperf.parquet \
        --worker-column system --duration \
        "(batch_to - batch_from) * global_batch_size / samples_per_sec"
    ata-gym bench --trace mlperf.parquet --worker-column worker \
        --duration-column duration --budget 23 --out results/mlperf
    ```
    """
    from ata_gym.bench.recordings import make_trace  # noqa: PLC0415 - its imports take a second

    pool = make_trace(source, target, worker=worker_column, duration=duration, round=round_column)
    mean, tasks = pool.mean(), int(pool.distributions.length.sum())
    if json:
        say_json({"trace": str(target), "workers": pool.n, "tasks": tasks, "mean_task_times": mean.tolist()})
        return
    say(f"{target}: {pool.n} workers, {tasks:,} tasks, mean task times {mean.min():.4g} to {mean.max():.4g}")
