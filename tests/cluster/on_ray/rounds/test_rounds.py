"""Rounds on a Ray cluster in all modes: exactly B results of their own, whatever the workers or the
user do.
"""

import _thread
import json
import re
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="the extra cluster")

from ata_gym.cluster.on_ray.rounds.task_round import TaskRound
from ata_policies import Allocator, Dispatcher
from tests.cluster.disturbances import Kind
from tests.fuzz.actors import DEADLINE, SLEEPS, make_sleep
from tests.waiting import until


def test_every_round_has_b_results_of_its_own(watched):
    for k in range(10):
        done = watched.round(k)
        assert done.record.tasks.keys() == SLEEPS.keys()
    assert (done.record.away, done.record.estimates.keys()) == ({}, SLEEPS.keys())
    watched.check_samples()


def test_a_round_in_which_no_worker_has_a_task_says_so_and_goes_on_with_one(watched):
    runner = watched.runner
    tasks = TaskRound(runner._actors, runner._samples, 1, (make_sleep(), None))
    with pytest.raises(RuntimeError, match="no worker has a task: give a worker one first"):
        list(iter(tasks.next, None))
    tasks.give(runner._actors.present[0], 1)
    tasks.run()
    tasks.close()
    assert len(tasks.results) == 1


def slow_payload() -> Any:
    """What an actor needs 50 ms to read; it is sent by value, as in ``tests.fuzz.actors``."""

    def read() -> str:
        import time

        time.sleep(0.05)
        return "read"

    class Payload:
        def __reduce__(self) -> Any:
            return read, ()

    return Payload()


def test_what_a_round_needs_before_the_first_task_is_a_latency_and_no_task_time(watched):
    runner = watched.runner
    state = runner.state_dict()
    done = runner.round((make_sleep(), slow_payload()))
    if runner.mode == "dispatch":
        assert "round.latency" not in runner.state_dict()
    else:
        told = runner._decider._round
        assert bool(told.has_latency) == (runner.mode == "allocation")
        if runner.mode == "allocation":
            # only workers with results have one
            latency = dict(zip(runner._decider.places, told.latency.tolist(), strict=True))
            assert {name for name, time in latency.items() if time} == done.record.seconds.keys()
            for worker in done.record.seconds:
                assert 0.05 <= latency[worker] <= done.record.round_time
    runner.load_state_dict(state)


def test_an_error_of_a_task_names_the_worker_and_ends_the_round(watched):
    def raises(_worker, _argument, sample):
        raise ZeroDivisionError(f"sample {sample}")

    def is_infinite(*_):
        import numpy as np

        return {"loss": 1.0, "gradient": [np.array([0.0, np.inf], np.float32), None]}

    for fails, error, sentence in (
        (raises, ZeroDivisionError, r"worker '[ab]' raised it in the task of sample \d"),
        (
            is_infinite,
            FloatingPointError,
            r"worker '[ab]' computed a value for sample \d+ that is not finite",
        ),
    ):
        state = watched.runner.state_dict()
        with pytest.raises(error, match=sentence):
            watched.round("bad", fails)
        assert watched.runner.state_dict() == state
        watched.round("good")


def test_an_interrupt_leaves_the_runner_usable(watched, tmp_path):
    sleep = make_sleep({"a": 60.0, "b": 60.0})

    def begun(worker, argument, _sample):
        (tmp_path / f"{argument}-{worker}").touch()
        sleep(worker)

    def interrupt(k):
        until(lambda: len(list(tmp_path.glob(f"interrupted {k}-*"))) > k)
        _thread.interrupt_main()

    for k in range(2):  # when the first task has begun, and the second one
        state = watched.runner.state_dict()
        threading.Thread(target=interrupt, args=(k,)).start()
        with pytest.raises(KeyboardInterrupt):
            watched.runner.round((begun, f"interrupted {k}"))
        assert watched.runner.state_dict() == state
        watched.round(k)


def test_it_goes_on_from_its_state_and_a_state_that_does_not_fit_is_refused(watched):
    watched.round("before")
    state = json.loads(json.dumps(watched.runner.state_dict()))
    first = watched.runner.round((make_sleep(), 0))
    assert watched.runner.state_dict() != state
    watched.runner.load_state_dict(state)
    assert watched.runner.state_dict() == state
    again = watched.round("again")
    assert (again.record.round, again.record.estimates) == (
        first.record.round,
        first.record.estimates,
    )
    assert {index for index in again.indices if index < state["next_sample"]} <= set(
        state["returned_samples"],
    )
    state = watched.runner.state_dict()
    for wrong, message in (
        ({"rounds": -1}, "rounds must be a whole number from 0"),
        ({"next_sample": 1.5}, "next_sample must be a whole number"),
        ({"returned_samples": [10**9]}, "one was returned that was never taken"),
        ({"returned_samples": None}, "this is no state of a queue of samples"),
        (Allocator(["a", "b"], 5, "uta").state_dict(), "this is no state of"),
        (Dispatcher(["a", "b"], 5).state_dict(), "this is no state of"),
    ):
        with pytest.raises(ValueError, match=message):
            watched.runner.load_state_dict(state | wrong)
        assert watched.runner.state_dict() == state


@pytest.mark.parametrize(
    ("watched", "hangs"),
    [("race", True), ("dispatch", False)],
    indirect=["watched"],
)
def test_tasks_of_a_lost_worker_are_handed_on_in_the_same_round(watched, hangs, tmp_path):
    path = tmp_path / "once"
    sleep = make_sleep({"a": 0.03, "b": 0.001})

    def happens(worker, argument, sample):
        import os

        if worker == "b" and not path.exists():
            path.touch()
            time.sleep(600.0 if hangs else 0.0)
            os.kill(os.getpid(), 9)
        sleep(worker, argument, sample)

    done = watched.until(lambda done: "b" in done.record.away, happens)
    if hangs:
        why = f"it gave no answer for {DEADLINE:g} s"
    else:
        why = "it was lost: ActorDiedError"
    assert done.record.away["b"].startswith(why)
    watched.until(lambda done: "b" in done.workers, happens)


@pytest.mark.parametrize("watched", ["allocation"], indirect=True)
def test_actors_that_are_killed_at_random_moments(watched):
    told = watched.train_while_disturbed(np.random.default_rng(0), [Kind.KILL])
    assert told["rounds"] > 10


@pytest.mark.usefixtures("cluster")
def test_the_example_script_trains(monkeypatch, capsys):
    script = Path(__file__).parents[4] / "notebooks" / "cluster" / "train_on_ray.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--workers", "2", "--rounds", "31"])
    runpy.run_path(str(script), run_name="__main__")
    losses = [
        float(loss)
        for loss in re.findall(r"^loss (\S+); round \d+: ", capsys.readouterr().out, re.MULTILINE)
    ]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def test_a_sample_that_was_cancelled_is_not_put_off_for_ever(watched):
    sleep = make_sleep({"a": 0.05, "b": 0.001})
    watched.round("slow", sleep)
    free = watched.runner.state_dict()["returned_samples"]
    for k in range(12):
        watched.round(k, sleep)
    assert set(free) <= set(watched.used)
