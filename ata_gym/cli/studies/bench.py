"""``ata-gym bench``: run policies on a scenario or a trace, and report on them."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, say, say_error, show_report
from ata_gym.cli.studies.report import say_failure


def bench(
    out: options.Out,
    scenario: options.Scenario = None,
    data: options.Data = None,
    trace: options.Trace = None,
    worker_column: options.WorkerColumn = None,
    duration_column: options.DurationColumn = None,
    round_column: options.RoundColumn = None,
    budget: options.Budget = None,
    policies: options.Policies = options.PUBLISHED,
    rounds: options.Rounds = None,
    seeds: options.Seeds = 8,
    seed: options.Seed = 0,
    price: Annotated[float, typer.Option(help="What one unit of worker time costs in units of runtime.")] = 0.0,
    jobs: options.Jobs = None,
    save_every: options.SaveEvery = 10.0,
    workers: options.Workers = options.Where.local,
    address: options.Address = None,
    rerun_changed: options.RerunChanged = False,
    live: Annotated[
        bool, typer.Option("--live", help="Write OUT/report.html every few seconds; it follows by itself in a browser.")
    ] = False,
) -> None:
    r"""Run policies on a scenario or a trace, and report on them.

    Tables, pictures and records are left in a folder. After a kill the same command continues where it stopped, with
    the same result. Policies may be added later: those that have finished are not run again.

    ```
    ata-gym bench --scenario icml2025-regret --rounds 100000 \
        --out results/regret
    ata-gym bench --scenario icml2025-cifar100 --live --out results/cifar100
    ata-gym bench --scenario alibaba-4 --data recordings --out results/alibaba
    ata-gym bench --scenario icml2025-regret --out results/regret \
        --workers ray --address 10.0.0.1:6379
    ata-gym bench --trace times.csv --worker-column machine \
        --duration-column seconds --round-column step --budget 10 \
        --out results/times
    ```
    """
    from ata_gym.bench.benchmark import PolicyFailedWarning, run  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.experiment.store import Folder  # noqa: PLC0415
    from ata_gym.bench.page.render import NAME  # noqa: PLC0415

    columns = worker_column, duration_column, round_column
    found = options.find_scenario(scenario, data, trace, columns, budget, rounds)
    effort = options.checked_effort(jobs, save_every, rerun_changed, workers, address)
    if live:
        say(f"the report while it runs: {(out / NAME).resolve().as_uri()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyFailedWarning)  # each is said below, with the place of its traceback
        results = run(
            options.split_names(policies), found, rounds=rounds, seeds=seeds, seed=seed, price=price, out=out,
            live=live, command=command_line(), **effort._asdict(),
        )  # fmt: skip
    for made in (part.report for part in results.parts if part.report):
        show_report(made)
    for remark in results.remarks:
        say_error(remark)
    for policy, error in results.failures.items():
        say_failure(policy, error, Folder(out).failure(policy))
    if results.failures:
        raise typer.Exit(1)
