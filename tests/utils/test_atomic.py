import errno
import os
from pathlib import Path

import pytest

from ata_gym.utils.atomic import check_place, check_source, write_whole


def test_a_file_appears_whole_or_not_at_all_and_an_error_names_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    full = OSError(errno.ENOSPC, "No space left")
    for error, match in ((RuntimeError(), None), (full, "file cannot be written: .*No sp")):

        def fail(part, error=error):
            part.write_text("half")
            raise error

        with pytest.raises(type(error), match=match):
            write_whole(path, fail)
        assert path.read_text() == "old"
    write_whole(path, lambda part: part.write_text("new"))
    assert (path.read_text(), list(tmp_path.iterdir())) == ("new", [path])
    with pytest.raises(FileNotFoundError, match=r"No such file .*nowhere.*file"):
        write_whole(tmp_path / "nowhere" / "file", lambda part: part.write_text("new"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes of POSIX")
@pytest.mark.parametrize("door", [check_place, check_source, lambda path: write_whole(path, Path.touch)])
def test_only_files_are_read_and_replaced(tmp_path, door):
    pipe, link, folder = (tmp_path / name for name in ("pipe", "link", "folder"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    folder.mkdir()
    null = Path("/dev/null")
    for path, what in ((pipe, "a device or"), (link, "a device or"), (null, "a device"), (folder, "a folder")):
        with pytest.raises((OSError, ValueError), match=f"{path}.* is {what}"):
            door(path)
    assert sorted(tmp_path.iterdir()) == [folder, link, pipe]
    assert (pipe.is_fifo(), link.is_symlink(), null.is_char_device()) == (True, True, True)


def test_a_place_is_tried_before_the_work(tmp_path):
    check_place(tmp_path / "new" / "file")
    assert list(tmp_path.rglob("*")) == [tmp_path / "new"]
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken" / "file", Path("/proc/nowhere/file")):
        with pytest.raises(OSError, match=f"{path} cannot be written: "):
            check_place(path)
    for door in (check_place, lambda path: write_whole(path, Path.touch)):
        with pytest.raises(OSError, match="/dev is for devices"):
            door(Path("/dev/ata-gym.csv"))
    assert not Path("/dev/ata-gym.csv").exists()
