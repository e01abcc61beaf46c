"""The errors of predictors on an experiment's world, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
from rich import box
from rich.table import Table

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.summary import estimate
from ata_gym.bench.tables import Titled, markdown, show
from ata_gym.files import write_whole
from ata_policies.prediction_errors import Errors, prediction_errors, record
from ata_policies.predictors import Predictor

_TITLES = {"square": "root mean square error\n/ mean speed", "percentage": "mean absolute\npercentage error"}


def measure(
    experiment: Experiment,
    predictors: Mapping[str, Predictor],
    skip: int,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> pl.DataFrame:
    """Let predictors foresee the speeds of an even allocation; tell ``progress`` who has foreseen how many rounds.

    Returns
    -------
    Columns predictor, quantity (of ``Errors``), mean, low, high: over seeds, with 95 % confidence intervals.
    """
    envs = experiment.make_envs("ata_gym/TaskAllocation-v0")
    seen = record(envs, experiment.rounds, experiment.seed)
    envs.close()
    found = prediction_errors(seen.speed, predictors, seen.signal, skip, experiment.seed, progress)
    rows = []
    for name, errors in found.items():
        for quantity in Errors._fields:
            mean, half = estimate(getattr(errors, quantity))
            row = {"predictor": name, "quantity": quantity, "mean": float(mean)}
            rows.append(row | {"low": float(mean - half), "high": float(mean + half)})
    return pl.DataFrame(rows).with_columns(pl.col("low", "high").fill_nan(None))


def table(found: pl.DataFrame, experiment: Experiment, skip: int) -> Titled:
    """One line for each predictor."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    made.add_column("predictor", no_wrap=True)
    for quantity in Errors._fields:
        made.add_column(_TITLES[quantity], justify="right", no_wrap=True)
    for name in found["predictor"].unique(maintain_order=True):
        mine = {row["quantity"]: row for row in found.filter(pl.col("predictor") == name).to_dicts()}
        made.add_row(name, *(show(mine[quantity]["mean"], mine[quantity]["high"]) for quantity in Errors._fields))
    sure = ", mean and 95 % confidence interval" if experiment.seeds > 1 else ""
    title = (
        f"{experiment.title}: n = {experiment.pool.n}, B = {experiment.budget}\n"
        f"predictions of the next round's speeds, rounds {skip + 1:,} to {experiment.rounds:,}, "
        f"{experiment.seeds} seed{'s' * (experiment.seeds > 1)}{sure}"
    )
    return Titled(title, made)


def save(found: pl.DataFrame, experiment: Experiment, skip: int, folder: Path) -> list[Path]:
    """Write ``predictors.md`` and ``predictors.csv``; the CSV has all digits."""
    text = markdown([table(found, experiment, skip)])
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / "predictors.md", folder / "predictors.csv"]
    write_whole(made[0], lambda part: part.write_text(text, "utf-8"))
    write_whole(made[1], found.write_csv)
    return made
