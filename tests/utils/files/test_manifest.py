"""One call reads every file of a results folder, wherever its checksum is."""

from pathlib import Path

import pytest

from ata_gym.utils.files import manifest
from ata_gym.utils.files.manifest import checked_files, read_checked, write_listed
from ata_gym.utils.files.sealed import DamagedError, save_checkpoint


def write(path: Path, content: bytes) -> None:
    """Write a file twice, as a checkpoint if it is one."""
    path.parent.mkdir(exist_ok=True)
    for version in (b"before", content):
        if path.parent.name == "checkpoints":
            save_checkpoint(path, version)
        else:
            write_listed(path, lambda part, version=version: part.write_bytes(version))


@pytest.mark.parametrize("name", ["table.md", "results/ata.parquet", "checkpoints/ata.npz"])
def test_a_file_is_read_without_its_checksum_and_any_damage_is_noticed(
    tmp_path: Path, name: str
) -> None:
    manifest.begin(tmp_path)
    path = tmp_path / name
    write(path, b"content")
    assert path in checked_files(tmp_path)
    assert all(read_checked(file) in (b"content", b"before") for file in checked_files(tmp_path))
    assert read_checked(path) == b"content"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b" ", b"", b"another", bytes([whole[0] ^ 1]) + whole[1:]):
        path.write_bytes(damaged)
        with pytest.raises(DamagedError):
            read_checked(path)


def test_a_listed_file_that_is_gone_is_missing_and_a_checkpoint_is_not(tmp_path: Path) -> None:
    manifest.begin(tmp_path)
    for name in ("table.md", "checkpoints/ata.npz"):
        write(tmp_path / name, b"content")
        (tmp_path / name).unlink()
    assert checked_files(tmp_path) == {
        tmp_path / "table.md": False,
        tmp_path / "checkpoints/ata.npz.previous": True,
    }


def test_where_there_is_no_manifest_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "agent.zip", b"content")
    assert (tmp_path / "agent.zip").read_bytes() == read_checked(tmp_path / "agent.zip")
