"""Damage in any file of a results folder is named by ``verify``."""

from pathlib import Path

from ata_gym.bench.store.folder import verify

_NOT_RESULTS = {"timings.json", "timings.md", "report.html"}
_ROOMS = {"tensorboard"}


def unseen(out: Path) -> list[str]:
    """The files of a whole results folder that ``verify`` does not name, and no other, where one
    byte is flipped.

    Left out are those that notebooks/results.md names: wall-clock times, pages, TensorBoard's log
    and locks.
    """
    assert [one.file for one in verify(out) if one.fault] == []
    names = [file.relative_to(out) for file in sorted(out.rglob("*")) if file.is_file()]
    results = [
        name
        for name in names
        if name.name not in _NOT_RESULTS
        and _ROOMS.isdisjoint(name.parts)
        and not name.name.startswith(".")
    ]
    assert {"ata-gym.sha256"} < {name.name for name in results}
    return [str(name) for name in results if not _named(out, out / name)]


def _named(out: Path, file: Path) -> bool:
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 3] ^= 1
    try:
        file.write_bytes(damaged)
        return [one.file for one in verify(out) if one.fault] == [file]
    finally:
        file.write_bytes(whole)
