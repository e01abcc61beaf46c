"""The figures of the ATA paper that need training: its quadratic, and its CIFAR-100 network.

Source: Maranjyan et al., ATA, ICML 2025. The figures of the quadratic are f - f* against runtime
and worker time, and the mean round time and the averaged proxy regret against the round, for n =
17, 51 and 153. One trajectory serves all policies.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from ata_gym.bench.experiment import Experiment, plural
from ata_gym.bench.report import losses, statistics, style
from ata_gym.bench.report.headline import ONE_SEED
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.summary_tables import summary_table
from ata_gym.bench.report.table import markdown
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.play import Studied, run
from ata_gym.bench.store.folder import Folder
from ata_gym.bench.studies.paper.cifar100 import PublishedFigure
from ata_gym.bench.studies.paper.norms import beside_norms
from ata_gym.bench.studies.training.curves import (
    LossReading,
    evaluations_on_clocks,
    losses_on_clocks,
)
from ata_gym.bench.studies.training.trajectory import Trained, train_beside
from ata_gym.simulation.keys import derive_keys
from ata_gym.training.problems.cifar100 import cifar100
from ata_gym.training.problems.quadratic import Quadratic
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.typing import Floats
from ata_gym.utils.compiled import kernel

PUBLISHED_ROUNDS = 3_000_000
"""The rounds of the paper's figure of the quadratic."""
PUBLISHED_IMAGES = 50_000
"""The training images of the paper's network."""
_MIXED_NOTE = (
    f"The published curves have {PUBLISHED_ROUNDS:,} rounds. Ours: the training, which is that of"
    " icml2025-quadratic. Which one the paper laid on these clocks, and where its lines end, is"
    " not known to us: nothing is compared."
)

# The rows of the paper's figure: columns x and y of ``suboptimality_on_clocks``, and y's label.
ROWS = (
    ("runtime", "suboptimality", "$f - f^*$"),
    ("total_worker_time", "suboptimality", "$f - f^*$"),
    ("round", "round_time", "mean round time"),
    ("round", "mean_regret", "mean proxy regret"),
)
_LEAST_WIDTH = 6.4
"""The width in inches that title and legend need where there is one number of workers."""
# Panels of f - f* begin where it has fallen to this part of its first value; before, it is flat.
_FALLEN_PART = 0.98


@kernel("(d),(d),(k),()->(k)", (0,))
def _descend(x: Floats, minimiser: Floats, noise: Floats, lr: Floats, losses: Floats) -> None:
    d = len(x)
    # x - x* between two zeros, so that the first and the last coordinate have two neighbours, too.
    offsets = np.zeros(d + 2)
    for k in range(len(noise)):
        for i in range(d):
            offsets[i + 1] = x[i] - minimiser[i]
        # f - f* is the sum of the squared differences of neighbours, over 8.
        total = 0.0
        for i in range(d + 1):
            total += (offsets[i + 1] - offsets[i]) ** 2
        losses[k] = total / 8
        # A step along row i of A (x - x*), with the same noise in all coordinates.
        for i in range(d):
            x[i] -= lr[0] * ((2 * offsets[i + 1] - offsets[i] - offsets[i + 2]) / 4 + noise[k])


class CompiledQuadratic(Trainer):
    """A ``Trainer`` of the quadratic with SGD at a constant rate, for many rounds at once.

    The matrix is tridiagonal, so that a round costs d steps and B random numbers, without torch:
    300 times as fast. The numbers have the keys of a ``Trainer``; losses and weights differ from
    a ``Trainer`` by a relative 1e-10, or by 1e-24 where f - f* is that small. Rounds taken at once
    and rounds taken one by one give the same bits.
    """

    def __init__(
        self,
        problem: Quadratic,
        budget: int,
        *,
        lr: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, budget, optimizer="sgd", lr=lr, seed=seed)

    def leap(self, rounds: int) -> Floats:
        problem: Any = self.problem
        played = np.arange(self.round, self.round + rounds)[:, None]
        keys = derive_keys(self._gradient_key, played, np.arange(self.budget))
        noise = problem.draw(keys.ravel()).numpy().reshape(keys.shape).mean(axis=1)
        start = self.model.x.detach().numpy()  # type: ignore[operator]
        minimiser = problem.minimiser.numpy()
        step = np.float64(self.optimizer_choice.lr)
        x = start.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            losses: Floats = _descend(x, minimiser, noise, step)
        # A loss that is not finite ends the leap: the rounds before it are played again.
        bad = np.flatnonzero(~np.isfinite(losses))
        if bad.size:
            good = int(bad[0])
        else:
            good = rounds
        if good == 0:
            self.finite(float(losses[0]))
        if bad.size:
            x = start.copy()
            _descend(x, minimiser, noise[:good], step)
        with torch.no_grad():
            self.model.x.copy_(torch.from_numpy(x))  # type: ignore[operator]
        self.round += good
        return losses[:good]

    def config(self) -> dict[str, str | int | float | None]:
        """The configuration of a ``Trainer``, marked as compiled, since the last bits differ."""
        return super().config() | {"compiled": True}


def reproduce(
    kind: str,
    sizes: Sequence[int],
    policies: Sequence[str],
    rounds: int,
    seeds: int,
    out: Path,
    effort: Effort,
) -> Studied:
    """Train the quadratic once, play the policies on the pool of each size, and draw the figure.

    It shows progress bars. The study ends with the first pool on which a policy fails.

    Args:
        kind: icml2025-quadratic with a growth, or icml2025-mixed.
        sizes: The numbers n of workers.
        policies: The names of the policies.
        rounds: The number of rounds.
        seeds: The number of seeds.
        out: The folder of the study, in which each pool has a results folder of its own.
        effort: How the work is done.
    """
    experiments = {
        n: Experiment.on_scenario(f"{kind}-n{n}", rounds=rounds, seeds=seeds) for n in sizes
    }
    growth = kind.rpartition("-")[2]
    first_experiment = next(iter(experiments.values()))
    trainer = CompiledQuadratic(Quadratic(), first_experiment.scenario.budget)
    trajectory = train_beside(out, trainer, rounds, effort, "quadratic", None).trajectory
    records = {}
    for n, experiment in experiments.items():
        played = run(experiment, policies, out / f"{growth}-n{n}", effort, lambda *_: None)
        if played.failures:
            return played
        records[n] = played.folder.results([*policies])
    about = f"B = {first_experiment.scenario.budget}, {first_experiment.length}"
    figure_report = report(trajectory, records, growth, about, out)
    remarks = [
        figure_report.remark,
        *(beside_norms(experiment.scenario) for experiment in experiments.values()),
    ]
    return Studied(played.folder, figure_report._replace(remark="\n".join(remarks)), {})


def report(
    trajectory: pl.DataFrame,
    records: Mapping[int, pl.DataFrame],
    growth: str,
    about: str,
    folder: Path,
) -> Report:
    """Summarise the policies, and leave tables, curves and the picture.

    Args:
        trajectory: The trajectory of the quadratic.
        records: The records of the policies for each n.
        growth: How the task times grow with the worker, or ``"mixed"``.
        about: The budget, rounds and seeds in words.
        folder: Where the files are written.
    """
    curves = suboptimality_on_clocks(trajectory, records)
    summary = summarise(records)
    mixed = growth == "mixed"
    quantities = ["runtime/ofta", "total_worker_time/ofta", "round_time", "mean_regret"]
    tables = [
        summary_table(f"n = {n}: {growth}, {about}", summary.filter(n=n), quantities)
        for n in records
    ]
    files = write(
        folder,
        {
            f"{growth}.md": markdown(tables),
            f"{growth}.csv": summary,
            f"{growth}-curves.csv": curves,
        },
    )
    if mixed:
        name = "icml2025-mixed"
    else:
        name = f"icml2025-quadratic, {growth}"
    pictures = draw(curves, f"{name} ({about})", folder / "plots" / growth)
    if mixed:
        sentences = [_MIXED_NOTE]
    else:
        sentences = [remark(curves["round"][-1], curves["suboptimality"][-1])]
    if next(iter(records.values()))["seed"].n_unique() == 1:
        sentences.append(ONE_SEED)
    sentences += [
        f"n = {n}: {note}"
        for n, frame in records.items()
        if (note := losses.equal_clocks_note(frame))
    ]
    return Report(summary, tables, files, pictures, remark="\n".join(sentences))


def suboptimality_on_clocks(
    trajectory: pl.DataFrame,
    records: Mapping[int, pl.DataFrame],
) -> pl.DataFrame:
    """A trajectory of the quadratic on the clocks of the records for each n.

    The figures are means over the seeds. ``round_time`` and ``mean_regret`` are means of all rounds
    so far; the regret of GTA is null. Columns that end in ``_half`` hold half the width of the 95 %
    confidence interval; null for one seed.
    """
    # A task's loss is f - f* before the step: after a round it is the next round's loss. After the
    # last round the quadratic was evaluated.
    suboptimality = pl.col("loss").shift(-1).fill_null(pl.col("suboptimality").last())
    quantities = pl.col("runtime", "total_worker_time", "regret")
    frames = []
    for n, frame in records.items():
        seeds = frame["seed"].n_unique()
        half_width = quantities.std() * (statistics.quantile(seeds) / seeds**0.5)
        means = frame.group_by("policy", "round", maintain_order=True).agg(
            quantities.mean(),
            half_width.name.suffix("_half"),
        )
        frames.append(means.select(pl.lit(n, pl.Int64).alias("n"), pl.all()))
    rounds = pl.col("round")
    return (
        pl.concat(frames)
        .with_columns(
            round_time=pl.col("runtime") / rounds,
            round_time_half=pl.col("runtime_half") / rounds,
        )
        .with_columns(
            mean_regret=pl.col("regret") / rounds,
            mean_regret_half=pl.col("regret_half") / rounds,
        )
        .drop("regret", "regret_half")
        .join(
            trajectory.select("round", suboptimality=suboptimality),
            on="round",
            maintain_order="left",
        )
    )


def summarise(records: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """What ``statistics.summarise`` gives for each n, and the means over rounds.

    The means are ``round_time`` and ``mean_regret``.
    """
    frames = []
    for n, frame in records.items():
        totals = statistics.summarise(frame)
        means = totals.filter(pl.col("quantity").is_in(["runtime", "regret"])).with_columns(
            pl.col("quantity").replace({"runtime": "round_time", "regret": "mean_regret"}),
            pl.col("mean", "low", "high") / pl.lit(frame["round"].max()),
        )
        frames.append(pl.concat([totals, means]).select(pl.lit(n, pl.Int64).alias("n"), pl.all()))
    return pl.concat(frames)


def remark(rounds: int, left: float) -> str:
    """A sentence on what is not as published.

    Args:
        rounds: The number of rounds played.
        left: f - f* after the last round.
    """
    if rounds == PUBLISHED_ROUNDS:
        return f"This is the published length; f - f* ends at {left:.3g}."
    return (
        f"The published curves have {PUBLISHED_ROUNDS:,} rounds and these have {rounds:,}, with the"
        f" published problem, step size and task times: they end at f - f* = {left:.3g}, earlier"
        " than the published ones, and what ata and ata-empirical have learned until then gives"
        f" other ratios and means than the published end. --rounds {PUBLISHED_ROUNDS} plays them"
        " all."
    )


def draw(curves: pl.DataFrame, title: str, stem: Path) -> list[Path]:
    """Draw the curves, with a column for each n, as PNG and SVG.

    Bands are 95 % confidence intervals.
    """
    sizes = curves["n"].unique(maintain_order=True).to_list()
    with style.figure(max(1.0 + 2.9 * len(sizes), _LEAST_WIDTH), 9.6) as picture:
        picture.set_layout_engine("constrained", w_pad=0.1)
        grid = picture.subplots(len(ROWS), len(sizes), sharey="row", squeeze=False)
        for (x, y, label), panels in zip(ROWS, grid, strict=True):
            for n, axes in zip(sizes, panels, strict=True):
                _panel(axes, curves.filter(n=n), x, y)
            panels[0].set_ylabel(label)
        picture.align_ylabels(grid[:, 0])
        for n, axes in zip(sizes, grid[0], strict=True):
            axes.set_title(f"n = {n}", fontweight="bold")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        picture.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=len(labels),
            handlelength=2.6,
        )
        picture.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return style.save(picture, stem)


def _panel(axes: Axes, curves: pl.DataFrame, x: str, y: str) -> None:
    by_round = x == "round"
    axes.set(xlabel=x.replace("_", " "), xscale="linear" if by_round else "log", yscale="log")
    if not by_round:
        fallen = curves.filter(pl.col(y) <= _FALLEN_PART * pl.col(y).max())
        if fallen["round"].n_unique() > 1:
            curves = fallen
    policies = curves["policy"].unique(maintain_order=True).to_list()
    for policy, line in style.lines(policies).items():
        # OFTA has no regret, and the regret of GTA is not defined.
        positive = curves.filter(pl.col(y) > 0, policy=policy)
        x_values = positive[x].to_numpy()
        y_values = positive[y].to_numpy()
        axes.plot(x_values, y_values, label=policy, **line)
        half_width = positive[f"{y if by_round else x}_half"].cast(pl.Float64).to_numpy()
        if np.isnan(half_width).all():
            continue
        band = {"color": line["color"], "alpha": 0.2, "linewidth": 0}
        # The axis of the values is logarithmic: the band must end above 0.
        if by_round:
            axes.fill_between(
                x_values,
                np.maximum(y_values - half_width, y_values / 10),
                y_values + half_width,
                **band,
            )
        else:
            axes.fill_betweenx(
                y_values,
                np.maximum(x_values - half_width, x_values / 10),
                x_values + half_width,
                **band,
            )
    axes.margins(x=0.02)
    style.plain_numbers(axes)
    if y == "suboptimality":
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def train_network(
    out: Path,
    rounds: int,
    effort: Effort,
    budget: int,
    data: Path,
    device: str,
) -> Trained:
    """Train the paper's network with its optimiser on the user's images, or read what is there."""
    trainer = Trainer(cifar100(data), budget, optimizer="adam", lr=8e-5, device=device)
    return train_beside(out, trainer, rounds, effort, "cifar100", data)


def report_network(
    experiment: Experiment,
    policies: Sequence[str],
    folder: Folder,
    trained: Trained,
    known: PublishedFigure,
) -> Report:
    """Draw loss and accuracy on the mean clock of each policy, and say what is not as published."""
    trajectory = trained.trajectory
    records = folder.results([*policies])
    reading = LossReading.of(trained.trainer.problem, experiment.rounds)
    curves = losses_on_clocks(trajectory, records, reading)
    evaluations = evaluations_on_clocks(trajectory, records)
    label = reading.label()
    note = losses.equal_clocks_note(records)
    problem: Any = trained.trainer.problem
    images: int = problem.size
    remarks = [
        f"\nThe paper's network, with Adam at 8e-5: {label.replace(chr(10), ' ')}:"
        f" {curves['loss'][0]:.4g} in the first round, {curves['loss'][-1]:.4g} at the end; on"
        f" the held-out images: loss {trajectory['test_loss'][-1]:.4g}, accuracy"
        f" {trajectory['accuracy'][-1]:.3g}.",
    ]
    differences = []
    if experiment.rounds != known.rounds:
        differences.append(f"{experiment.rounds:,} rounds (there {known.rounds:,})")
    if images != PUBLISHED_IMAGES:
        differences.append(f"{images:,} training images (there {PUBLISHED_IMAGES:,})")
    if differences:
        remarks.append(f"Other than in the paper: {' and '.join(differences)}.")
    if note:
        remarks.append(note)
    title = f"{experiment.about}, {plural(experiment.seeds, 'seed')}"
    pictures = losses.draw(curves, evaluations, label, title, folder.path / "plots" / "loss", note)
    return Report(curves, [], [], pictures, remark="\n".join(remarks))
