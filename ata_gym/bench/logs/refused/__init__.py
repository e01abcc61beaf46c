"""Files without times by rank and step: recognised, and refused with what to record instead."""

from itertools import islice
from pathlib import Path

from ata_gym.bench.logs.refused import binaries, objects, texts
from ata_gym.bench.logs.refused.kind import RECORD_ROWS, RECORD_TRACES, Refused
from ata_gym.utils.validation import short

REFUSED = (*binaries.REFUSED, *objects.REFUSED, *texts.REFUSED)
"""All kinds that are refused by name."""

_MOST_FILES = 10_000
"""Files of a folder that are looked at."""


def refuse(path: Path) -> None:
    """Raise ValueError for a file that cannot answer, by its kind or by what is in it.

    Args:
        path: A file, or a folder of which all files are refused, that no format but the last knows.
    """
    if path.is_dir():
        _refuse_folder(path)
        return
    kind = _kind_of(path)
    if kind is not None:
        raise ValueError(f"this is {kind.name}, which {kind.reason}: {kind.cure}")
    contents_by_kind = {
        "a JSON object with the keys": objects.keys_without_rows(path),
        "a SQLite database with the tables": binaries.database_tables(path),
    }
    for known_as, contents in contents_by_kind.items():
        if contents:
            raise ValueError(
                f"this is {known_as} {short(contents)}, which holds no times by rank and step:"
                f" {RECORD_TRACES}, or {RECORD_ROWS}",
            )


def _refuse_folder(folder: Path) -> None:
    kinds = []
    for file in islice(folder.rglob("*"), _MOST_FILES):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if hidden or not file.is_file():
            continue
        kind = _kind_of(file)
        # another file may hold what these lack
        if kind is None:
            return
        kinds.append(kind)
    if kinds:
        # settings lie beside everything, and say the least
        kind = next((one for one in kinds if one is not objects.SETTINGS), kinds[0])
        raise ValueError(f"its files are {kind.name}, which {kind.reason}: {kind.cure}")


def _kind_of(file: Path) -> Refused | None:
    return next((kind for kind in REFUSED if kind.recognises(file)), None)


__all__ = ["REFUSED", "Refused", "refuse"]
