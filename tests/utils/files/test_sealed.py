import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ata_gym.utils.files import sealed
from ata_gym.utils.files.sealed import load_checkpoint, read_sealed, save_checkpoint


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), data=st.data())
def test_any_changed_byte_and_any_cut_is_noticed(tmp_path, content, data):
    path = tmp_path / "file"
    sealed.write_sealed(path, content)
    assert read_sealed(path) == content
    whole = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[position] ^= data.draw(st.integers(1, 255))
    else:
        del whole[position:]
    path.write_bytes(whole)
    with pytest.raises(sealed.DamagedError):
        read_sealed(path)


def test_a_checkpoint_that_is_damaged_or_half_saved_gives_way_to_the_one_before(
    tmp_path,
    monkeypatch,
):
    path = tmp_path / "run.npz"
    assert load_checkpoint(path, bytes) is None
    for content in (b"first", b"second", b"third"):
        save_checkpoint(path, content)
    assert load_checkpoint(path, bytes) == b"third"
    path.write_bytes(b"torn")
    with pytest.warns(UserWarning, match="damaged"):
        assert load_checkpoint(path, bytes) == b"second"
    assert (tmp_path / "run.npz.damaged").read_bytes() == b"torn"
    save_checkpoint(path, b"fourth")
    assert load_checkpoint(path, bytes) == b"fourth"
    sealed.remove_checkpoint(path)
    assert load_checkpoint(path, bytes) is None
    save_checkpoint(path, b"fifth")
    monkeypatch.setattr(sealed, "write_sealed", lambda *_: sys.exit())
    with pytest.raises(SystemExit):
        save_checkpoint(path, b"sixth")
    assert load_checkpoint(path, bytes) == b"fifth"


def test_a_file_that_goes_while_it_is_looked_at_is_not_there_and_no_device(tmp_path, monkeypatch):
    """As where another process puts a checkpoint in the place of the one before."""
    path = tmp_path / "checkpoint"
    path.write_bytes(b"content")
    look = Path.stat

    def look_once(self, **options):
        found = look(self, **options)
        # of this file alone: others are looked at in the same process
        if self == path:
            path.unlink()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", look_once)
        with pytest.raises(FileNotFoundError):
            read_sealed(path)
