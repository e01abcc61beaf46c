"""Workers of a runner that come, go, never come or are lost for good; and arguments that are wrong."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="the extra cluster")

import ata_policies
from ata_gym.cluster import RayRunner, cancelled
from tests.fuzz.actors import Watched, kill, make_caller, make_sleep

pytestmark = pytest.mark.usefixtures("cluster")
SLEEP = make_sleep(dict.fromkeys("abc", 0.002))


def test_workers_join_leave_and_are_left_out():
    options = {"a": {}, "b": {"resources": {"a machine that is not there": 1}}}
    with RayRunner(make_caller(), options, 4, "uta", on_loss="leave", start_timeout=10.0) as runner:
        watched = Watched(runner, 4)
        done = watched.round(0, SLEEP)
        assert set(done.workers) == {"a"}
        assert done.record.away == runner.away == {"b": "its actor is starting"}  # it finds no room and blocks nobody
        with pytest.raises(ValueError, match="worker 'a' has not left"):
            runner.join("a")
        runner.join("c", {"num_cpus": 0.5})
        done = watched.until(lambda done: "c" in done.workers, SLEEP)
        assert runner.workers == ("a", "c")
        runner.leave("b")
        with pytest.raises(ValueError, match="there is no worker 'd'"):
            runner.leave("d")
        kill(watched.processes["c"])
        done = watched.until(lambda done: "c" in done.record.away, SLEEP)
        assert done.record.away == {"b": "it has left", "c": "it was lost: ActorDiedError"}
        assert set(watched.round(2, SLEEP).workers) == {"a"}
        runner.leave("a")
        state = runner.state_dict()
        with pytest.raises(RuntimeError, match=r"no worker is there \(a: it has left; b: it has left; c: it was lost"):
            runner.round()
        assert runner.state_dict() == state
        runner.join("c")
        assert set(watched.round(3, SLEEP).workers) == {"c"}
        watched.check_samples()


def test_a_worker_whose_actors_die_in_a_row_is_left_out():
    def dies(*_):
        import os

        os.kill(os.getpid(), 9)

    policy = ata_policies.Allocator(["a"], 2, "uta").policy
    runner = RayRunner(make_caller(), ["a"], 2, policy, restarts=1)
    with pytest.raises(ValueError, match="is made for 1 workers"):
        runner.join("b")
    assert runner.round((SLEEP, None)).indices == (0, 1)
    with pytest.raises(RuntimeError, match="2 actors were lost in a row without a result"):
        runner.round((dies, None))
    runner.close()
    runner.close()
    with pytest.raises(ValueError, match="this runner is closed"):
        runner.round()


def test_an_error_of_make_task_is_raised():
    def make_task(_):
        raise OSError("no data")

    with RayRunner(make_task, 1, 2, "uta") as runner:
        with pytest.raises(OSError, match="make_task raised it for worker 0"):
            runner.round()
        with pytest.raises(RuntimeError, match=r"no worker is there \(0: its make_task raised an error\)"):
            runner.round()


REFUSED = [
    ({"workers": 0}, "workers must be a whole number"),
    ({"workers": "ab"}, "workers must be a whole number"),
    ({"workers": []}, "there must be one worker at least"),
    ({"workers": ["a", "a"]}, "two are the same"),
    ({"workers": [1.5]}, "workers must be names"),
    ({"workers": {"a": 1}}, "or a dict of Ray's actor options"),
    ({"workers": {"a": {"num_cpu": 1}}}, "worker 'a': Invalid option keyword num_cpu"),
    ({"workers": {"a": {"max_restarts": 1}}}, "worker 'a': the option max_restarts is set here"),
    ({"budget": 0}, "budget must be a whole number"),
    ({"policy": "atta"}, "there is no policy 'atta'"),
    ({"mode": "rally"}, 'mode must be "allocation", "race" or "dispatch"'),
    ({"mode": "race", "policy": "uta"}, r"use Allocator\(\.\.\.\), or a policy of ata_gym/TaskRace-v0"),
    ({"deadline": 0.0}, "deadline must be a finite number above 0"),
    ({"start_timeout": -1}, "start_timeout must be a finite number above 0"),
    ({"on_loss": "stop"}, 'on_loss must be "replace" or "leave"'),
    ({"restarts": -1}, "restarts must be a whole number from 0"),
    ({"price": -1}, "price must be"),
    ({"make_task": 3}, "make_task must be a function"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED, ids=[str(wrong) for wrong, _ in REFUSED])
def test_an_argument_that_is_wrong_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        RayRunner(**{"make_task": make_caller(), "workers": 2, "budget": 3, **wrong})


def test_outside_of_an_actor_nothing_is_cancelled():
    assert cancelled() is False
