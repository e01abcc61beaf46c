import errno
from pathlib import Path

import pytest

from ata_gym.utils.atomic import check_place, write_whole


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(part):
        part.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(path, fail)
    assert path.read_text() == "old"
    write_whole(path, lambda part: part.write_text("new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_without_a_file_gets_its_name(tmp_path):
    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"file cannot be written: .*No space left on device"):
        write_whole(tmp_path / "file", fail)
    with pytest.raises(FileNotFoundError, match=r"No such file .*nowhere.*file"):
        write_whole(tmp_path / "nowhere" / "file", lambda part: part.write_text("new"))


def test_a_place_is_tried_before_the_work(tmp_path):
    check_place(tmp_path / "new" / "file")
    assert list(tmp_path.rglob("*")) == [tmp_path / "new"]
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken" / "file", Path("/proc/nowhere/file")):
        with pytest.raises(OSError, match=f"{path} cannot be written: "):
            check_place(path)
