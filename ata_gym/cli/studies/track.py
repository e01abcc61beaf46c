"""``ata-gym track``: how many rounds each policy needs to follow a change, and what it does meanwhile."""

from __future__ import annotations

from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line
from ata_gym.cli.studies.report import show_studied

FOLLOWERS = "uta,ata,ata-icml,recent-median,lb-bsp-ema,restarting-beta"
"""Some that use all feedback alike, and some for non-stationary scenarios."""


def track(
    out: options.Out,
    scenario: options.Scenario = None,
    data: options.Data = None,
    trace: options.Trace = None,
    worker_column: options.WorkerColumn = None,
    duration_column: options.DurationColumn = None,
    round_column: options.RoundColumn = None,
    budget: options.Budget = None,
    policies: options.Policies = FOLLOWERS,
    change: Annotated[
        list[int] | None,
        typer.Option(help="The number of rounds before a change; repeatable. By default the changes of the scenario."),
    ] = None,
    before: Annotated[int, typer.Option(help="Rounds to look at before each change.")] = 500,
    after: Annotated[int, typer.Option(help="Rounds to look at after each change.")] = 2_000,
    rounds: options.Rounds = None,
    seeds: options.Seeds = 8,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    save_every: options.SaveEvery = 10.0,
    workers: options.Workers = options.Where.local,
    address: options.Address = None,
    rerun_changed: options.RerunChanged = False,
) -> None:
    r"""Measure how many rounds policies need to follow a change.

    The change is abrupt, and what they do meanwhile is drawn. A policy has followed when the expected round time of its
    allocations is within 10 % of the least possible one, on average over 20 rounds. Only policies whose allocations sum
    to the budget can be tracked. After a kill the same command continues where it stopped, with the same result;
    policies may be added later.

    ```
    ata-gym track --scenario changing-permuted-linear-n51 \
        --rounds 22000 --out results/permuted
    ata-gym track --scenario alibaba-4 --data recordings --change 1873 \
        --after 300 --out results/alibaba
    ata-gym track --scenario changing-permuted-linear-n51 \
        --out results/permuted --workers ray --address auto
    ata-gym track --trace times.csv --worker-column machine \
        --duration-column seconds --round-column step --budget 10 \
        --change 1873 --out results/times
    ```
    """
    from ata_gym.bench.experiment.experiment import Experiment  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.study import Study, run  # noqa: PLC0415
    from ata_gym.bench.tracking.experiment import TrackedRun, Tracking  # noqa: PLC0415
    from ata_gym.bench.tracking.page import about  # noqa: PLC0415
    from ata_gym.bench.tracking.report import report  # noqa: PLC0415

    columns = worker_column, duration_column, round_column
    found = options.find_scenario(scenario, data, trace, columns, budget, rounds)
    experiment = Experiment.on_scenario(found, rounds=rounds, seeds=seeds, seed=seed, price=0.0)
    tracking = Tracking.around(experiment, change or None, before=before, after=after)
    effort = options.checked_effort(jobs, save_every, rerun_changed, workers, address)
    study, names = Study("track", TrackedRun, report, about), options.split_names(policies)
    show_studied(run(study, tracking, names, out, effort, command_line()))
