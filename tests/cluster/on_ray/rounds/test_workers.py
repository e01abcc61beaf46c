"""Workers of a runner that come, go, never come or are lost for good; and arguments that are
wrong.
"""

import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("ray", reason="the extra cluster")

import ata_policies
from ata_gym.cluster import RayRunner, TraceRecorder
from tests.fuzz.actors import Watched, kill, make_caller, make_sleep
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("cluster")
SLEEP = make_sleep(dict.fromkeys("abc", 0.002))


def test_workers_join_leave_and_are_left_out():
    options = {"a": {}, "b": {"resources": {"a machine that is not there": 1}}}
    with RayRunner(make_caller(), options, 4, "uta", restarts=0, start_timeout=2.0) as runner:
        watched = Watched(runner, 4)
        done = watched.round(0, SLEEP)
        assert set(done.workers) == {"a"}
        # it finds no room and blocks nobody
        assert done.record.away == runner.away == {"b": "its actor is starting"}
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
        with pytest.raises(
            RuntimeError,
            match=r"no worker is there \(a: it has left; b: it has left; c: it was lost",
        ):
            runner.round()
        assert runner.state_dict() == state
        runner.join("c")
        assert set(watched.round(3, SLEEP).workers) == {"c"}
        watched.check_samples()


def test_an_actor_that_is_starting_is_waited_for(caplog):
    def make_slowly(_):
        import time

        time.sleep(0.5)
        return lambda *_: 1

    with (
        RayRunner(make_caller(), {"a": {"num_cpus": 2}}, 1, "uta") as hog,
        RayRunner(make_slowly, 1, 1, "uta", start_timeout=0.01) as runner,
        ThreadPoolExecutor(1) as threads,
    ):
        waiting = threads.submit(runner.round)
        while not caplog.records and not waiting.done():
            time.sleep(0.01)
        hog.close()
        assert waiting.result().values == (1,)
    pattern = (
        r"no worker is there after \S+ s, and actors are still starting \(0: its actor is"
        r" starting\)"
    )
    assert any(re.fullmatch(pattern, message) for message in caplog.messages)


@pytest.mark.parametrize(
    "asked",
    [{"num_cpus": 3}, {"num_gpus": 1}, {"resources": {"x": 1}}, {"memory": 2**60}],
)
def test_an_actor_that_no_node_is_large_enough_for_is_not_waited_for(asked):
    with (
        RayRunner(make_caller(), {"a": asked}, 1, "uta", start_timeout=0.01) as runner,
        pytest.raises(
            RuntimeError,
            match=r"after \S+ s, and no node has what their actors ask for \(a: its actor",
        ),
    ):
        runner.round((SLEEP, None))


def listening():
    psutil = pytest.importorskip("psutil")
    listeners = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one that has just ended
            # The ranks of other tests of this run are no part of the cluster.
            if "multiprocessing.forkserver" in " ".join(process.cmdline()):
                continue
            sockets = process.net_connections(kind="tcp")
            listeners |= {
                (process.name(), each.laddr.ip)
                for each in sockets
                if each.status == psutil.CONN_LISTEN
            }
    return listeners


def test_values_may_be_not_finite_and_a_worker_that_dies_in_a_row_is_left_out():
    def dies(*_):
        import os

        os.kill(os.getpid(), 9)

    policy = ata_policies.Allocator(["a"], 2, "uta").policy
    runner = RayRunner(make_caller(), ["a"], 2, policy, restarts=1, allow_nonfinite=True)
    with pytest.raises(ValueError, match="is made for 1 workers"):
        runner.join("b")
    done = runner.round((lambda *_: float("nan"), None))
    assert done.indices == (0, 1)
    assert np.isnan([value[0] for value in done.values]).all()
    names, addresses = map(set, zip(*listening(), strict=True))
    assert names >= {"gcs_server", "raylet", "ray::TaskActor"}
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    with pytest.raises(RuntimeError, match="2 actors were lost in a row without a result"):
        runner.round((dies, None))
    runner.close()
    runner.close()
    with pytest.raises(ValueError, match="this runner is closed: make another one"):
        runner.round()
    # The cures: of an option that is set here, too.
    with pytest.raises(ValueError, match="the option max_restarts is set here; leave it out"):
        RayRunner(make_caller(), {"a": {"num_cpus": 0.5, "max_restarts": 1}}, 2, "uta")
    with RayRunner(make_caller(), {"a": {"num_cpus": 0.5}}, 2, "uta") as another:
        assert Watched(another, 2).round(0, SLEEP).indices == (0, 1)


def test_records_say_how_likely_the_tasks_were(tmp_path):
    path = tmp_path / "times.csv"
    options = {name: {"num_cpus": 0.5} for name in "ab"}
    with pytest.raises(ValueError, match='take mode="allocation"'):
        RayRunner(make_caller(), options, 3, "race", mode="race", propensities=True)
    with (
        RayRunner(make_caller(), options, 3, "uta", propensities=True) as runner,
        TraceRecorder(path, propensities=True) as recorder,
    ):
        for number in range(1, 5):
            record = runner.round((SLEEP, number)).record
            assert record.propensities.workers == {"a": 1.0, "b": 1.0}
            # one of two allocations, from a thousand draws
            assert record.propensities.allocation == pytest.approx(0.5, abs=0.08)
            recorder.add(record)
    rounds = [line.split(",")[1] for line in path.read_text().splitlines()[1:]]
    assert rounds == [str(number) for number in range(1, 5) for _ in range(3)]


def test_an_error_of_make_task_is_raised():
    def make_task(_):
        raise OSError("no data")

    with RayRunner(make_task, 1, 2, "uta") as runner:
        with pytest.raises(OSError, match="make_task raised it for worker 0"):
            runner.round()
        with pytest.raises(
            RuntimeError,
            match=r"no worker is there \(0: its make_task raised an error\)",
        ):
            runner.round()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workers": 0}, "workers must be a whole number"),
        ({"workers": "ab"}, "workers must be a whole number"),
        ({"workers": []}, "workers must be a number, or names"),
        ({"workers": ["a", "a"]}, "two are the same"),
        ({"workers": [1.5]}, "workers must be a number, or names"),
        ({"workers": {"a": 1}}, "or a dict of Ray's actor options"),
        ({"workers": {"a": {"num_cpu": 1}}}, "worker 'a': Invalid option keyword num_cpu"),
        (
            {"workers": {"a": {"max_restarts": 1}}},
            "worker 'a': the option max_restarts is set here",
        ),
        ({"budget": 0}, "budget must be a whole number"),
        ({"policy": "atta"}, "there is no policy 'atta'"),
        ({"mode": "rally"}, 'mode must be "allocation", "race" or "dispatch"'),
        (
            {"mode": "race", "propensities": True},
            'propensities are of rounds whose tasks are all run: take mode="allocation", not',
        ),
        ({"propensities": 1}, "propensities must be True or False"),
        (
            {"mode": "race", "policy": "uta"},
            r"use Allocator\(\.\.\.\), or a policy of ata_gym/TaskRace-v0",
        ),
        ({"deadline": 0.0}, "deadline must be a finite number above 0"),
        ({"start_timeout": -1}, "start_timeout must be a finite number above 0"),
        ({"restarts": -1}, "restarts must be a whole number from 0"),
        ({"price": -1}, "price must be"),
        ({"make_task": 3}, "make_task must be a function"),
        ({"allow_nonfinite": 1}, "allow_nonfinite must be True or False"),
    ],
)
def test_an_argument_that_is_wrong_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        RayRunner(**{"make_task": make_caller(), "workers": 2, "budget": 3, **wrong})


def test_a_worker_that_hangs_is_detected_by_its_earlier_task_times(tmp_path, caplog):
    def happens(worker, argument, sample):
        SLEEP(worker, argument, sample)
        if worker == "b" and sample > 60 and not (tmp_path / "once").exists():
            (tmp_path / "once").touch()
            time.sleep(600.0)

    with RayRunner(
        make_caller(),
        ["a", "b"],
        4,
        "uta",
        deadline="learned",
        limits={"b": (1, 4)},
    ) as runner:
        watched = Watched(runner, 4)
        done = watched.until(lambda done: "b" in done.record.away, happens)
    assert done.record.away["b"].startswith("it gave no answer for ")
    assert "worker b: it gave no answer for" in caplog.text


@pytest.mark.parametrize(
    ("mode", "names"),
    [("allocation", "ab"), ("race", "ab"), ("dispatch", "ab"), ("allocation", "b")],
)
def test_each_actor_has_a_warm_up_after_its_start(mode, names, tmp_path):
    """A worker that is alone is waited for, and so it is never absent where a round begins."""
    slow = 1.0

    def slow_at_first(worker, argument, sample):
        import os

        if "ATA_GYM_TEST_STARTED" not in os.environ:
            os.environ["ATA_GYM_TEST_STARTED"] = "yes"
            time.sleep(slow)
        SLEEP(worker, argument, sample)
        if worker == "b" and argument == "dies" and not (tmp_path / "once").exists():
            (tmp_path / "once").touch()
            os.kill(os.getpid(), 9)

    learned = []
    policy = "certainty-equivalence" if mode == "allocation" else "default"
    workers = {name: {"num_cpus": 0.25} for name in names}
    with (
        RayRunner(make_caller(), workers, 4, policy, mode=mode, warm_up=1) as runner,
        ExitStack() as patches,
    ):
        belief = type(runner._decider.policy.first_belief(1))
        observe = belief.observe

        def note(self, worker, *times):
            learned.extend(time.max() for time in times)
            return observe(self, worker, *times)

        patches.enter_context(mock.patch.object(belief, "observe", note))
        watched = Watched(runner, 4)
        for start in ("first", "killed", "dies"):
            if start == "killed":
                kill(watched.processes["b"])
            before = watched.processes.get("b")
            rounds = Counter()

            def is_known(start=start, before=before, rounds=rounds):
                done = watched.round(start, slow_at_first)
                rounds.update({watched.processes["b"]} if "b" in done.workers else ())
                return any(number > 3 for process, number in rounds.items() if process != before)

            until(is_known)
            watched.round(start, slow_at_first)
            assert 0.002 <= max(learned) < slow
        # a state may be of other actors, and none of these is known
        runner.load_state_dict(runner.state_dict())
        watched.round("loaded", slow_at_first)
        learned.clear()
        watched.round("loaded", slow_at_first)
        assert mode == "dispatch" or max(learned) == 0.0
        with pytest.raises(ValueError, match="warm_up must be a whole number from 0"):
            RayRunner(make_caller(), 2, 3, warm_up=0.5)
