"""What is left out of a log, with its remark, and what is refused, whatever its format."""

import numpy as np
import pytest

from ata_gym.bench.logs.checks import agreement
from ata_gym.bench.logs.log import Log, checked


def times_of(steps=40, n=4, seed=0):
    times = np.random.default_rng(seed).gamma(400.0, 1 / 400, (steps, n))
    times[:, 2] *= 1.5
    return times


def log_of(seconds, tasks=None):
    workers = [f"w{index}" for index in range(seconds.shape[1])]
    return Log("job", workers, seconds, np.ones_like(seconds) if tasks is None else tasks, unit="s")


def test_a_log_without_a_fault_stays_as_it_is():
    times = times_of()
    log = checked(log_of(times))
    np.testing.assert_array_equal(log.seconds, times)
    assert log.remarks == []


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 30])
def test_first_steps_that_outweigh_are_warm_up(first, n):
    times = times_of(n=max(n, 3))
    usual = np.median(times.max(axis=1))
    # compilation on one worker is enough, since all others wait for it
    times[:first, 0] += 30 * usual
    log = checked(log_of(times))
    np.testing.assert_array_equal(log.seconds, times[first:])
    assert log.steps[0] == str(first + 1)
    (remark,) = log.remarks
    assert remark.startswith("Step 1 took " if first == 1 else "Steps 1, 2")
    assert f"{np.median(times.max(axis=1)):.3g} s is usual" in remark
    assert "--warmup 0 keeps all steps" in remark
    kept = checked(log_of(times), warmup=0)
    np.testing.assert_array_equal(kept.seconds, times)
    assert kept.remarks == []
    log = checked(log_of(times), warmup=7)
    np.testing.assert_array_equal(log.seconds, times[7:])


@pytest.mark.parametrize("warmup", [-1, 1.5, "2", True])
def test_a_warm_up_that_is_no_whole_number_is_refused(warmup):
    with pytest.raises(ValueError, match="warmup must be a whole number from 0"):
        checked(log_of(times_of()), warmup=warmup)


def test_a_worker_that_hangs_is_what_people_look_for():
    times = times_of()
    times[20, 1] *= 100
    times[30, [0, 1, 3]] *= 100
    log = checked(log_of(times))
    np.testing.assert_array_equal(log.seconds, times)


def test_a_pause_of_all_workers_is_left_out():
    times = times_of()
    times[[9, 19]] *= 20
    log = checked(log_of(times))
    np.testing.assert_array_equal(log.seconds, np.delete(times, [9, 19], axis=0))
    assert "Steps 10, 20 took up to" in log.remarks[0]


def test_regular_pauses_of_one_worker_are_said():
    times = times_of()
    times[9::10, 1] += 20.0
    log = checked(log_of(times))
    np.testing.assert_array_equal(log.seconds, times)
    (remark,) = log.remarks
    assert remark.startswith("Worker w1 took up to 21")
    assert "in steps 10, 20, 30, 40, every 10 steps" in remark
    assert "No other split saves that" in remark
    # what comes at any time is the slowness that people look for
    for places in ([9, 19], [9, 19, 24], [9, 10, 11]):
        times = times_of()
        times[places, 1] += 20.0
        assert not checked(log_of(times)).remarks


def test_distances_of_pauses_count_the_steps_that_are_left_out():
    times = times_of()
    times[9::10] *= 20
    times[4::10, 1] *= 20
    _, remark = checked(log_of(times)).remarks
    assert "in steps 5, 15, 25, 35, every 10 steps" in remark


def test_one_remark_says_that_several_workers_pause():
    times = times_of()
    for worker in range(4):
        times[3 + worker :: 10, worker] *= 20
    (remark,) = checked(log_of(times)).remarks
    assert remark.startswith("Worker w0 took up to")
    assert remark.endswith("3 more of 4 workers pause as regularly.")


def test_pauses_that_are_regular_by_chance_are_not_said():
    times = times_of()
    for worker, places in enumerate(([5, 12, 30], [9, 14, 33], [4, 6, 25], [8, 18, 28])):
        times[places, worker] *= 20
    assert not checked(log_of(times)).remarks


def test_a_slow_first_half_is_no_warm_up():
    times = times_of()
    times[:15] *= 8
    np.testing.assert_array_equal(checked(log_of(times)).seconds, times)


def test_a_last_step_that_was_cut_off_is_left_out():
    times = times_of()
    times[-1] *= 1e-3
    log = checked(log_of(times))
    np.testing.assert_array_equal(log.seconds, times[:-1])
    assert "cut off" in log.remarks[0]
    # a step that is short on some workers only, and one in the middle, stay
    for index, workers in ((-1, [0, 1]), (5, [0, 1, 2, 3])):
        times = times_of()
        times[index, workers] *= 1e-3
        np.testing.assert_array_equal(checked(log_of(times)).seconds, times)


def test_the_rest_and_the_names_of_steps_go_with_them():
    times = times_of(steps=12)
    times[0] *= 100
    tasks = np.ones_like(times)
    tasks[5, 1] = 0
    log = Log("job", list("abcd"), times, tasks, rest=np.arange(12.0), steps=list("abcdefghijkl"))
    log = checked(log)
    assert "".join(log.steps) == "bcdeghijkl"
    assert log.rest.tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert log.remarks[0] == "1 of 12 steps lack a worker, and are left out."


def test_a_worker_that_is_rarely_there_is_named():
    tasks = np.ones((40, 4))
    tasks[8:, 3] = 0
    log = checked(log_of(times_of(), tasks))
    assert log.remarks == [
        "32 of 40 steps lack a worker, and are left out; worker w3 is in 8 only."
    ]
    tasks[1:, 3] = 0
    with pytest.raises(ValueError, match=r"worker 'w3' has times in 1 of 40"):
        checked(log_of(times_of(), tasks))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [2, 3, 16])
def test_whole_steps_are_told_from_work_of_near_equal_workers(n, seed):
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(10, 80))
    work = rng.gamma(1000.0, 1e-3, (steps, n))
    assert not agreement(work).holds_wait
    assert agreement(work).finding == ""
    near = 1.0 + 0.003 * rng.normal(size=(steps, n))
    assert not agreement(near).holds_wait
    whole = work.max(axis=1, keepdims=True) + rng.uniform(0, 0.5)
    assert agreement(whole * np.ones(n)).holds_wait
    assert agreement(whole + 2e-4 * rng.normal(size=(steps, n))).holds_wait
    # a worker that is rarely slow says that nobody waited
    rare = whole * np.ones(n)
    rare[:: steps // 3, 0] *= 3
    assert not agreement(rare).holds_wait
    # another worker is slow in each step
    turns = whole * np.ones(n)
    turns[np.arange(steps), np.arange(steps) % n] *= 2
    assert agreement(turns).finding == ""
    with pytest.raises(ValueError, match=r"include the wait.*before the all-reduce"):
        checked(log_of(whole * np.ones(n)))


@pytest.mark.parametrize("seed", range(20))
def test_differences_that_cancel_from_step_to_step_are_doubtful(seed):
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(40, 200))
    n = int(rng.integers(3, 20))
    work = rng.gamma(400.0, 1 / 400, (steps, n))
    assert agreement(work).finding == ""
    leaving = 0.03 * rng.normal(size=(steps + 1, n))
    whole = work.max(axis=1, keepdims=True) + np.diff(leaving, axis=0)
    log = checked(log_of(whole))
    assert "or the times include the wait" in log.doubt


def test_shares_that_were_fitted_to_the_workers_do_not_look_like_whole_steps():
    rng = np.random.default_rng(0)
    speed = np.array([1.0, 2.0, 4.0])
    tasks = np.tile(8 / speed, (40, 1))
    seconds = tasks * speed * rng.gamma(1000.0, 1e-3, (40, 1))
    assert checked(log_of(seconds, tasks)).remarks == []
    with pytest.raises(ValueError, match="include the wait"):
        checked(log_of(seconds))


def test_equal_times_that_are_rounded_say_nothing():
    rng = np.random.default_rng(0)
    rounded = np.round(rng.normal(20.0, 0.1, (40, 3)))
    for times in (rounded, np.full((40, 3), 7.0)):
        log = checked(log_of(times))
        assert "or the times include the wait" in log.doubt
    assert log.remarks == []
    # whole milliseconds of whole steps that differ by many of them
    whole = np.round(rng.normal(200.0, 10.0, (40, 1))) * np.ones(3)
    with pytest.raises(ValueError, match="include the wait"):
        checked(log_of(whole))
