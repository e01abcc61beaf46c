"""The dispatcher: rounds of B results, workers that die or leave within one, and what is refused."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_policies import Dispatcher


def begun(policy: str = "dispatch-gta", budget: int = 3) -> Dispatcher:
    """Three workers, all of whom have started a task."""
    dispatcher = Dispatcher(["a", "b", "c"], budget, policy)
    assert dispatcher.start() == ("a", "b", "c")
    return dispatcher


def test_a_round_ends_with_its_last_result_and_cancels_the_rest() -> None:
    dispatcher = begun()
    assert (dispatcher.missing, dispatcher.running) == (3, ("a", "b", "c"))
    assert not dispatcher.finished("b", 1.0)
    with pytest.raises(ValueError, match=r"worker 'b' is running no task; \['a', 'c'\] are"):
        dispatcher.finished("b", 1.0)
    with pytest.raises(ValueError, match=r"call start\(\) after each result"):
        dispatcher.finished("a", 1.0)
    assert dispatcher.start() == ("b",)
    assert not dispatcher.finished("b", 0.5)
    assert dispatcher._round.age.tolist() == [1.5, 0.0, 1.5]
    assert dispatcher.start() == ("b",)
    assert dispatcher.finished("a", 2.0)
    assert dispatcher._round.elapsed.tolist() == [0.0, 0.5, 2.0]
    assert (dispatcher.missing, dispatcher.running) == (3, ())
    assert dispatcher.start() == ("a", "b", "c")
    assert dispatcher.start() == ()
    dispatcher.finished("a", 1.0, ages={"c": 0.75})  # as it was measured
    assert dispatcher._round.age.tolist() == [0.0, 1.0, 0.75]
    dispatcher.start()
    dispatcher.finished("b", 3.0)
    dispatcher.start()
    assert dispatcher.finished("b", 1.0)
    assert dispatcher._round.elapsed.tolist() == [3.0, 0.0, 3.75]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda d: d.finished("z", 1.0), "there is no worker 'z'"),
        (lambda d: d.finished("a", math.nan), "a time of worker 'a' must be a finite number of at least 0, not nan"),
        (lambda d: d.finished("a", -1.0), "a time of worker 'a'"),
        (lambda d: d.finished("a", "soon"), "a time of worker 'a'"),
        (lambda d: d.finished("a", 1.0, {"b": math.inf}), "a time of worker 'b'"),
        (lambda d: d.finished("a", 1.0, {"a": 1.0}), "worker 'a' has finished its task"),
        (lambda d: d.finished("a", 1.0, {"y": 1.0}), "there is no worker 'y'"),
        (lambda d: d.lost("a", math.nan), "a time of worker 'a'"),
        (lambda d: d.lost("x"), "there is no worker 'x'"),
        (lambda d: d.join("a"), "worker 'a' is there already"),
        (lambda d: d.leave("w"), "there is no worker 'w'"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(call: Any, said: str) -> None:
    dispatcher = begun(policy="dispatch")
    before = copy.deepcopy(dispatcher.state_dict())
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - it is compared as text
        call(dispatcher)
    assert said in str(refusal.value)
    assert dispatcher.state_dict() == before


def test_who_dies_starts_no_other_task_in_the_round() -> None:
    dispatcher = begun()
    dispatcher.lost("a", 0.25)
    assert dispatcher.start() == ()
    dispatcher.finished("b", 1.0)
    assert dispatcher.start() == ("b",)
    dispatcher.lost("b")
    dispatcher.lost("c", 1.5)
    with pytest.raises(ValueError, match="no worker is there that could start"):
        dispatcher.start()
    dispatcher.leave("b")
    dispatcher.join("b")
    assert dispatcher.start() == ("b",)
    dispatcher.finished("b", 1.0)
    dispatcher.start()
    assert dispatcher.finished("b", 1.0)
    assert dispatcher._round.elapsed.tolist() == [0.25, 0.0, 1.5]
    assert dispatcher.start() == ("a", "b", "c")


def test_a_worker_whose_task_is_the_last_one_dies_and_the_others_start() -> None:
    dispatcher = begun()
    for worker in ("a", "b"):
        dispatcher.lost(worker)
    dispatcher.join("d")
    assert dispatcher.running == ("c",)
    dispatcher.lost("c")
    assert dispatcher.start() == ("d",)


@pytest.mark.parametrize("policy", ["dispatch", "dispatch-rest", "dispatch-gta"])
@settings(max_examples=4)
@given(data=st.data())
def test_somebody_always_works_whoever_is_there(policy: str, data: st.DataObject) -> None:
    dispatcher = Dispatcher(["a", "b", "c"], budget=4, policy=policy, price=data.draw(st.sampled_from([0.0, 0.3])))
    there = {"a", "b", "c"}
    for results in range(1, 31):
        for change in data.draw(st.lists(st.sampled_from("abcde"), max_size=1)):
            if there != {change}:
                dispatcher.leave(change) if change in there else dispatcher.join(change)
                there ^= {change}
        started = dispatcher.start()
        assert set(started) <= set(dispatcher.running) <= there == set(dispatcher.workers)
        worker = data.draw(st.sampled_from(dispatcher.running))
        assert dispatcher.finished(worker, data.draw(st.floats(0.1, 5.0))) == (results % 4 == 0)
        assert dispatcher.missing == 4 - results % 4


def test_who_leaves_is_not_relied_on_and_who_comes_back_is_known() -> None:
    dispatcher = Dispatcher(["fast", "slow"], budget=4, price=1.0)
    mean = {"fast": 1.0, "slow": 10.0}

    def play_round() -> set[str]:
        ends, used, now, over = dict[Any, float](), set(), 0.0, False
        while not over:
            started = dispatcher.start()
            used |= {*map(str, started)}
            ends |= {name: now + mean[str(name)] for name in started}
            first = min(ends, key=lambda name: ends[name])
            now = ends.pop(first)
            over = dispatcher.finished(first, mean[str(first)])
        return used

    for _ in range(12):
        play_round()
    assert play_round() == {"fast"}
    dispatcher.leave("fast")
    assert play_round() == {"slow"}
    dispatcher.join("fast")
    assert play_round() == {"fast"}
