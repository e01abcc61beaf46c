"""``ata-gym predictors``: the errors of LB-BSP's predictors of speeds."""

from __future__ import annotations

from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import show_report


def predictors(
    out: options.Out,
    scenario: options.Scenario = None,
    trace: options.Trace = None,
    worker_column: options.WorkerColumn = None,
    duration_column: options.DurationColumn = None,
    round_column: options.RoundColumn = None,
    budget: options.Budget = None,
    names: Annotated[str, typer.Option("--predictors", help="Names separated by commas.")] = "last,ema,linear,narx",
    skip: Annotated[int, typer.Option(help="The number of first rounds that do not count.")] = 100,
    rounds: options.Rounds = None,
    seeds: options.Seeds = 8,
    seed: options.Seed = 0,
) -> None:
    r"""Measure the errors of LB-BSP's predictors of speeds.

    They predict each worker's speed in the next round. All predict the same rounds of an even allocation; a speed is
    results per unit of time. The errors are the root mean square of error / the worker's mean speed, and the mean of
    |error| / speed. Both contain the noise of the speeds, which cannot be predicted, and which is smaller the more
    tasks a worker has in a round.

    ```
    ata-gym predictors --scenario changing-load --budget 5100 \
        --rounds 2000 --out results/predictors
    ```
    """
    from ata_gym.bench.experiment.experiment import Experiment  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.predictors import run  # noqa: PLC0415

    chosen = options.split_names(names, "predictor")
    columns = worker_column, duration_column, round_column
    found = options.find_scenario(scenario, None, trace, columns, budget, rounds)
    experiment = Experiment.on_scenario(found, rounds=rounds, seeds=seeds, seed=seed, price=0.0)
    show_report(run(experiment, chosen, skip, out))
