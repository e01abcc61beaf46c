"""The page and the tables of what stragglers cost."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ata_gym.bench.report.page.render import write
from ata_gym.bench.report.page.sections import Chart, Column, Page, Series, Tables, TableView, View
from ata_gym.bench.report.table import LEFT, RIGHT, Cell, Table
from ata_gym.bench.studies.what_if.study import WhatIf
from ata_gym.utils.atomic import write_whole

AS_IT_IS = "as it is"
"""The name of the way in which the job was run."""

_SHOWN_WORKERS = 12
"""The largest number of workers in the terminal."""

_CURVE_POINTS = 200
"""The largest number of points of a curve."""


def tables(found: WhatIf) -> list[Table]:
    """Who was waited for, and what the alternatives would give back."""
    most_lost = sorted(_workers(found), key=lambda row: -row[2])[:_SHOWN_WORKERS]
    workers = [
        (name, f"{100 * last:.1f}", f"{100 * lost:.1f}", f"{mean:.4g}")
        for name, last, lost, mean in most_lost
    ]
    if len(found.last) > _SHOWN_WORKERS:
        rest_text = f"; {len(found.last) - _SHOWN_WORKERS} more"
    else:
        rest_text = ""
    worker_columns = {
        "worker": LEFT,
        "% of steps last": RIGHT,
        "% of runtime lost": RIGHT,
        "mean time": RIGHT,
    }
    way_columns = {"what": LEFT, "how": LEFT, "saves %": RIGHT, "± %": RIGHT, "worker time": RIGHT}
    return [
        Table(f"who was waited for{rest_text}", worker_columns, workers),
        Table(
            f"the same {len(found.now):,} steps in other ways, B = {found.budget}",
            way_columns,
            _rows(found),
        ),
    ]


def _rows(result: WhatIf) -> list[tuple[str, ...]]:
    """For each way its name and kind, what it saves, half its interval, and its worker time.

    The worker time is relative to the logged worker time.
    """
    paid_time = float(result.log.seconds.sum())
    rows: list[tuple[str, ...]] = [(AS_IT_IS, "", "0.0", "", "1.000")]
    for alternative in result.alternatives:
        if np.isnan(alternative.half):
            half = ""
        else:
            half = f"{100 * alternative.half:.1f}"
        rows.append(
            (
                alternative.name,
                alternative.kind,
                f"{100 * alternative.saved:z.1f}",
                half,
                f"{alternative.worker_time / paid_time:.3f}",
            ),
        )
    return rows


def _workers(result: WhatIf) -> list[tuple[str, float, float, float]]:
    """For each worker its name, the parts of steps last and of runtime lost, and its mean time."""
    means = result.log.seconds.mean(axis=0)
    return list(
        zip(
            result.log.workers,
            result.last.tolist(),
            result.lost.tolist(),
            means.tolist(),
            strict=True,
        ),
    )


def cost(found: WhatIf) -> str:
    """What stragglers cost, in a sentence."""
    return (
        f"Workers waited in {100 * found.idle:.1f} % of the worker time that was paid; a perfect"
        f" split of each step, known beforehand, would save {100 * found.perfect:.1f} % of the"
        " runtime."
    )


def to_data(found: WhatIf) -> dict[str, Any]:
    """All figures as values that JSON can hold."""
    log = found.log
    workers = [
        dict(zip(("worker", "last", "lost", "mean"), row, strict=True)) for row in _workers(found)
    ]
    alternatives = [
        {
            "name": alternative.name,
            "kind": alternative.kind,
            "saved": alternative.saved,
            "half": alternative.half,
            "worker_time": alternative.worker_time,
        }
        for alternative in found.alternatives
    ]
    return {
        "log": log.name,
        "steps": len(found.now),
        "workers": len(log.workers),
        "budget": found.budget,
        "runtime": float(found.now.sum()),
        "worker_time": float(log.seconds.sum()),
        "idle": found.idle,
        "perfect": found.perfect,
        "verdict": found.verdict,
        "remarks": list(log.remarks),
        "waited_for": workers,
        "alternatives": alternatives,
    }


def leave(found: WhatIf, folder: Path, command: Sequence[str]) -> list[Path]:
    """Write the page, the figures, and what was learned, into a folder; give their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"what-if.json": to_data(found), "state.json": {"allocator": found.state}}
    for name, content in contents.items():
        text = json.dumps(content, indent=2)
        write_whole(
            folder / name,
            partial(Path.write_text, data=text, encoding="utf-8", newline="\n"),
        )
    page_path = write(page(found, command), folder / "report.html")
    return [page_path, *(folder / name for name in contents)]


def page(found: WhatIf, command: Sequence[str]) -> Page:
    """The page of a log."""
    log = found.log
    steps = len(found.now)
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _CURVE_POINTS)).round()).astype(int)
    runtimes = [found.now, *(alternative.runtime for alternative in found.alternatives)]
    series = [
        {"p": p, "mean": np.cumsum(runtime)[shown], "half": None}
        for p, runtime in enumerate(runtimes)
    ]
    numbers = [Column("saves %"), Column("± %"), Column("worker time")]
    way_table = TableView(
        [Column("what", False), Column("how", False), *numbers],
        [[*map(Cell, row)] for row in _rows(found)],
    )
    largest_loss = float(found.lost.max()) or 1.0
    workers = [
        [
            Cell(name),
            _percent(last),
            _percent(lost)._replace(shade=lost / largest_loss),
            Cell(f"{mean:.4g}", mean),
        ]
        for name, last, lost, mean in _workers(found)
    ]
    titles = [
        Column("worker", False),
        Column("% of steps last"),
        Column("% of runtime lost"),
        Column("mean time"),
    ]
    about = (
        "Each way plays the logged times of the same steps. The interval is one of 95 % over ten"
        " parts of the log. Worker time is that of all workers together, beside the time that they"
        " computed as it was. Policies that learn start without knowledge; a race starts more than"
        " B tasks, and cancels what is late."
    )
    lost_text = (
        "Lost is the time of a step in which all others had finished. The mean time is that of a"
        " share, as logged."
    )
    sections: list[Tables | Chart] = [
        Tables("ways", "The same steps in other ways: more saved is better", about, [way_table]),
        Chart(
            "runtime",
            "Runtime so far: lower is better",
            "The time until all steps so far were over.",
            "curves",
            [View({"x": shown + 1, "series": series})],
            {"x": "step", "y": "runtime", "perRound": True, "logX": False},
        ),
        Tables("workers", "Who was waited for", lost_text, [TableView(titles, workers)]),
    ]
    facts = [
        ("workers n", f"{len(log.workers):,}"),
        ("steps", f"{steps:,}"),
        ("tasks B", f"{found.budget:,}"),
        ("price", "0"),
    ]
    players = [
        Series(AS_IT_IS),
        *(Series(alternative.name, alternative.kind) for alternative in found.alternatives),
    ]
    lead = f"{found.verdict}\n{cost(found)}"
    return Page("what-if", log.name, lead, facts, players, sections, [], command, (), log.remarks)


def _percent(part: float) -> Cell:
    return Cell(f"{100 * part:.1f}", part)
