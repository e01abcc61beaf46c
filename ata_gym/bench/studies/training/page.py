"""The page of a training: the loss against the clocks of policies and methods."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import losses
from ata_gym.bench.report.headline import headline
from ata_gym.bench.report.page import experiment_page as charts
from ata_gym.bench.report.page.sections import Chart, Page, Series, Tables
from ata_gym.bench.report.statistics import ends
from ata_gym.bench.store.folder import Folder, finished, read_frame
from ata_gym.bench.store.note import (
    EXPERIMENT,
    Note,
    about_experiment,
    check_note,
    competitors,
    finished_policies,
)
from ata_gym.bench.studies.training import comparison
from ata_gym.bench.studies.training.curves import LossReading, evaluations_on_clocks
from ata_gym.bench.studies.training.trajectory import trajectory_files
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.json_files import fields, items, text
from ata_gym.utils.validation import flag, whole_number

_NOTE_FIELDS = fields(
    {
        **EXPERIMENT,
        "problem": text,
        "rate_note": text,
        "points": whole_number,
        "reading": fields({"over": whole_number, "exact": flag}),
        "methods": items(text),
        "unlike": fields({}, others=text),
        "unlike_note": text,
    },
)
"""The rule of the note of a training."""


def about(
    compared: comparison.LossComparison,
    policies: Sequence[str],
    trainer: Trainer,
    kind: str,
) -> Note:
    """What the page needs to know of a training."""
    return {
        **about_experiment(compared.experiment, policies),
        "problem": trainer.problem.name,
        "rate_note": comparison.rate_note(trainer.optimizer_choice.lr, kind),
        "points": compared.experiment.points,
        "reading": asdict(compared.reading),
        "methods": [choice.label for choice in compared.methods],
        "unlike": compared.without_ratio,
        "unlike_note": comparison.no_ratio_note(compared.without_ratio, kind),
    }


def page(folder: Path, note: Note) -> Page:
    """The page of the policies and methods that have finished."""
    check_note(folder, note, _NOTE_FIELDS)
    store = Folder(folder)
    policies = finished_policies(folder, note)
    # The page of the experiment has the charts of the clocks.
    clocks_page = charts.page(folder, note)
    records = store.results(policies)
    trajectory = read_frame(trajectory_files(store)[0])
    experiment = Experiment.on_scenario(
        note["title"],
        rounds=note["rounds"],
        budget=note["budget"],
        seeds=note["seeds"],
        seed=note["first_seed"],
    )
    choices = [comparison.MethodChoice.parse(label) for label in note["methods"]]
    methods = {
        choice: read_frame(path)
        for choice in choices
        if finished(path := comparison.result(store, choice))
    }
    reading = LossReading(note["reading"]["over"], note["reading"]["exact"])
    experiment = replace(experiment, points=note["points"])
    compared = comparison.LossComparison(
        experiment,
        trajectory,
        reading,
        methods,
        records,
        note["unlike"],
    )
    loss = compared.goal.loss
    curves = compared.policy_curves()
    players = [*clocks_page.players, *(Series(choice.label, "method") for choice in methods)]
    places = {player.name: place for place, player in enumerate(players)}
    if methods:
        curves = pl.concat([curves, compared.method_curves()], how="diagonal_relaxed")
    sections: list[Tables | Chart] = [_overview(compared.summary(), note, players, loss)]
    sections += charts.against_clocks(curves, "loss", reading.label().replace("\n", " "), places)
    if not reading.exact:
        evaluations = evaluations_on_clocks(trajectory, records)
        clock_columns = {"policy", "round", *losses.CLOCKS}
        figures = [name for name in evaluations.columns if name not in clock_columns]
        for name in figures:
            sections += charts.against_clocks(evaluations, name, name.replace("_", " "), places)
    clocks = {"runtime", "worker-time", "allocations"}
    last_row = trajectory.row(-1, named=True)
    facts = [(name.replace("_", " "), f"{last_row[name]:.4g}") for name in trajectory.columns[2:]]
    clocks_note = losses.equal_clocks_note(records)
    best = headline(ends(compared.until_goal), competitors(note))
    return clocks_page._replace(
        study="train",
        title=f"{note['problem']} on {note['title']}",
        lead=f"To a loss of {loss:.3g}:\n{best}",
        facts=[*clocks_page.facts, *facts],
        players=players,
        sections=[
            *sections,
            *(section for section in clocks_page.sections if section.id in clocks),
        ],
        remarks=[
            *clocks_page.remarks,
            *filter(None, (clocks_note, note["rate_note"], note["unlike_note"])),
        ],
    )


def _overview(summary: pl.DataFrame, note: Note, players: Sequence[Series], loss: float) -> Tables:
    overview_note = {**note, "policies": [player._asdict() for player in players]}
    explanation = (
        f"The time until the loss is {loss:.3g}, and the time that all workers were busy until"
        " then; less is better, - where it was not reached. Ratios are of the same seed. Click on"
        " a title to sort."
    )
    tables = charts.overview(summary, overview_note)
    return tables._replace(title=f"How soon each reaches a loss of {loss:.3g}", note=explanation)
