"""What a round tells."""

from ata_gym.cluster import RoundRecord

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


def test_a_line_says_who_got_how_many_who_was_waited_for_and_who_is_away():
    assert str(RECORD) == (
        "round 7: 4.5 s, waited for b, communication 0.25 s, wasted 1.5 s, loss 0.125; "
        "a 2 in 1.2 s (1.2 expected), b 3, 2 done in 4 s; away: c (it has left)"
    )


def test_times_add_up_and_are_floats_also_of_who_did_nothing():
    assert RECORD.busy == {"a": 1.2, "b": 4.0, "c": 0.0}
    assert all(isinstance(seconds, float) for seconds in RECORD.busy.values())
    assert RECORD.idle == {"a": 2.8, "b": 0.0, "c": 4.0}
    assert RECORD.worker_time == 6.7
    assert RoundRecord(1, {"a": 0}, {}, 0.0).waited_for is None


def test_every_scalar_is_written_at_its_round():
    class Writer(list):
        def add_scalar(self, *arguments):
            self.append(arguments)

    RECORD.write(writer := Writer())
    assert {name: value for name, value, _ in writer} == RECORD.scalars()
    assert {number for _, _, number in writer} == {7}
    assert RECORD.scalars()["task_time/a"] == RECORD.scalars()["task_time/a/expected"] == 0.6


def test_of_many_workers_a_line_names_some():
    many = RoundRecord(1, dict.fromkeys(range(100), 1), dict.fromkeys(range(100), (1.0,)), 1.0)
    assert str(many).endswith("15 1 in 1 s and 84 more")
