import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ata_gym.utils.sealed import (
    DamagedError,
    load_checkpoint,
    read_sealed,
    remove_checkpoint,
    save_checkpoint,
    write_sealed,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), data=st.data())
def test_any_changed_byte_and_any_cut_is_noticed(tmp_path, content, data):
    path = tmp_path / "file"
    write_sealed(path, content)
    assert read_sealed(path) == content
    whole = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[where] ^= data.draw(st.integers(1, 255))
    else:
        del whole[where:]
    path.write_bytes(whole)
    with pytest.raises(DamagedError):
        read_sealed(path)


def test_a_sealed_archive_is_still_an_archive(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, times=np.arange(3))
    write_sealed(path, path.read_bytes())
    with np.load(path) as arrays:
        np.testing.assert_array_equal(arrays["times"], np.arange(3))


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_taken(tmp_path):
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
    remove_checkpoint(path)
    assert load_checkpoint(path, bytes) is None


def test_a_kill_between_the_two_steps_of_a_save_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    save_checkpoint(path, b"first")
    monkeypatch.setattr("ata_gym.utils.sealed.write_sealed", lambda *_: sys.exit())
    with pytest.raises(SystemExit):
        save_checkpoint(path, b"second")
    assert load_checkpoint(path, bytes) == b"first"
