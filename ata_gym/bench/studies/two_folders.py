"""Two results folders of ``ata-gym bench``, compared on the same seeds."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report.headline import compared_with
from ata_gym.bench.report.page.sections import Page
from ata_gym.bench.report.quantities import in_order, with_cost_regret
from ata_gym.bench.report.statistics import ends
from ata_gym.bench.report.summary_tables import over_seeds, summary_table
from ata_gym.bench.runner.results import Results
from ata_gym.bench.store.folder import Folder, differences, origin, read_json
from ata_gym.bench.store.note import Note, finished_policies, read_note, sizes
from ata_gym.bench.studies.benchmark import NOTE, Benchmark
from ata_gym.bench.studies.benchmark_report import read_tasks, report_on


class _Side(NamedTuple):
    """One of the two folders, with its letter."""

    letter: str
    store: Folder
    note: Note
    records: dict[str, pl.DataFrame]
    """The records of the policies that have finished, by name."""


def compare_folders(first: Path, second: Path, command: Sequence[str] = ()) -> Results:
    """Compare two folders of ``bench``, A and B.

    A policy whose records differ is there twice, with its records of A and with its records of B;
    one whose records are the same in both, or that only one folder has, is there once.

    Args:
        first: Folder A.
        second: Folder B.
        command: The words of the command that the page shows.

    Raises:
        FileNotFoundError: If there is no such folder.
        DamagedError: If a note or a result is damaged.
        ValueError: If a folder holds nothing that ``bench`` has finished, or the two differ in
            their workers, sizes or seeds.
    """
    a = _side("A", first)
    b = _side("B", second)
    config_a, config_b = (read_json(side.store.path / "config.json") for side in (a, b))
    if difference := differences(config_a, config_b):
        raise ValueError(f"{second} (here) cannot be compared with {first} (there): {difference}")
    common_names = [name for name in a.records if name in b.records]
    changed_names = [name for name in common_names if not a.records[name].equals(b.records[name])]
    policies = list[Note]()
    records = list[pl.DataFrame]()
    tasks = dict[str, Any]()
    remarks = {"The same in A and B": [name for name in common_names if name not in changed_names]}
    for side in (a, b):
        for policy in side.note["policies"]:
            name = policy["name"]
            if name in changed_names:
                label = f"{name} ({side.letter})"
            else:
                label = name
            if name not in side.records:
                remarks.setdefault(f"Not finished in {side.letter}", []).append(name)
            # What is the same in both is taken from A.
            elif side is a or name in changed_names or name not in common_names:
                policies.append(
                    {**policy, "name": label, "card": {**policy["card"], "name": label}}
                )
                records.append(side.records[name].with_columns(policy=pl.lit(label)))
                if policy_tasks := read_tasks(side.store, [name]):
                    tasks[label] = policy_tasks[name]
        remarks[f"Only in {side.letter}"] = [
            name for name in side.records if name not in common_names
        ]
    note = {**a.note, "policies": policies, "command": [*command]}
    # Two loss curves that differ have no common picture.
    if note["loss_curve"] != b.note["loss_curve"]:
        note["loss_curve"] = None
    joint = with_cost_regret(pl.concat(records, how="diagonal"), note["least_cost"])
    files = []
    for side in (a, b):
        files += [side.store.result(name) for name in side.records]
    report = report_on(note, joint, tasks, origin(files))
    samples = ends(joint, note["price"])
    lines = [
        f"  {name} {line}"
        for name in changed_names
        for line in compared_with(samples, f"{name} (B)", {f"{name} (A)": "A"})
    ]
    if lines:
        lines.insert(0, "B, on the same seeds:")
    size = sizes(note)
    title = f"{size.title}: A = {first}, B = {second}"
    quantities = in_order(report.summary["quantity"].unique())
    heading = f"{title}\n{plural(size.rounds, 'round')}: {over_seeds(size.seeds)}"
    added = [f"{topic}: {', '.join(names)}." for topic, names in remarks.items() if names]
    page = report.page()
    changed_page = page._replace(
        study="compare",
        title=title,
        lead="\n".join([*lines, page.lead]),
        remarks=[*page.remarks, *added],
    )
    return Results(
        report._replace(
            title=title,
            tables=[summary_table(heading, report.summary, quantities)],
            findings="\n".join([*lines, page.lead, *added]),
            page=partial(Page._replace, changed_page),
        ),
    )


def _side(letter: str, folder: Path) -> _Side:
    """Read a folder that ``bench`` has made."""
    note = read_note(folder)
    if note["study"] != Benchmark.name:
        raise ValueError(
            f"{folder} holds the results of {note['study']!r}: only results of bench can be"
            " compared",
        )
    read_note(folder, NOTE)
    store = Folder(folder)
    records = {name: store.results([name]) for name in finished_policies(folder, note)}
    return _Side(letter, store, note, records)
