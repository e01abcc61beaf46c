import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ata_gym.bench.logs import read_log
from ata_gym.bench.report.losses import loss_curve
from ata_gym.bench.store.claim import claim
from ata_gym.bench.store.note import read_note
from ata_gym.pools import read_trace
from ata_gym.utils.files.atomic import check_place, check_source, read_source, write_whole
from ata_gym.utils.files.json_files import read_object
from ata_gym.utils.files.sealed import read_file
from ata_policies import Allocator
from ata_policies.beliefs.prior import read_prior


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


CALLS: list[Callable[[Path], object]] = [
    check_place,
    check_source,
    read_source,
    read_object,
    lambda path: write_whole(path, Path.touch),
    lambda path: Allocator(2, 2, "uta", prior=path),
    read_prior,
    read_file,
]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes of POSIX")
@pytest.mark.parametrize("call", CALLS)
def test_only_files_are_read_and_replaced(tmp_path, monkeypatch, call):
    pipe, link, folder, plug = (tmp_path / name for name in ("pipe", "link", "folder", "socket"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    folder.mkdir()
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(plug.name)
    null = Path("/dev/null")
    kinds = {pipe: "a pipe", link: "a pipe", folder: "a folder", plug: "a socket"}
    for path, kind in (*kinds.items(), (null, "a device")):
        with pytest.raises((OSError, ValueError), match=f"{path}.* is {kind}"):
            call(path)
    assert sorted(tmp_path.iterdir()) == sorted(kinds)
    assert (pipe.is_fifo(), link.is_symlink(), null.is_char_device()) == (True, True, True)


@pytest.mark.skipif(os.name == "nt", reason="needs names of bytes")
def test_names_that_are_no_text_are_refused_by_every_call(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xffd.csv"))
    path.write_text("worker,tasks,mean\n0,1,2\n")
    calls = [
        *CALLS,
        claim,
        read_note,
        lambda path: loss_curve(path, np.array([1])),
        read_log,
        lambda path: read_trace(path, worker="w", duration="d"),
    ]
    # which reads what ata-gym has named
    for call in (call for call in calls if call is not read_file):
        with pytest.raises(
            ValueError,
            match=r"b'.*b\\xffd\.csv' holds bytes that are no UTF-8: rename it",
        ):
            call(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_place_is_tried_before_the_work(tmp_path):
    check_place(tmp_path / "new" / "file")
    assert list(tmp_path.rglob("*")) == [tmp_path / "new"]
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken" / "file", Path("/proc/nowhere/file")):
        with pytest.raises(OSError, match=f"{path} cannot be written: "):
            check_place(path)
    for call in (check_place, lambda path: write_whole(path, Path.touch)):
        with pytest.raises(OSError, match="/dev is for devices"):
            call(Path("/dev/ata-gym.csv"))
    assert not Path("/dev/ata-gym.csv").exists()
