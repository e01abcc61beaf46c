"""The report on an experiment: what a command shows of a results folder and leaves in it."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ata_gym.bench.experiment import Experiment, plural
from ata_gym.bench.report import losses, style
from ata_gym.bench.report.headline import headline
from ata_gym.bench.report.quantities import REGRETS
from ata_gym.bench.report.statistics import ends, estimate, summarise, values
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import Table, markdown
from ata_gym.bench.role import Role
from ata_gym.bench.store.folder import Folder
from ata_gym.typing import Floats, Ints
from ata_gym.utils.manifest import write_listed


class Report(NamedTuple):
    """What a command shows, and the files that it has written."""

    summary: pl.DataFrame
    """The figures with all digits."""
    tables: Sequence[Table]
    """The tables for the terminal."""
    files: Sequence[Path]
    """The tables as files."""
    pictures: Sequence[Path]
    """The pictures as files."""
    heading: str = ""
    """A line above the tables."""
    remark: str = ""
    """Lines below the tables."""


def report(
    experiment: Experiment,
    policies: list[str],
    folder: Folder,
    loss_curve: losses.Curve | None = None,
) -> Report:
    """Summarise finished policies, and leave tables and pictures in their folder.

    Args:
        experiment: What was played.
        policies: The names of the policies, in the order of the tables.
        folder: Their results.
        loss_curve: The loss after each round, for pictures of the loss.
    """
    players = list(map(Role.of, policies))
    return report_on(folder.results(policies), experiment, players, folder.path, loss_curve)


def report_on(
    records: pl.DataFrame,
    experiment: Experiment,
    players: Sequence[Role],
    folder: Path,
    loss_curve: losses.Curve | None = None,
) -> Report:
    """Summarise records, and leave tables and pictures in a folder.

    Args:
        records: The records of all policies.
        experiment: What was played.
        players: The policies.
        folder: Where tables and pictures go.
        loss_curve: The loss after each round, for pictures of the loss.
    """
    summary = summarise(records, experiment.scenario.price)
    tables = summary_tables(summary, experiment)
    files = write(folder, {"table.md": markdown(tables), "table.csv": summary})
    pictures = draw(records, experiment, folder / "plots")
    remark = findings(records, experiment, players)
    if loss_curve is not None:
        curves = losses.on_clocks(pl.DataFrame(loss_curve), records)
        title = f"{experiment.about}, {experiment.length}"
        note = losses.equal_clocks_note(records)
        stem = folder / "plots" / "loss"
        # There are no held-out figures: a frame of the same columns without rows.
        pictures += losses.draw(curves, curves.head(0), "loss", title, stem, note)
        remark = f"{remark}\n{losses.SAME}"
    return Report(summary, tables, files, pictures, remark=remark)


def findings(records: pl.DataFrame, experiment: Experiment, players: Sequence[Role]) -> str:
    """Say who is best in each game, and what the regrets are where both are known."""
    text = headline(ends(records, experiment.scenario.price), players)
    if known(records, "cost_regret"):
        return f"{text}\n{REGRETS}"
    return text


def write(folder: Path, contents: Mapping[str, str | pl.DataFrame]) -> list[Path]:
    """Write texts, and frames as CSV with all digits, each file whole or not at all.

    Args:
        folder: The folder, which is made if there is none.
        contents: A text or a frame for each file name.

    Returns:
        The paths of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if isinstance(content, str):
            text = content
        else:
            text = content.write_csv()
        write_listed(
            folder / name,
            partial(Path.write_text, data=text, encoding="utf-8", newline="\n"),
        )
    return [folder / name for name in contents]


class Curves(NamedTuple):
    """A picture of a quantity against the round."""

    title: str
    quantity: str
    """A column of the records."""
    per_round: bool = False
    """Whether its mean over the rounds so far is drawn, on logarithmic axes."""
    log_rounds: bool = False
    """Whether the axis of rounds is logarithmic, where the sum is drawn."""


CURVES = {
    "runtime": Curves("runtime", "runtime"),
    "round_time": Curves("round time, mean so far", "runtime", per_round=True),
    "worker_time": Curves("total worker time", "total_worker_time"),
    "round_worker_time": Curves(
        "worker time of a round, mean so far",
        "total_worker_time",
        per_round=True,
    ),
    "regret": Curves("cumulative proxy regret", "regret", log_rounds=True),
    "cost_regret": Curves("cumulative cost regret", "cost_regret", log_rounds=True),
}
"""The pictures of curves, by name."""

_FILES = {
    "runtime": ("runtime", "round_time"),
    "worker_time": ("worker_time", "round_worker_time"),
    "regret": ("regret", "cost_regret"),
}
"""The pictures that stand side by side in a file, by the name of the file."""


def draw(records: pl.DataFrame, experiment: Experiment, folder: Path) -> list[Path]:
    """Draw all pictures, as PNG and SVG: means over seeds, with 95 % bands.

    Regrets are drawn where they are known.

    Args:
        records: The records of all policies.
        experiment: What was played.
        folder: Where the files go.

    Returns:
        The paths of the files.
    """
    paths = []
    title = f"{experiment.about}, {plural(experiment.seeds, 'seed')}"
    for name, curves in _FILES.items():
        curve_names = [
            curve_name for curve_name in curves if known(records, CURVES[curve_name].quantity)
        ]
        if len(curve_names) > 1:
            size = (9.5, 3.6)
        else:
            size = (6.5, 3.8)
        if curve_names:
            with style.figure(*size) as picture:
                panels = picture.subplots(1, len(curve_names), squeeze=False)[0]
                for axes, curve_name in zip(panels, curve_names, strict=True):
                    panel(axes, records, CURVES[curve_name])
                legend(picture, panels[0])
                paths += style.save(picture, folder / name, title)
    return paths


def known(records: pl.DataFrame, quantity: str) -> bool:
    """Return whether some policy has a quantity."""
    return quantity in records.columns and not records[quantity].is_null().all()


def panel(axes: Axes, records: pl.DataFrame, curves: Curves) -> None:
    """Draw a line and a band for each policy that has the quantity."""
    policies = records["policy"].unique(maintain_order=True).to_list()
    rounds = records["round"].unique().sort().to_numpy()
    for policy, line in style.lines(policies).items():
        sample = values(records, policy, curves.quantity)
        if curves.per_round:
            sample = sample / rounds
        if not np.isnan(sample).all():
            curve(axes, rounds, sample, line, label=policy)
    axes.margins(x=0.01)
    axes.set(xlabel="round", title=curves.title)
    if curves.per_round or curves.log_rounds:
        axes.set_xscale("log")
    heights = [
        height for line in axes.get_lines() for height in np.asarray(line.get_ydata()) if height > 0
    ]
    # Recorded times may be 0, so there may be no heights. The limits are set by the lines alone,
    # since a band may begin below 0.
    if curves.per_round and heights:
        axes.set(yscale="log", ylim=(0.8 * min(heights), 1.25 * max(heights)))


def curve(
    axes: Axes,
    rounds: Ints,
    sample: Floats,
    line: Mapping[str, Any],
    label: str | None = None,
) -> None:
    """Draw the mean over seeds of a sample, and its confidence band.

    Args:
        axes: The panel.
        rounds: The recorded rounds, shape (rounds,).
        sample: The values, shape (seeds, rounds).
        line: The look of the line, as ``style.lines`` returns it.
        label: The name of the line.
    """
    mean, half = estimate(sample)
    axes.plot(rounds, mean, label=label, **line)
    if not np.isnan(half).all():
        low = mean - half
        high = mean + half
        axes.fill_between(rounds, low, high, color=line["color"], alpha=0.2, linewidth=0)


def legend(picture: Figure, axes: Axes) -> None:
    """Add a legend to a picture, and plain numbers to all its axes.

    The entries of the legend stand in the order in which the lines of the panel ``axes`` end.
    """
    style.plain_numbers(*picture.axes)
    by_end = sorted(axes.get_lines(), key=lambda line: -np.asarray(line.get_ydata())[-1])
    # Many entries are smaller, so that all of them have room.
    size = min(10.0, 44.0 * picture.get_figheight() / max(len(by_end), 1))
    picture.legend(handles=by_end, loc="outside right upper", handlelength=2.6, fontsize=size)
