"""``ata-gym what-if``: what stragglers cost in a job of which the times are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import (
    command_line,
    failures_at_the_end,
    say_json,
    say_problems,
    show_results,
)


def what_if(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Times of a job: a table (.csv, .parquet, .json ...), a text with --pattern, a"
            " folder with a table of each rank, or what a tool wrote: traces of torch.profiler,"
            " dumps of the Flight Recorder, TensorBoard, TraceML, Ray, Dask, Megatron-LM;"
            " docs/guide/formats.md has all of them.",
        ),
    ],
    reading: options.LogReading,
    tasks: Annotated[
        int,
        typer.Option(help="Tasks into which the share of a worker in a step is divided."),
    ] = 8,
    policies: options.Policies = "default,restarting-beta,lb-bsp-ema",
    without: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Ways of replay to leave out, such as race,dispatch."),
    ] = "",
    doubly_robust: Annotated[
        bool | None,
        typer.Option(
            help="Estimate costs doubly robustly, too, which needs a log with propensities; by"
            " default where it has them.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        options.folder_option(help="A folder for the page and what was learned."),
    ] = None,
    json: options.Json = False,
) -> None:
    r"""Say what stragglers cost in a job, from its log.

    The log must have the time that each worker needed in each step, before it waited for others.
    The answer is which worker was waited for, when, and how much that cost. The steps are replayed:
    with other shares, by policies that learn, as a race, by dispatch, and without the worst worker.
    With --out, what was learned is in state.json, for Allocator(prior=...) and
    TorchAllocator(prior=...) in the real run.

    ```
    ata-gym what-if times.csv
    ata-gym what-if times.csv --worker-column gpu --duration-column ms \
        --out results/what-if
    ata-gym what-if profiler-traces --json
    ```
    """
    import json as json_text

    from ata_gym import bench
    from ata_gym.bench.studies.what_if.page import DATA

    with failures_at_the_end():
        results = bench.what_if(
            log,
            tasks=tasks,
            policies=options.split_names(policies),
            without=without,
            **reading.arguments(),
            doubly_robust=doubly_robust,
            out=out,
            command=command_line(),
        )
    if json:
        say_json(json_text.loads(str(results.content.files[DATA])))
        say_problems(results)
    else:
        show_results(results)
