"""What a round tells, and traces of real task times, in which a kill costs no more than a line."""

import dataclasses

import pytest

from ata_gym.cluster import RoundRecord, TraceRecorder

RECORD = RoundRecord(
    7,
    {"a": 2, "b": 3, "c": 0},
    {"a": (0.5, 0.7), "b": (2.0, 2.0)},
    4.5,
    estimates={"a": 0.6},
    communication=0.25,
    wasted={"b": 1.5},
    away={"c": "it has left"},
    loss=0.125,
)


def test_a_line_has_the_tasks_of_each_worker_the_slowest_one_and_absent_ones():
    assert str(RECORD) == (
        "round 7: 4.5 s, waited for b, communication 0.25 s, wasted 1.5 s, loss 0.125; "
        "a 2 in 1.2 s (1.2 expected), b 3, 2 done in 4 s; away: c (it has left)"
    )
    many = RoundRecord(1, dict.fromkeys(range(100), 1), dict.fromkeys(range(100), (1.0,)), 1.0)
    assert str(many).endswith("15 1 in 1 s and 84 more")


def test_times_add_up_also_of_idle_workers_and_every_scalar_is_written_at_its_round():
    assert (repr(RECORD.busy), RECORD.idle) == (
        "{'a': 1.2, 'b': 4.0, 'c': 0.0}",
        {"a": 2.8, "b": 0.0, "c": 4.0},
    )
    assert RECORD.worker_time == 6.7
    assert RoundRecord(1, {"a": 0}, {}, 0.0).waited_for is None

    class Writer(list):
        def add_scalar(self, *arguments):
            self.append(arguments)

    RECORD.write(writer := Writer())
    assert writer == [(name, value, 7) for name, value in RECORD.scalars().items()]
    assert RECORD.scalars()["task_time/a"] == RECORD.scalars()["task_time/a/expected"] == 0.6


def test_a_latency_is_a_part_of_the_time_that_a_worker_is_busy_and_of_no_task():
    record = RoundRecord(1, {"a": 2, "b": 1}, {"a": (1.0, 2.0), "b": (4.0,)}, 5.0)
    assert (record.waited_for, "time/latency/a" in record.scalars()) == ("b", False)
    late = dataclasses.replace(record, latency={"a": 1.5, "b": 0.0})
    assert (late.waited_for, late.busy, late.worker_time) == ("a", {"a": 4.5, "b": 4.0}, 8.5)
    scalars = late.scalars()
    assert (scalars["time/latency/a"], scalars["task_time/a"]) == (1.5, 1.5)


def recorded(path, number=1, **seconds):
    with TraceRecorder(path) as recorder:
        recorder.add(RoundRecord(number, dict.fromkeys(seconds, 1), seconds, round_time=9.0))
        return path.read_bytes()  # before it is closed


@pytest.mark.parametrize("cut", [*range(0, 70, 5), 70])
def test_each_round_is_in_the_file_at_once_and_a_line_that_was_cut_off_is_removed(tmp_path, cut):
    path = tmp_path / "times.csv"
    whole = recorded(path, **{"a": (0.1, 0.25), "b, slow": (1 / 3,), "c": ()})
    assert whole == f'worker,round,duration\na,1,0.1\na,1,0.25\n"b, slow",1,{1 / 3!r}\n'.encode()
    path.write_bytes(whole[:cut])
    kept = max(whole[:cut].rfind(b"\n") + 1, len(b"worker,round,duration\n"))
    assert recorded(path, 2, a=(0.5,)) == whole[:kept] + b"a,2,0.5\n"


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "worker,round,duration,loss\n", "hello"])
def test_another_file_is_left_alone(tmp_path, content):
    path = tmp_path / "other.csv"
    path.write_text(content)
    with pytest.raises(
        ValueError,
        match="holds something else than the columns worker, round, duration: give another file",
    ):
        TraceRecorder(path)
    assert path.read_text() == content
    # The cure.
    assert recorded(tmp_path / "times.csv", a=(0.5,)).endswith(b"a,1,0.5\n")


def test_a_closed_recorder_and_a_name_of_two_lines_are_refused(tmp_path):
    with (
        TraceRecorder(str(tmp_path / "times.csv")) as recorder,
        pytest.raises(ValueError, match="must be one line"),
    ):
        recorder.add(RoundRecord(1, {"a\nb": 1}, {"a\nb": (1.0,)}, 1.0))
    with pytest.raises(ValueError, match="closed"):
        recorder.add(RECORD)
