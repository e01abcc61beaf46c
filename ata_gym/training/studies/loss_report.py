"""The report on a training: when each policy and method reaches a low loss, and the loss against their clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import wrap

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import Competitor, headline
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import ends, summarise
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import markdown
from ata_gym.training.methods.run import find_method
from ata_gym.training.studies import comparison
from ata_gym.training.studies.curves import (
    CLOCKS,
    Goal,
    LossReading,
    draw,
    equal_clocks_note,
    evaluations_on_clocks,
    finish,
    goal,
    losses_on_clocks,
)
from ata_gym.training.trainer.trainer import Trainer

_GREY = {"color": "#9A9A9A", "linestyle": "solid", "linewidth": 3.0, "zorder": 0}

_HIGHEST = 2.0  # the panels end at the reference's highest loss times this: methods that diverge leave them


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
    curves = losses_on_clocks(trajectory, records, reading)
    other_kinds = comparison.without_ratio(frames, kind)
    summary = to_goal(records, low, experiment, reading, frames, other_kinds)
    missed = " (-: not reached)" if summary.filter(quantity="runtime")["mean"].is_null().any() else ""
    title = f"{problem} to loss {low.loss:.3g}, a hundredth of the first or the lowest{missed}\non {experiment.about}"
    for note in (comparison.rate_note(trainer.optimizer_choice.lr, kind), comparison.no_ratio_note(other_kinds, kind)):
        title += "".join(f"\n{line}" for line in wrap(note, 96))
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
    note, plots = equal_clocks_note(records), folder.path / "plots"
    title = f"{problem}, trained on the clocks of the workers of {experiment.about}"
    evaluations = curves.head(0) if reading.exact else evaluations_on_clocks(trajectory, records)
    pictures = draw(curves, evaluations, reading.label(), title, plots / "loss", note)
    if frames:
        beside = "gta" if "gta" in policies else policies[0]  # GTA has the clock of Rennala
        as_many = reading.stretched(experiment.scenario.budget).label("gradient")
        methods = comparison.method_curves(frames, experiment, reading)
        pictures += draw_methods(methods, curves.filter(policy=beside), as_many, title, plots / "methods")
    players = map(Competitor.of, policies)
    first = f"To the loss {low.loss:.3g}:\n{headline(ends(records.filter(pl.col('round') <= low.round)), players)}"
    return Report(summary, tables, files, pictures, remark="\n".join(filter(None, (first, remark, note))))


def to_goal(
    records: pl.DataFrame,
    low: Goal,
    experiment: Experiment,
    reading: LossReading,
    frames: Mapping[comparison.MethodChoice, pl.DataFrame],
    without_ratio: Iterable[str] = (),
) -> pl.DataFrame:
    """The clocks of policies and methods at a low loss, summarised as ``statistics.summarise`` does.

    The ratios of the methods ``without_ratio`` are null.
    """
    clocks = records.filter(pl.col("round") <= low.round)
    if frames:
        clocks = pl.concat([clocks, comparison.reached(frames, low, experiment, reading)], how="diagonal")
    summary = summarise(clocks).filter(~pl.col("quantity").is_in(["regret", "support"]))
    ratio = pl.col("quantity").str.contains("/", literal=True) & pl.col("policy").is_in(list(without_ratio))
    return summary.with_columns(pl.when(~ratio).then(pl.col("mean", "low", "high")))


def draw_methods(curves: pl.DataFrame, reference: pl.DataFrame, label: str, title: str, stem: Path) -> list[Path]:
    """Draw the loss of methods against runtime and worker time, as PNG and SVG.

    ``curves`` are of ``comparison.method_curves``, ``reference`` is one policy's part of ``curves.losses_on_clocks``.
    """
    families: dict[str, list[str]] = {}
    for name in curves["policy"].unique(maintain_order=True):
        families.setdefault(find_method(name.partition("=")[0]).family, []).append(name)
    every = pl.concat([reference, curves], how="diagonal")
    with style.figure(1.2 + 2.9 * len(families), 6.4) as picture:
        grid = picture.subplots(2, len(families), sharex="row", sharey=True, squeeze=False)
        for clock, panels in zip(CLOCKS, grid, strict=True):
            for names, axes in zip(families.values(), panels, strict=True):
                axes.plot(
                    reference[clock].to_numpy(), reference["loss"].to_numpy(), label=reference["policy"][0], **_GREY
                )
                for place, (name, look) in enumerate(style.lines(names).items()):
                    mine, colour = curves.filter(policy=name), style.OKABE_ITO[place % len(style.OKABE_ITO)]
                    axes.plot(mine[clock].to_numpy(), mine["loss"].to_numpy(), label=name, **look | {"color": colour})
                finish(axes, every[clock], every["loss"])
                axes.set_xlabel(clock.replace("_", " "))
            panels[0].set_ylabel(label)
        for family, axes in zip(families, grid[0], strict=True):
            axes.set_ylim(top=_HIGHEST * float(reference["loss"].to_numpy().max()))
            look = {"size": 10, "weight": "bold"}
            axes.legend(
                title=family, title_fontproperties=look, alignment="left", fontsize=8.5, handlelength=2.2,
                loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2,
            )  # fmt: skip
        return style.save(picture, stem, title)
