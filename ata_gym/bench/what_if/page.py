"""The page and the tables of what stragglers cost."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ata_gym.bench.page.render import write
from ata_gym.bench.page.sections import Chart, Column, Page, Player, Tables, TableView, View
from ata_gym.bench.report.table import LEFT, RIGHT, Cell, Table
from ata_gym.bench.what_if.study import WhatIf
from ata_gym.utils.atomic import write_whole

AS_IT_IS = "as it is"
_SHOWN = 12  # workers in the terminal
_POINTS = 200  # of a curve


def tables(found: WhatIf) -> list[Table]:
    """Who was waited for, and what the alternatives would give back."""
    most_lost = sorted(_workers(found), key=lambda one: -one[2])[:_SHOWN]
    workers = [(name, f"{100 * last:.1f}", f"{100 * lost:.1f}", f"{mean:.4g}") for name, last, lost, mean in most_lost]
    rest = f"; {len(found.last) - _SHOWN} more" if len(found.last) > _SHOWN else ""
    last = {"worker": LEFT, "% of steps last": RIGHT, "% of runtime lost": RIGHT, "mean time": RIGHT}
    others = {"what": LEFT, "how": LEFT, "saves %": RIGHT, "± %": RIGHT, "worker time": RIGHT}
    return [
        Table(f"who was waited for{rest}", last, workers),
        Table(f"the same {len(found.now):,} steps in other ways, B = {found.budget}", others, _rows(found)),
    ]


def _rows(found: WhatIf) -> list[tuple[str, ...]]:
    """For each way: its name and kind, what it saves, half the interval, and its worker time beside that of now."""
    paid = float(found.log.seconds.sum())
    rows: list[tuple[str, ...]] = [(AS_IT_IS, "", "0.0", "", "1.000")]
    for one in found.alternatives:
        half = "" if np.isnan(one.half) else f"{100 * one.half:.1f}"
        rows.append((one.name, one.kind, f"{100 * one.saved:z.1f}", half, f"{one.worker_time / paid:.3f}"))
    return rows


def _workers(found: WhatIf) -> list[tuple[str, float, float, float]]:
    """For each worker: its name, the part of steps in which it was last, the part of runtime lost, its mean time."""
    means = found.log.seconds.mean(axis=0)
    return list(zip(found.log.workers, found.last.tolist(), found.lost.tolist(), means.tolist(), strict=True))


def cost(found: WhatIf) -> str:
    """What stragglers cost, in a sentence."""
    return (
        f"Workers waited in {100 * found.idle:.1f} % of the worker time that was paid; a perfect split of each step, "
        f"known beforehand, would save {100 * found.perfect:.1f} % of the runtime."
    )


def to_data(found: WhatIf) -> dict[str, Any]:
    """All figures as plain data."""
    log = found.log
    workers = [dict(zip(("worker", "last", "lost", "mean"), one, strict=True)) for one in _workers(found)]
    others = [
        {"name": one.name, "kind": one.kind, "saved": one.saved, "half": one.half, "worker_time": one.worker_time}
        for one in found.alternatives
    ]
    sizes = {"log": log.name, "steps": len(found.now), "workers": len(log.workers), "budget": found.budget}
    sums = {"runtime": float(found.now.sum()), "worker_time": float(log.seconds.sum())}
    said = {"idle": found.idle, "perfect": found.perfect, "verdict": found.verdict, "remarks": list(log.remarks)}
    return {**sizes, **sums, **said, "waited_for": workers, "alternatives": others}


def leave(found: WhatIf, folder: Path, command: Sequence[str]) -> list[Path]:
    """Write the page, the figures, and what was learned, into a folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"what-if.json": to_data(found), "state.json": {"allocator": found.state}}
    for name, content in contents.items():
        text = json.dumps(content, indent=2)
        write_whole(folder / name, partial(Path.write_text, data=text, encoding="utf-8", newline="\n"))
    return [write(page(found, command), folder / "report.html"), *(folder / name for name in contents)]


def page(found: WhatIf, command: Sequence[str]) -> Page:
    """The page of a log."""
    log, steps = found.log, len(found.now)
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _POINTS)).round()).astype(int)
    runtimes = [found.now, *(one.runtime for one in found.alternatives)]
    series = [{"p": p, "mean": np.cumsum(one)[shown], "half": None} for p, one in enumerate(runtimes)]
    numbers = [Column("saves %"), Column("± %"), Column("worker time")]
    others = TableView(
        [Column("what", False), Column("how", False), *numbers], [[*map(Cell, row)] for row in _rows(found)]
    )
    top = float(found.lost.max()) or 1.0
    workers = [
        [Cell(name), _percent(last), _percent(lost)._replace(shade=lost / top), Cell(f"{mean:.4g}", mean)]
        for name, last, lost, mean in _workers(found)
    ]
    titles = [Column("worker", False), Column("% of steps last"), Column("% of runtime lost"), Column("mean time")]
    about = (
        "Each way plays the logged times of the same steps. The interval is one of 95 % over ten parts of the log. "
        "Worker time is that of all workers together, beside the time that they computed as it was. Policies that "
        "learn start without knowledge; a race starts more than B tasks, and cancels what is late."
    )
    lost = "Lost is the time of a step in which all others had finished. The mean time is that of a share, as logged."
    sections: list[Tables | Chart] = [
        Tables("ways", "The same steps in other ways: more saved is better", about, [others]),
        Chart(
            "runtime", "Runtime so far: lower is better", "The time until all steps so far were over.", "curves",
            [View({"x": shown + 1, "series": series})], {"x": "step", "y": "runtime", "perRound": True, "logX": False},
        ),
        Tables("workers", "Who was waited for", lost, [TableView(titles, workers)]),
    ]  # fmt: skip
    facts = [
        ("workers n", f"{len(log.workers):,}"), ("steps", f"{steps:,}"), ("tasks B", f"{found.budget:,}"),
        ("price", "0"),
    ]  # fmt: skip
    players = [Player(AS_IT_IS), *(Player(one.name, one.kind) for one in found.alternatives)]
    lead = f"{found.verdict}\n{cost(found)}"
    return Page("what-if", log.name, lead, facts, players, sections, [], command, (), log.remarks)


def _percent(part: float) -> Cell:
    return Cell(f"{100 * part:.1f}", part)
