"""The errors of predictors on an experiment's scenario, and their table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.experiment import Experiment, plural
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import Estimate, estimates
from ata_gym.bench.report.summary_tables import interval_note, show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.utils.validation import unknown
from ata_policies.lb_bsp.cpu import PREDICTORS
from ata_policies.lb_bsp.prediction_errors import check_skip, prediction_errors, record_speeds
from ata_policies.lb_bsp.predictors import Predictor

_TITLES = {"square": "root mean square error\n/ mean speed", "percentage": "mean absolute\npercentage error"}


def run(experiment: Experiment, names: Sequence[str], skip: int, out: Path) -> Report:
    """Measure predictors, given by name, from round ``skip`` + 1 on; leave the tables in a folder.

    ValueError if there is no such predictor, no round would count, or the folder holds something else.
    """
    for name in names:
        if name not in PREDICTORS:
            raise unknown("predictor", name, PREDICTORS)
    check_skip(skip, experiment.rounds)
    claimed = claim(out)
    with progress_bars(dict.fromkeys(names, experiment.rounds)) as update:
        found = measure(experiment, {name: PREDICTORS[name]() for name in names}, skip, update)
    rows = []
    for (name,), errors in found.group_by("predictor", maintain_order=True):
        rows.append((str(name), *(show(row["mean"], row["high"]) for row in errors.to_dicts())))
    title = (
        f"{experiment.about}\npredictions of the next round's speeds, rounds {skip + 1:,} to {experiment.rounds:,}, "
        f"{plural(experiment.seeds, 'seed')}{interval_note(experiment)}"
    )
    tables = [Table(title, {"predictor": LEFT, **right(_TITLES.values())}, rows)]
    files = write(out, {"predictors.md": markdown(tables), "predictors.csv": found})
    del claimed
    return Report(found, tables, files, [])


def measure(
    experiment: Experiment,
    predictors: Mapping[str, Predictor],
    skip: int,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> pl.DataFrame:
    """Errors of predictions of speeds: columns predictor, quantity (of ``PredictionErrors``), mean, low, high."""
    envs = experiment.make_envs("ata_gym/TaskAllocation-v0")
    seen = record_speeds(envs, experiment.rounds, experiment.seed)
    envs.close()
    found = prediction_errors(seen, predictors, skip, experiment.seed, progress)
    rows = [
        (name, quantity, Estimate.of(sample))
        for name, errors in found.items()
        for quantity, sample in errors._asdict().items()
    ]
    return estimates(rows, ["predictor", "quantity"])
