"""A report is what a command shows of a results folder and leaves in it; that of an experiment, and its pictures."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ata_gym.bench.cost_regret import REGRETS
from ata_gym.bench.experiment.experiment import Experiment, plural
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report import losses, style
from ata_gym.bench.report.headline import Competitor, headline
from ata_gym.bench.report.statistics import ends, estimate, summarise, values
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import Table, markdown
from ata_gym.typing import Floats, Ints
from ata_gym.utils.manifest import write_listed


class Report(NamedTuple):
    """What there is to show."""

    summary: pl.DataFrame  # the figures with all digits
    tables: Sequence[Table]  # the tables for the terminal
    files: Sequence[Path]  # the tables as files
    pictures: Sequence[Path]
    heading: str = ""  # a line above the tables
    remark: str = ""  # lines below the tables


def report(
    experiment: Experiment, policies: list[str], folder: Folder, loss_curve: losses.Curve | None = None
) -> Report:
    """Summarise finished policies in the order given, and leave tables and pictures in their folder."""
    players = list(map(Competitor.of, policies))
    return report_on(folder.results(policies), experiment, players, folder.path, loss_curve)


def report_on(
    records: pl.DataFrame, experiment: Experiment, players: Sequence[Competitor], folder: Path,
    loss_curve: losses.Curve | None = None,
) -> Report:  # fmt: skip
    """Summarise records, and leave tables and pictures in a folder; with a loss curve those of the loss."""
    summary = summarise(records, experiment.scenario.price)
    tables = summary_tables(summary, experiment)
    files = write(folder, {"table.md": markdown(tables), "table.csv": summary})
    pictures, said = draw(records, experiment, folder / "plots"), findings(records, experiment, players)
    if loss_curve is not None:
        curves, title = losses.on_clocks(pl.DataFrame(loss_curve), records), f"{experiment.about}, {experiment.length}"
        note = losses.equal_clocks_note(records)
        pictures += losses.draw(curves, curves.head(0), "loss", title, folder / "plots" / "loss", note)
        said = f"{said}\n{losses.SAME}"
    return Report(summary, tables, files, pictures, remark=said)


def findings(records: pl.DataFrame, experiment: Experiment, players: Sequence[Competitor]) -> str:
    """Who is best in each game, in words; and what the regrets are where both are known."""
    said = headline(ends(records, experiment.scenario.price), players)
    return f"{said}\n{REGRETS}" if known(records, "cost_regret") else said


def write(folder: Path, contents: Mapping[str, str | pl.DataFrame]) -> list[Path]:
    """Write texts, and frames as CSV with all digits, by file name; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        text = content if isinstance(content, str) else content.write_csv()
        write_listed(folder / name, partial(Path.write_text, data=text, encoding="utf-8", newline="\n"))
    return [folder / name for name in contents]


class Curves(NamedTuple):
    """A picture of a quantity against the round."""

    title: str
    quantity: str
    per_round: bool = False  # whether its mean over the rounds so far is drawn, on logarithmic axes
    log_rounds: bool = False  # whether the axis of rounds is logarithmic, where the sum is drawn


CURVES = {
    "runtime": Curves("runtime", "runtime"),
    "round_time": Curves("round time, mean so far", "runtime", per_round=True),
    "worker_time": Curves("total worker time", "total_worker_time"),
    "round_worker_time": Curves("worker time of a round, mean so far", "total_worker_time", per_round=True),
    "regret": Curves("cumulative proxy regret", "regret", log_rounds=True),
    "cost_regret": Curves("cumulative cost regret", "cost_regret", log_rounds=True),
}
"""The pictures of curves, by name."""

_FILES = {
    "runtime": ("runtime", "round_time"),
    "worker_time": ("worker_time", "round_worker_time"),
    "regret": ("regret", "cost_regret"),
}


def draw(records: pl.DataFrame, experiment: Experiment, folder: Path) -> list[Path]:
    """Draw all pictures, as PNG and SVG: means over seeds, with 95 % bands; regrets where they are known."""
    made, title = [], f"{experiment.about}, {plural(experiment.seeds, 'seed')}"
    for name, curves in _FILES.items():
        shown = [one for one in curves if known(records, CURVES[one].quantity)]
        if shown:
            with style.figure(*((9.5, 3.6) if len(shown) > 1 else (6.5, 3.8))) as picture:
                panels = picture.subplots(1, len(shown), squeeze=False)[0]
                for axes, one in zip(panels, shown, strict=True):
                    panel(axes, records, CURVES[one])
                legend(picture, panels[0])
                made += style.save(picture, folder / name, title)
    return made


def known(records: pl.DataFrame, quantity: str) -> bool:
    """Whether some policy has a quantity."""
    return quantity in records.columns and not records[quantity].is_null().all()


def panel(axes: Axes, records: pl.DataFrame, curves: Curves) -> None:
    """Draw a line and a band for each policy that has the quantity."""
    policies = records["policy"].unique(maintain_order=True).to_list()
    rounds = records["round"].unique().sort().to_numpy()
    for policy, line in style.lines(policies).items():
        sample = values(records, policy, curves.quantity)
        if not np.isnan(sample).all():
            curve(axes, rounds, sample / rounds if curves.per_round else sample, line, label=policy)
    axes.margins(x=0.01)
    axes.set(xlabel="round", title=curves.title)
    if curves.per_round or curves.log_rounds:
        axes.set_xscale("log")
    heights = [height for line in axes.get_lines() for height in np.asarray(line.get_ydata()) if height > 0]
    if curves.per_round and heights:  # recorded times may be 0
        axes.set(yscale="log", ylim=(0.8 * min(heights), 1.25 * max(heights)))  # a band may begin below 0


def curve(axes: Axes, rounds: Ints, sample: Floats, line: Mapping[str, Any], label: str | None = None) -> None:
    """Draw the mean over seeds of a sample, shape (seeds, rounds), and its confidence band."""
    mean, half = estimate(sample)
    axes.plot(rounds, mean, label=label, **line)
    if not np.isnan(half).all():
        axes.fill_between(rounds, mean - half, mean + half, color=line["color"], alpha=0.2, linewidth=0)


def legend(picture: Figure, axes: Axes) -> None:
    """Add a legend whose entries stand in the order of the ends of a panel's lines, and plain numbers at all axes."""
    style.plain_numbers(*picture.axes)
    by_end = sorted(axes.get_lines(), key=lambda line: -np.asarray(line.get_ydata())[-1])
    size = min(10.0, 44.0 * picture.get_figheight() / max(len(by_end), 1))  # so that all of them find room
    picture.legend(handles=by_end, loc="outside right upper", handlelength=2.6, fontsize=size)
