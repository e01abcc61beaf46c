"""The page of a training: the loss against the clocks of policies and methods."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder, finished, read_frame
from ata_gym.bench.page import experiment_page as charts
from ata_gym.bench.page import figures
from ata_gym.bench.page.note import Note, about_experiment, competitors, finished_policies
from ata_gym.bench.page.sections import Chart, Page, Player, Tables, View
from ata_gym.bench.report.headline import headline
from ata_gym.bench.report.statistics import ends
from ata_gym.training.studies import comparison
from ata_gym.training.studies import curves as loss_curves
from ata_gym.training.studies.curves import LossReading
from ata_gym.training.studies.trajectory import trajectory_files
from ata_gym.training.trainer.trainer import Trainer


def about(compared: comparison.Comparison, policies: Sequence[str], trainer: Trainer, kind: str) -> Note:
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
    store, done = Folder(folder), finished_policies(folder, note)
    made = charts.page(folder, note)  # its clocks
    records, trajectory = store.results(done), read_frame(trajectory_files(store)[0])
    experiment = Experiment.on_scenario(
        note["title"], rounds=note["rounds"], budget=note["budget"], seeds=note["seeds"], seed=note["first_seed"]
    )
    choices = [comparison.MethodChoice.parse(label) for label in note["methods"]]
    methods = {one: read_frame(path) for one in choices if finished(path := comparison.result(store, one))}
    reading, experiment = LossReading(**note["reading"]), replace(experiment, points=note["points"])
    compared = comparison.Comparison(experiment, trajectory, reading, methods, records, note["unlike"])
    loss, curves = compared.goal.loss, compared.policy_curves()
    players = [*made.players, *(Player(one.label, "method") for one in methods)]
    places = {player.name: place for place, player in enumerate(players)}
    if methods:
        curves = pl.concat([curves, compared.method_curves()], how="diagonal_relaxed")
    sections: list[Tables | Chart] = [_overview(compared.summary(), note, players, loss)]
    sections += _against_clocks(curves, "loss", reading.label().replace("\n", " "), places)
    if not reading.exact:
        evaluations = loss_curves.evaluations_on_clocks(trajectory, records)
        for name in (name for name in evaluations.columns if name not in {"policy", "round", *loss_curves.CLOCKS}):
            sections += _against_clocks(evaluations, name, name.replace("_", " "), places)
    clocks = {"runtime", "worker-time", "allocations"}
    end = trajectory.row(-1, named=True)
    figures_ = [(name.replace("_", " "), f"{end[name]:.4g}") for name in trajectory.columns[2:]]
    together = loss_curves.equal_clocks_note(records)
    return made._replace(
        study="train",
        title=f"{note['problem']} on {note['title']}",
        lead=f"To a loss of {loss:.3g}:\n{headline(ends(compared.until_goal), competitors(note))}",
        facts=[*made.facts, *figures_],
        players=players,
        sections=[*sections, *(section for section in made.sections if section.id in clocks)],
        remarks=[*made.remarks, *filter(None, (together, note["rate_note"], note["unlike_note"]))],
    )


def _overview(summary: pl.DataFrame, note: Note, players: Sequence[Player], loss: float) -> Tables:
    """The clocks at the loss."""
    named = {**note, "policies": [player._asdict() for player in players]}
    explained = (
        f"The time until the loss is {loss:.3g}, and the time that all workers were busy until then; less is better, "
        "- where it was not reached. Ratios are of the same seed. Click on a title to sort."
    )
    made = charts.overview(summary, named)
    return made._replace(title=f"How soon each reaches a loss of {loss:.3g}", note=explained)


def _against_clocks(curves: pl.DataFrame, quantity: str, label: str, places: Mapping[str, int]) -> list[Tables | Chart]:
    """A figure against runtime and one against worker time."""
    better = "lower" if "loss" in quantity or "error" in quantity else "higher"
    logarithmic = better == "lower" and bool((curves[quantity].drop_nulls() > 0).all())
    explained = (
        "The trajectory is the same for all policies: they differ in when its gradients are there. "
        f"{better.title()} and further left is better."
    )
    sections: list[Tables | Chart] = []
    for clock in loss_curves.CLOCKS:
        time = clock.replace("total_", "").replace("_", " ")
        least = float(curves[clock].to_numpy().max()) / loss_curves.SHOWN
        series = []
        for (policy,), mine in curves.drop_nulls(quantity).group_by("policy", maintain_order=True):
            late = mine.filter(pl.col(clock) >= least)
            points = late[figures.thinned(len(late), 250)]
            line = {"x": points[clock].to_numpy(), "mean": points[quantity].to_numpy(), "half": None}
            series.append({"p": places[str(policy)], **line})
        settings = {"x": time, "y": label, "logX": True, "logY": logarithmic, "half": True}
        title = f"{quantity.replace('_', ' ').capitalize()} against {time}: {better} is better"
        view = View({"x": [], "series": series})
        name = f"{quantity}-{time.replace(' ', '-')}"
        sections.append(Chart(name, title, explained, "curves", [view], settings))
    return sections
