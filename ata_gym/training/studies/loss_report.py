"""The report on a training: when each policy and method reaches a low loss, and the loss against their clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from textwrap import wrap

import polars as pl

from ata_gym.bench.competitor import Competitor
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report.headline import headline
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import ends, summarise
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import markdown
from ata_gym.training.studies import comparison
from ata_gym.training.studies.curves import Goal, LossReading, draw, goal, lay, lay_evaluations, on_each_other
from ata_gym.training.studies.methods_picture import draw_methods
from ata_gym.training.trainer import Trainer


def report(
    experiment: Experiment,
    policies: list[str],
    folder: Folder,
    trajectory: pl.DataFrame,
    trainer: Trainer,
    frames: Mapping[comparison.MethodChoice, pl.DataFrame],
    kind: str = comparison.DEFAULT,
) -> Report:
    """Compare policies and methods at a low loss, and leave tables and the picture in the folder.

    ``trajectory`` is what ``trajectory.train_once`` returned, and each of ``frames`` what ``comparison.run_once`` did;
    ``kind`` is that of the policies' learning rate. Methods with another kind get no ratios.
    """
    problem, reading = trainer.problem.name, LossReading.of(trainer.problem, experiment.rounds)
    records, low = folder.results(policies), goal(trajectory, reading)
    curves = lay(trajectory, records, reading)
    unlike = comparison.unlike(frames, kind)
    summary = to_goal(records, low, experiment, reading, frames, unlike)
    missed = " (-: not reached)" if summary.filter(quantity="runtime")["mean"].is_null().any() else ""
    title = f"{problem} to loss {low.loss:.3g}, a hundredth of the first or the lowest{missed}\non {experiment.about}"
    for said in (comparison.rate_note(trainer.optimizer_choice.lr, kind), comparison.unlike_note(unlike, kind)):
        title += "".join(f"\n{line}" for line in wrap(said, 96))
    tables = summary_tables(summary, replace(experiment, rounds=low.round), title)
    files = write(folder.path, {"table.md": markdown(tables), "table.csv": summary})
    if frames:
        tables.append(comparison.table(frames, experiment, trainer, reading))
    end = trajectory.row(-1, named=True)
    figures = [f"{name.replace('_', ' ')} {end[name]:.4g}" for name in trajectory.columns[2:]]
    remark = (
        f"{'the policies, ' * bool(frames)}after all {experiment.rounds:,} rounds: {', '.join(figures)}, "
        f"{reading.label().replace(chr(10), ' ')}: {curves['loss'][-1]:.4g}"
    )
    note, plots = on_each_other(records), folder.path / "plots"
    title = f"{problem}, trained on the clocks of the workers of {experiment.about}"
    evaluations = curves.head(0) if reading.exact else lay_evaluations(trajectory, records)
    pictures = draw(curves, evaluations, reading.label(), title, plots / "loss", note)
    if frames:
        beside = "gta" if "gta" in policies else policies[0]  # GTA has the clock of Rennala
        as_many = reading.stretched(experiment.scenario.budget).label("gradient")
        methods = comparison.lay(frames, experiment, reading)
        pictures += draw_methods(methods, curves.filter(policy=beside), as_many, title, plots / "methods")
    players = map(Competitor.of, policies)
    said = f"To the loss {low.loss:.3g}:\n{headline(ends(records.filter(pl.col('round') <= low.round)), players)}"
    return Report(summary, tables, files, pictures, remark="\n".join(filter(None, (said, remark, note))))


def to_goal(
    records: pl.DataFrame,
    low: Goal,
    experiment: Experiment,
    reading: LossReading,
    frames: Mapping[comparison.MethodChoice, pl.DataFrame],
    unlike: Iterable[str] = (),
) -> pl.DataFrame:
    """The clocks of policies and methods at a low loss, summarised as ``statistics.summarise`` does.

    The ratios of methods that are ``unlike`` the policies are null.
    """
    clocks = records.filter(pl.col("round") <= low.round)
    if frames:
        clocks = pl.concat([clocks, comparison.reached(frames, low, experiment, reading)], how="diagonal")
    summary = summarise(clocks).filter(~pl.col("quantity").is_in(["regret", "support"]))
    ratio = pl.col("quantity").str.contains("/", literal=True) & pl.col("policy").is_in(list(unlike))
    return summary.with_columns(pl.when(~ratio).then(pl.col("mean", "low", "high")))
