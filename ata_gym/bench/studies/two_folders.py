"""Two results folders of ``ata-gym bench`` beside each other, as a page and as a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report.headline import beside
from ata_gym.bench.report.page.experiment_page import NOTE, experiment_page, origin, read_tasks
from ata_gym.bench.report.page.sections import Page
from ata_gym.bench.report.quantities import with_cost_regret
from ata_gym.bench.report.statistics import ends, summarise
from ata_gym.bench.report.summary_tables import TITLES, over_seeds, summary_table
from ata_gym.bench.report.table import Table
from ata_gym.bench.store.folder import Folder, differences, read_json
from ata_gym.bench.store.note import Note, check_note, finished_policies, read_note


class _Side(NamedTuple):
    """One of the two folders, with its letter."""

    letter: str
    store: Folder
    note: Note
    records: dict[str, pl.DataFrame]
    """The records of the policies that have finished, by name."""


def side_by_side(first: Path, second: Path, command: Sequence[str] = ()) -> tuple[Page, Table]:
    """Compare two folders, A and B, in a page and a table.

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
    if difference := differences(*(read_json(side.store.path / "config.json") for side in (a, b))):
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
    if note.get("loss_curve") != b.note.get("loss_curve"):
        note["loss_curve"] = None
    joint = with_cost_regret(pl.concat(records, how="diagonal"), note.get("least_cost"))
    samples = ends(joint, note["price"])
    summary = summarise(joint, note["price"])
    lines = [
        f"  {name} {line}"
        for name in changed_names
        for line in beside(samples, f"{name} (B)", {f"{name} (A)": "A"})
    ]
    result = experiment_page(note, joint, tasks)
    title = f"{note['title']}: A = {first}, B = {second}"
    if lines:
        lines.insert(0, "B, on the same seeds:")
    page = result._replace(
        study="compare",
        title=title,
        lead="\n".join([*lines, result.lead]),
        remarks=[
            *result.remarks,
            *(f"{topic}: {', '.join(names)}." for topic, names in remarks.items() if names),
        ],
        origin=origin([side.store.result(name) for side in (a, b) for name in side.records]),
    )
    table_title = f"{title}\n{plural(note['rounds'], 'round')}: {over_seeds(note['seeds'])}"
    quantities = [name for name in TITLES if name in summary["quantity"]]
    return page, summary_table(table_title, summary, quantities)


def _side(letter: str, folder: Path) -> _Side:
    """Read a folder that ``bench`` has made."""
    note = read_note(folder)
    store = Folder(folder)
    if note["study"] != "bench":
        raise ValueError(
            f"{folder} holds the results of {note['study']!r}: only those of bench can be compared",
        )
    check_note(folder, note, NOTE)
    records = {name: store.results([name]) for name in finished_policies(folder, note)}
    return _Side(letter, store, note, records)
