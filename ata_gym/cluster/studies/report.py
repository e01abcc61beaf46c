"""What is shown of policies on an emulated cluster: a table, and who got how many tasks in which round."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from ata_gym.bench.report import style
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.cluster.studies.emulation import Emulation
from ata_gym.typing import Floats

ALONE = "one process"  # in the place of a policy: the same training without a cluster
SETTLED = 100  # rounds after which a policy is measured, or half of all if these are fewer than 200
_NEAR = 1.1  # a policy has followed a change when rounds take at most this times the least time, in the median of five
_FIVE = 5


def report(emulation: Emulation, records: Mapping[str, pl.DataFrame], about: str, folder: Path) -> Report:
    """Compare policies with the first of them, and leave a table and a picture in the folder.

    ``records`` has the frame of each policy, and maybe that of ``ALONE``.
    """
    summary = summarise(emulation, records)
    shown = summary.columns[1:]
    rows = [(row[0], *("" if value is None else f"{value:.3g}" for value in row[1:])) for row in summary.rows()]
    titles = [name.replace("_", " ") for name in shown]
    table = Table(about, {"policy": LEFT, **right(titles)}, rows)
    files = write(folder, {"table.md": markdown([table]), "table.csv": summary})
    pictures = _draw(emulation, {name: one for name, one in records.items() if name != ALONE}, about, folder)
    return Report(summary, [table], files, pictures)


def summarise(emulation: Emulation, records: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """A row for each policy.

    ``ms_per_round`` is the median after ``SETTLED`` rounds, before anything happens; ``over_least`` its ratio to the
    time of the best split; ``loss_differs`` the largest relative difference from the losses of one process.
    """
    alone = records.get(ALONE)
    rows, first = [], 0.0
    for policy, frame in records.items():
        if policy == ALONE:
            continue
        seconds, settled = frame["seconds"].to_numpy(), _settled(emulation)
        usual = float(np.median(seconds[settled]))
        first = first or usual
        differs = None
        if alone is not None:
            ours, theirs = frame["loss"].to_numpy(), alone["loss"].to_numpy()
            differs = float(np.max(np.abs(ours / theirs - 1.0)))
        rows.append(
            {
                "policy": policy,
                "ms_per_round": 1000 * usual,
                "times_as_fast": first / usual,
                "over_least": usual / emulation.least(1),
                "rounds_to_follow": _followed(emulation, seconds),
                "loss_differs": differs,
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None).select(
        column for column in rows[0] if any(row[column] is not None for row in rows)
    )


def _settled(emulation: Emulation) -> slice:
    events = [emulation.change_at, *(event and event[0] for event in (emulation.stall, emulation.away))]
    end = min([emulation.rounds, *(event - 1 for event in events if event)])
    return slice(min(SETTLED, end // 2), end)


def _followed(emulation: Emulation, seconds: Floats) -> float | None:
    """Rounds from a change of speeds on until rounds are short again; None if that did not happen."""
    if emulation.change_at is None:
        return None
    least = emulation.least(emulation.change_at)
    after = seconds[emulation.change_at - 1 :]
    for start in range(len(after) - _FIVE + 1):
        if np.median(after[start : start + _FIVE]) <= _NEAR * least:
            return float(start)
    return None


def _draw(emulation: Emulation, records: Mapping[str, pl.DataFrame], title: str, folder: Path) -> list[Path]:
    """For each policy the tasks of each worker, and how long rounds are."""
    least = [emulation.least(number) for number in range(1, emulation.rounds + 1)]
    usual = [np.quantile(frame["seconds"].to_numpy(), 0.95) for frame in records.values()]  # the first rounds compile
    highest = 1.25 * max([*usual, *least])
    with style.figure(1.4 + 2.6 * len(records), 4.6) as picture:
        grid = picture.subplots(2, len(records), sharex=True, sharey="row", squeeze=False)
        for (policy, frame), (above, below) in zip(records.items(), grid.T, strict=True):
            rounds, tasks = frame["round"].to_numpy(), np.array(frame["tasks"].to_list()).T
            labels = [f"worker {place}: {1000 * time:.3g} ms" for place, time in enumerate(emulation.times)]
            above.stackplot(rounds, tasks, labels=labels, colors=style.OKABE_ITO, step="mid", linewidth=0)
            above.set(title=policy, xlim=(1, emulation.rounds), ylim=(0, emulation.budget))
            below.plot(rounds, frame["seconds"].to_numpy(), color="#333333", linewidth=0.9, label="a round")
            below.plot(rounds, least, color="#D55E00", linewidth=1.2, linestyle=(0, (4, 2)), label="best split")
            below.set(xlabel="round", **({"yscale": "log"} if emulation.stall else {"ylim": (0, highest)}))
        grid[0, 0].set_ylabel("tasks of each worker")
        grid[1, 0].set_ylabel("seconds")
        grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        grid[1, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return style.save(picture, folder / "plots" / "emulated", title)
