"""``ata-gym predictors``: how well each predictor of LB-BSP foresees speeds."""

from __future__ import annotations

from typing import Annotated

import typer

from ata_gym.checks import unknown
from ata_gym.cli.benching import (
    Budget,
    DurationColumn,
    Out,
    RoundColumn,
    Rounds,
    Scenario,
    Seed,
    Seeds,
    Trace,
    WorkerColumn,
    find_experiment,
    split_names,
)
from ata_gym.cli.console import progress_bars, say_files, show


def predictors(
    out: Out,
    scenario: Scenario = None,
    trace: Trace = None,
    worker_column: WorkerColumn = None,
    duration_column: DurationColumn = None,
    round_column: RoundColumn = None,
    budget: Budget = None,
    names: Annotated[str, typer.Option("--predictors", help="Names separated by commas.")] = "last,ema,linear,narx",
    skip: Annotated[int, typer.Option(help="First rounds that do not count.")] = 100,
    rounds: Rounds = None,
    seeds: Seeds = 8,
    seed: Seed = 0,
) -> None:
    r"""Tell how well LB-BSP's predictors foresee each worker's speed in the next round.

    All see the same rounds of an even allocation; a speed is results per unit of time. The root mean square of error /
    the worker's mean speed, and the mean of |error| / speed: both hold the noise of the speeds, which nobody foresees,
    and which is the smaller the more tasks a worker has in a round.

    ```
    ata-gym predictors --scenario changing-load --budget 5100 --rounds 2000 --out results/predictors
    ```
    """
    from ata_gym.bench import prediction_table  # noqa: PLC0415 - these imports take a second
    from ata_policies.lb_bsp import PREDICTORS  # noqa: PLC0415

    chosen = split_names(names)
    for name in chosen:
        if name not in PREDICTORS:
            raise unknown("predictor", name, PREDICTORS)
    if not chosen:
        raise ValueError(f"name at least one predictor: {', '.join(PREDICTORS)}")
    experiment = find_experiment(
        scenario, trace, worker_column, duration_column, round_column, budget, rounds, seeds, seed
    )
    with progress_bars(dict.fromkeys(chosen, experiment.rounds)) as progress:
        found = prediction_table.measure(experiment, {name: PREDICTORS[name]() for name in chosen}, skip, progress)
    show(prediction_table.table(found, experiment, skip))
    say_files("tables", prediction_table.save(found, experiment, skip, out))
