"""``ata-gym what-if``: what stragglers cost in a job of which the times are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, say, say_files, say_json, show
from ata_gym.utils.atomic import check_place


def what_if(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Times of a job: .csv, .parquet, .jsonl, or a folder of profiler traces.",
        ),
    ],
    worker_column: Annotated[
        str | None,
        typer.Option(help="The column that names the worker."),
    ] = None,
    duration_column: Annotated[str | None, typer.Option(help="The column of times.")] = None,
    round_column: Annotated[
        str | None,
        typer.Option(help="The column that numbers the steps."),
    ] = None,
    tasks: Annotated[
        int,
        typer.Option(help="Tasks into which the share of a worker in a step is cut."),
    ] = 8,
    policies: options.Policies = "default,restarting-beta,lb-bsp-ema",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder for the page and what was learned."),
    ] = None,
    json: options.Json = False,
) -> None:
    r"""Say what stragglers cost in a job, from its log.

    The log has the time that each worker needed in each step, before it waited for others. Its
    steps are played again: with other shares, by policies that learn, as a race, by dispatch, and
    without the worst worker. What was learned is in state.json, for Allocator(prior=...) and
    TorchAllocator(prior=...) in the real run.

    ```
    ata-gym what-if times.csv
    ata-gym what-if times.csv --worker-column gpu --duration-column ms \
        --out results/what-if
    ata-gym what-if profiler-traces --json
    ```
    """
    from ata_gym.bench.studies.what_if import page
    from ata_gym.bench.studies.what_if.logs import read_log
    from ata_gym.bench.studies.what_if.study import what_if as play

    times = read_log(log, worker=worker_column, duration=duration_column, round=round_column)
    if out is not None:
        check_place(out / "report.html")
    result = play(times, tasks=tasks, policies=options.split_names(policies))
    if out is None:
        files = []
    else:
        files = page.leave(result, out, command_line())
    if json:
        say_json(page.to_data(result))
        return
    show(*page.tables(result))
    for sentence in (result.verdict, page.cost(result), *times.remarks):
        say(sentence)
    if files:
        say_files("files", files)
