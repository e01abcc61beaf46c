"""Two results folders of ``ata-gym bench`` beside each other, as a page and as a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from ata_gym.bench.cost_regret import with_cost_regret
from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.experiment.store import Folder, differences, read_json
from ata_gym.bench.page.experiment_page import NOTE, experiment_page, origin, read_tasks
from ata_gym.bench.page.note import Note, check_note, finished_policies, read_note
from ata_gym.bench.page.sections import Page
from ata_gym.bench.report.headline import beside
from ata_gym.bench.report.statistics import ends, summarise
from ata_gym.bench.report.summary_tables import TITLES, over_seeds, summary_table
from ata_gym.bench.report.table import Table


class _Side(NamedTuple):
    letter: str
    store: Folder
    note: Note
    records: dict[str, pl.DataFrame]  # of the policies that have finished


def side_by_side(first: Path, second: Path, command: Sequence[str] = ()) -> tuple[Page, Table]:
    """Two folders, A and B: a policy whose records differ is there twice, as that of A and as that of B.

    ``command`` are the words that make the page. FileNotFoundError or DamagedError as of ``read_note``; ValueError if a
    folder holds nothing that ``bench`` has finished, or the two are of other workers, sizes or seeds.
    """
    a, b = sides = _side("A", first), _side("B", second)
    if other := differences(*(read_json(side.store.path / "config.json") for side in sides)):
        raise ValueError(f"{second} (here) cannot be compared with {first} (there): {other}")
    both = [name for name in a.records if name in b.records]
    changed = [name for name in both if not a.records[name].equals(b.records[name])]
    policies, records, tasks = list[Note](), list[pl.DataFrame](), dict[str, Any]()
    remarks = {"The same in A and B": [name for name in both if name not in changed]}
    for side in sides:
        for one in side.note["policies"]:
            name = one["name"]
            shown = f"{name} ({side.letter})" if name in changed else name
            if name not in side.records:
                remarks.setdefault(f"Not finished in {side.letter}", []).append(name)
            elif side is a or name in changed or name not in both:
                policies.append({**one, "name": shown, "card": {**one["card"], "name": shown}})
                records.append(side.records[name].with_columns(policy=pl.lit(shown)))
                if of := read_tasks(side.store, [name]):
                    tasks[shown] = of[name]
        remarks[f"Only in {side.letter}"] = [name for name in side.records if name not in both]
    note = {**a.note, "policies": policies, "command": [*command]}
    if note.get("loss_curve") != b.note.get("loss_curve"):
        note["loss_curve"] = None
    joint = with_cost_regret(pl.concat(records, how="diagonal"), note.get("least_cost"))
    samples, summary = ends(joint, note["price"]), summarise(joint, note["price"])
    lines = [f"  {name} {line}" for name in changed for line in beside(samples, f"{name} (B)", {f"{name} (A)": "A"})]
    made, title = experiment_page(note, joint, tasks), f"{note['title']}: A = {first}, B = {second}"
    page = made._replace(
        study="compare", title=title, lead="\n".join([*["B, on the same seeds:"] * bool(lines), *lines, made.lead]),
        remarks=[*made.remarks, *(f"{what}: {', '.join(names)}." for what, names in remarks.items() if names)],
        origin=origin([side.store.result(name) for side in sides for name in side.records]),
    )  # fmt: skip
    about = f"{title}\n{plural(note['rounds'], 'round')}: {over_seeds(note['seeds'])}"
    return page, summary_table(about, summary, [name for name in TITLES if name in summary["quantity"]])


def _side(letter: str, folder: Path) -> _Side:
    note, store = read_note(folder), Folder(folder)
    if note["study"] != "bench":
        raise ValueError(f"{folder} holds the results of {note['study']!r}: only those of bench can be compared")
    check_note(folder, note, NOTE)
    return _Side(letter, store, note, {name: store.results([name]) for name in finished_policies(folder, note)})
