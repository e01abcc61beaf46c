"""The page of a training: the loss against the clocks of policies and methods."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder, finished, read_frame
from ata_gym.bench.page import experiment_page as charts
from ata_gym.bench.page.note import EXPERIMENT, Note, about_experiment, check_note, competitors, finished_policies
from ata_gym.bench.page.sections import Chart, Page, Player, Tables
from ata_gym.bench.report import losses
from ata_gym.bench.report.headline import headline
from ata_gym.bench.report.statistics import ends
from ata_gym.training.studies import comparison
from ata_gym.training.studies.curves import LossReading, evaluations_on_clocks
from ata_gym.training.studies.trajectory import trajectory_files
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.json_files import fields, items, text
from ata_gym.utils.validation import flag, whole_number

_NOTE = fields({
    **EXPERIMENT, "problem": text, "rate_note": text, "points": whole_number,
    "reading": fields({"over": whole_number, "exact": flag}), "methods": items(text),
    "unlike": fields({}, others=text), "unlike_note": text,
})  # fmt: skip
"""The rule of the note of a training."""


def about(compared: comparison.Comparison, policies: Sequence[str], trainer: Trainer, kind: str) -> Note:
    """What the page needs to know of a training."""
    return {
        **about_experiment(compared.experiment, policies), "problem": trainer.problem.name,
        "rate_note": comparison.rate_note(trainer.optimizer_choice.lr, kind), "points": compared.experiment.points,
        "reading": asdict(compared.reading), "methods": [choice.label for choice in compared.methods],
        "unlike": compared.without_ratio, "unlike_note": comparison.no_ratio_note(compared.without_ratio, kind),
    }  # fmt: skip


def page(folder: Path, note: Note) -> Page:
    """The page of the policies and methods that have finished."""
    check_note(folder, note, _NOTE)
    store, done = Folder(folder), finished_policies(folder, note)
    made = charts.page(folder, note)  # its clocks
    records, trajectory = store.results(done), read_frame(trajectory_files(store)[0])
    experiment = Experiment.on_scenario(
        note["title"], rounds=note["rounds"], budget=note["budget"], seeds=note["seeds"], seed=note["first_seed"]
    )
    choices = [comparison.MethodChoice.parse(label) for label in note["methods"]]
    methods = {one: read_frame(path) for one in choices if finished(path := comparison.result(store, one))}
    reading = LossReading(note["reading"]["over"], note["reading"]["exact"])
    experiment = replace(experiment, points=note["points"])
    compared = comparison.Comparison(experiment, trajectory, reading, methods, records, note["unlike"])
    loss, curves = compared.goal.loss, compared.policy_curves()
    players = [*made.players, *(Player(one.label, "method") for one in methods)]
    places = {player.name: place for place, player in enumerate(players)}
    if methods:
        curves = pl.concat([curves, compared.method_curves()], how="diagonal_relaxed")
    sections: list[Tables | Chart] = [_overview(compared.summary(), note, players, loss)]
    sections += charts.against_clocks(curves, "loss", reading.label().replace("\n", " "), places)
    if not reading.exact:
        evaluations = evaluations_on_clocks(trajectory, records)
        for name in (name for name in evaluations.columns if name not in {"policy", "round", *losses.CLOCKS}):
            sections += charts.against_clocks(evaluations, name, name.replace("_", " "), places)
    clocks = {"runtime", "worker-time", "allocations"}
    end = trajectory.row(-1, named=True)
    figures_ = [(name.replace("_", " "), f"{end[name]:.4g}") for name in trajectory.columns[2:]]
    together = losses.equal_clocks_note(records)
    return made._replace(
        study="train", title=f"{note['problem']} on {note['title']}",
        lead=f"To a loss of {loss:.3g}:\n{headline(ends(compared.until_goal), competitors(note))}",
        facts=[*made.facts, *figures_], players=players,
        sections=[*sections, *(section for section in made.sections if section.id in clocks)],
        remarks=[*made.remarks, *filter(None, (together, note["rate_note"], note["unlike_note"]))],
    )  # fmt: skip


def _overview(summary: pl.DataFrame, note: Note, players: Sequence[Player], loss: float) -> Tables:
    named = {**note, "policies": [player._asdict() for player in players]}
    explained = (
        f"The time until the loss is {loss:.3g}, and the time that all workers were busy until then; less is better, "
        "- where it was not reached. Ratios are of the same seed. Click on a title to sort."
    )
    made = charts.overview(summary, named)
    return made._replace(title=f"How soon each reaches a loss of {loss:.3g}", note=explained)
