"""Results and checkpoints that other code has made are refused, or they are removed and made anew."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ata_gym.bench.experiment.provenance import Provenance, changed
from ata_gym.bench.experiment.store import discard, read_json
from ata_gym.utils.manifest import home_of
from ata_gym.utils.sealed import has_checkpoint


class Made(NamedTuple):
    """What some code makes: its result and, until that is finished, its checkpoint, each with a JSON file beside it."""

    name: str
    files: tuple[Path, ...]
    by: Provenance  # the provenance that it would have now

    def changed(self) -> str | None:
        """A phrase that names the code that has changed since it was made or begun; None if it is the same."""
        notes = [file.with_suffix(".json") for file in self.files if has_checkpoint(file)]
        note = next((note for note in notes if note.exists()), None)
        return None if note is None else changed(read_json(note), self.by, self.name)

    def remove(self) -> None:
        """Remove result and checkpoints."""
        for file in self.files:
            discard(file)


def check_code(everything: Iterable[Made], rerun_changed: bool) -> None:
    """Refuse what other code has made with a ValueError that names the results and the modules, or remove it."""
    old = [(made, what) for made in everything if (what := made.changed())]
    if old and not rerun_changed:
        names: dict[str, dict[str, None]] = {}
        for made, what in old:
            names.setdefault(what, {})[made.name] = None
        said = "; ".join(
            f"{what} has changed since the results of {', '.join(those)} were made" for what, those in names.items()
        )
        where, others = home_of(old[0][0].files[0]), "which keeps all others, or choose another folder"
        raise ValueError(
            f"in {where}: {said}: make these anew with --rerun-changed (in Python rerun_changed=True), {others}"
        )
    for made, _ in old:
        made.remove()
