"""The report on a training: the agent beside other policies on the test seeds, and how it learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.report import style
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.rl.learning.experiment import UNIFORM, Learned, Learning, names_in, ratios
from ata_gym.rl.learning.headline import best_of, lead, steps_of


def report(learning: Learning, learned: Learned, folder: Path) -> Report:
    """Compare the best agent with the references, and leave tables and the picture in the folder."""
    summary = summarise(learned.test)
    table = _table(summary, learning, learned)
    files = write(folder, {"table.md": markdown([table]), "table.csv": summary, "curve.csv": learned.curve})
    roles = {role: name for role, name in learning.roles().items() if name in names_in(learned.test)}
    remark = lead(learning.agent.env, learned.test, learned.curve, roles)
    left_out = [f"left out: {name} ({reason})" for name, reason in learned.left_out.items()]
    pictures = draw(learned, _about(learning), folder / "learning")
    return Report(summary, [table], files, pictures, remark="\n".join([remark, *left_out]))


def summarise(test: pl.DataFrame) -> pl.DataFrame:
    """Columns policy, quantity, over, mean, low, high: geometric means of ratios on the same seeds, 95 % intervals."""
    rows = []
    for name in names_in(test):
        mine = test.filter(pl.col("policy") == name)
        for quantity in ("cost", "runtime", "total_worker_time"):
            rows += [(name, quantity, over, *figures) for over, figures in ratios(test, mine, quantity).items()]
    columns = ["policy", "quantity", "over", "mean", "low", "high"]
    return pl.DataFrame(rows, columns, orient="row").fill_nan(None)


def draw(learned: Learned, title: str, stem: Path) -> list[Path]:
    """Draw the cost on the validation seeds over that of the uniform policy, beside those of the other references."""
    names = names_in(learned.validation)
    uniform = f"cost/{UNIFORM}"
    looks, steps = style.lines(names), learned.curve["steps"].to_numpy()
    with style.figure(7.5, 3.8) as picture:
        axes = picture.subplots()
        own = learned.curve[uniform].to_numpy()
        colour = style.OKABE_ITO[0]
        axes.plot(steps, own, color=colour, marker="o", markersize=3, label="agent", zorder=3)
        best = best_of(learned.curve)
        axes.plot([best], [own.min()], "o", color=colour, markersize=8, markerfacecolor="white", zorder=4)
        for name in names:
            mine = learned.validation.filter(pl.col("policy") == name)
            axes.axhline(ratios(learned.validation, mine)[UNIFORM][0], label=name, **looks[name])
        axes.set(xlabel="steps of training (circle: the agent that is kept)", title=f"cost / cost of {UNIFORM}")
        axes.margins(x=0.02)
        style.plain_numbers(axes)
        axes.yaxis.set_major_formatter("{x:.3g}")
        lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
        by_end = sorted(lines, key=lambda line: -np.asarray(line.get_ydata())[-1])
        picture.legend(handles=by_end, loc="outside right upper", handlelength=2.6)
        return style.save(picture, stem, title)


def _about(learning: Learning) -> str:
    agent, scenario = learning.agent, learning.scenario
    name = scenario.name or "a scenario of one's own"
    return f"{agent.algorithm} with {agent.action} in {agent.env}, {name}, price {scenario.price:g}"


def _table(summary: pl.DataFrame, learning: Learning, learned: Learned) -> Table:
    names, steps = names_in(learned.test), steps_of(learned.curve)
    over = {role: name for role, name in learning.roles().items() if name in names}
    roles = ", ".join(f"{role} is {name}" for role, name in over.items())
    title = f"{_about(learning)}\n{plural(learning.test_rows, 'test seed')}, geometric means; {roles}"
    shown = [("cost", role) for role in over] + [("runtime", "uniform"), ("total_worker_time", "uniform")]
    columns = [f"{quantity.removeprefix('total_').replace('_', ' ')}\n/ {role}" for quantity, role in shown]
    cells = {row[:3]: _cell(*row[3:]) for row in summary.iter_rows()}
    rows = [
        (name, f"{steps[name]:,}" if name in steps else "-", *(cells[name, one, over[role]] for one, role in shown))
        for name in names
    ]
    return Table(title, {"policy": LEFT, **right(("after\nsteps", *columns))}, rows)


def _cell(mean: float, low: float | None, high: float | None) -> str:
    """A ratio with half of its interval, which is nearly symmetric.

    >>> _cell(0.5, 0.48, 0.52), _cell(1.0, 1.0, 1.0), _cell(0.5, None, None)
    ('0.500 ±0.020', '1', '0.500')
    """
    if low is None or high is None:
        return f"{mean:.3f}"
    return "1" if mean == low == high == 1.0 else f"{mean:.3f} ±{(high - low) / 2:.3f}"
