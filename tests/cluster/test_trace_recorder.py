"""Traces of real task times: a kill costs no more than a line, and what is recorded is replayed."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from ata_gym.cluster import RoundRecord, TraceRecorder
from ata_gym.pools import read_trace


def record(number, **seconds):
    return RoundRecord(number, {name: len(times) for name, times in seconds.items()}, seconds, round_time=9.0)


def test_each_round_is_in_the_file_at_once_and_a_file_is_gone_on_with(tmp_path):
    path = tmp_path / "times.csv"
    with TraceRecorder(path) as recorder:
        recorder.add(record(1, a=(0.1, 0.25), b=()))
        assert path.read_text() == "worker,round,duration\na,1,0.1\na,1,0.25\n"
    with TraceRecorder(str(path)) as recorder:
        recorder.add(record(2, a=(0.3,), b=(1 / 3,)))
    assert path.read_text().splitlines()[3:] == ["a,2,0.3", f"b,2,{1 / 3!r}"]


@pytest.mark.parametrize("cut", range(0, 49, 3))
def test_a_line_that_was_cut_off_is_removed(tmp_path, cut):
    path = tmp_path / "times.csv"
    with TraceRecorder(path) as recorder:
        recorder.add(record(1, a=(0.1, 0.25), b=(1.5,)))
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with TraceRecorder(path) as recorder:
        recorder.add(record(2, a=(0.5,)))
    kept = max(whole[:cut].rfind(b"\n") + 1, len(b"worker,round,duration\n"))
    assert path.read_bytes() == whole[:kept] + b"a,2,0.5\n"


def test_the_end_of_a_long_file_is_found(tmp_path):
    path = tmp_path / "times.csv"
    with TraceRecorder(path) as recorder:
        recorder.add(record(1, a=(0.125,) * 20_000))
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"a,2,0.")
    TraceRecorder(path).close()
    assert path.stat().st_size == size


def test_it_is_replayed_in_an_env(tmp_path):
    pytest.importorskip("polars")
    path = tmp_path / "times.csv"
    with TraceRecorder(path) as recorder:
        recorder.add(record(1, **{"small, slow": (2.0, 3.0), "big": (1.0,)}))
    pool = read_trace(path, worker="worker", duration="duration")
    env = gym.make("ata_gym/TaskAllocation-v0", pool=pool, budget=3)
    env.reset(seed=0)
    assert env.step(np.array([1, 2]))[0]["duration"].tolist() == [1.0, 2.0, 3.0]  # "big" comes first


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "worker,round,duration,loss\n", "hello"])
def test_another_file_is_left_alone(tmp_path, content):
    path = tmp_path / "other.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match="holds something else than the columns worker, round, duration"):
        TraceRecorder(path)
    assert path.read_text() == content


def test_a_closed_recorder_and_a_name_of_two_lines_are_refused(tmp_path):
    path = tmp_path / "times.csv"
    with TraceRecorder(path) as recorder, pytest.raises(ValueError, match="must be one line"):
        recorder.add(record(1, **{"a\nb": (1.0,)}))
    with pytest.raises(ValueError, match="closed"):
        recorder.add(record(1, a=(1.0,)))
