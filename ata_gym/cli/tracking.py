"""``ata-gym track``: how long until each policy has followed a change, and what it did."""

from __future__ import annotations

from typing import Annotated

import typer

from ata_gym.cli.benching import (
    Budget,
    Data,
    DurationColumn,
    Jobs,
    Out,
    Policies,
    RoundColumn,
    Rounds,
    SaveEvery,
    Scenario,
    Seed,
    Seeds,
    Trace,
    WorkerColumn,
    end_with,
    find_experiment,
    play,
)
from ata_gym.cli.console import say_files, show

FOLLOWERS = "uta,ata,ata-icml,recent-median,lb-bsp-ema,restarting-beta"
"""Those who never forget, and those who are made for a world that changes."""


def track(
    out: Out,
    scenario: Scenario = None,
    data: Data = None,
    trace: Trace = None,
    worker_column: WorkerColumn = None,
    duration_column: DurationColumn = None,
    round_column: RoundColumn = None,
    budget: Budget = None,
    policies: Policies = FOLLOWERS,
    change: Annotated[
        list[int] | None, typer.Option(help="Rounds played before a change; may be repeated. By default the world's.")
    ] = None,
    before: Annotated[int, typer.Option(help="Rounds to look at before each change.")] = 500,
    after: Annotated[int, typer.Option(help="Rounds to look at after each change.")] = 2_000,
    rounds: Rounds = None,
    seeds: Seeds = 8,
    seed: Seed = 0,
    jobs: Jobs = None,
    save_every: SaveEvery = 10.0,
) -> None:
    r"""Tell how long policies take to follow an abrupt change, and draw what they do meanwhile.

    A policy has followed when the expected round time of its allocations is within 10 % of the least possible one, on
    average over 20 rounds. For policies whose allocations sum to the budget. Killed and started again it goes on where
    it was, with the same result; policies may be added later.

    ```
    ata-gym track --scenario changing-permuted-linear-n51 --rounds 22000 --out results/permuted
    ata-gym track --scenario alibaba-4 --data recordings --change 1873 --after 300 --out results/alibaba
    ata-gym track --trace times.csv --worker-column machine --duration-column seconds \
        --round-column step --budget 10 --change 1873 --out results/times
    ```
    """
    from ata_gym.bench.tracking import Tracking, Watch  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.tracking_report import report  # noqa: PLC0415

    experiment = find_experiment(
        scenario, trace, worker_column, duration_column, round_column, budget, rounds, seeds, seed, data=data
    )
    tracking = Tracking.around(experiment, change or None, before=before, after=after)
    folder, finished, failures = play(tracking, policies, out, jobs, save_every, Watch)
    if finished:
        made = report(tracking, finished, folder)
        show(*made.tables)
        say_files("tables", made.files)
        say_files("pictures", made.pictures)
    end_with(failures, folder)
