"""What all workers of a round have in common, and what is due to the age of a worker."""

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import bench
from ata_gym.changes import OnOff
from ata_gym.pools import gamma, trace
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_policies.beliefs.distributions.arrays import ROW, SLOT
from ata_policies.beliefs.distributions.bins import DistributionBelief

WORKERS = 10
MEANS = np.geomspace(1.0, 8.0, WORKERS)


def after(belief: DistributionBelief, factors: Floats, seed: int) -> DistributionBelief:
    """The belief after a round of two tasks of each worker, so many times longer; 0 for none."""
    rng = np.random.default_rng(seed)
    worker = np.repeat(np.flatnonzero(factors), 2)[None]
    time = (MEANS * factors)[worker] * rng.gamma(25.0, 1 / 25.0, worker.shape)
    return belief.observe(worker, time, np.zeros((1, WORKERS)))


def known(rounds: int = 40) -> DistributionBelief:
    belief = DistributionBelief.empty(1, WORKERS)
    for k in range(rounds):
        belief = after(belief, np.ones(WORKERS), seed=k)
    assert belief.factor[0] == 1.0
    return belief


@pytest.mark.parametrize("factor", [0.2, 0.6, 1.7, 5.0])
def test_what_all_have_in_common_is_no_change_of_any(factor: float) -> None:
    before = known()
    belief = after(before, np.full(WORKERS, factor), seed=99)
    assert belief.factor[0] == pytest.approx(factor, rel=0.15)
    assert f"all workers took {belief.factor[0]:.2g} times as long" in belief.describe(0)
    assert not belief.suspects().any()
    assert belief.since[0] == before.since[0] + 1
    speeds = belief.mean()[0] / before.mean()[0]
    np.testing.assert_allclose(speeds / speeds.mean(), 1.0, atol=0.03)


@pytest.mark.parametrize("workers", [1, 5])
def test_a_change_of_one_worker_or_of_half_of_them_is_theirs(workers: int) -> None:
    factors = np.where(np.arange(WORKERS) < workers, 5.0, 1.0)
    belief = after(known(), factors, seed=99)
    assert belief.factor[0] == 1.0


def test_a_single_worker_in_use_has_no_factor() -> None:
    belief = after(known(), np.where(np.arange(WORKERS) == 3, 5.0, 0.0), seed=99)
    assert belief.factor[0] == 1.0
    assert belief.suspects()[0, 3]


def test_a_permutation_of_the_speeds_is_no_factor() -> None:
    before = known()
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(WORKERS)
        assert after(before, MEANS[order] / MEANS, seed=99).factor[0] == 1.0
        # only the four fastest were in use: most of them become slower
        some = np.where(np.arange(WORKERS) < 4, MEANS[order] / MEANS, 0.0)
        if np.ptp(np.log(some[:4])) > 1.0:
            assert after(before, some, seed=99).factor[0] == 1.0


def test_a_factor_that_lasts_becomes_what_is_usual() -> None:
    belief = known()
    for k in range(1000):
        belief = after(belief, np.full(WORKERS, 2.0), seed=100 + k)
    np.testing.assert_allclose(belief.mean()[0], 2.0 * MEANS, rtol=0.1)
    assert belief.row[0, ROW.events] == 0.0


def test_workers_out_of_use_are_asked_whether_they_share_a_factor() -> None:
    belief = known()
    in_use = np.arange(WORKERS) < 4
    slow = after(belief, np.where(in_use, 5.0, 0.0), seed=99)
    assert np.flatnonzero(slow.probes()[0]).tolist() == [4]
    asked = np.where(in_use, 5.0, 0.0)
    asked[4] = 1.0
    alone = after(slow, asked, seed=98)
    assert alone.factor[0] == 1.0
    assert alone.since[0] == 0.0  # they changed: all begin anew
    asked[4] = 5.0
    shared = after(slow, asked, seed=98)
    assert shared.factor[0] == pytest.approx(5.0, rel=0.25)
    assert not shared.probes().any()


def test_factors_of_the_rounds_leave_the_allocations_nearly_as_they_are() -> None:
    rng = np.random.default_rng(0)
    shared: list[Floats] = []
    for factors in (np.ones(60), np.exp(np.cumsum(rng.normal(0.0, 0.3, 60)))):
        scenario = Scenario(gamma(25.0, MEANS / 25.0), budget=20, horizon=60)
        env = gym.make("ata_gym/TaskAllocation-v0", scenario=scenario)
        policy = ata_policies.make("distribution-learner", env)
        observation, _ = env.reset(seed=0)
        state = None
        total = np.zeros(WORKERS)
        for k, factor in enumerate(factors):
            allocation, state = policy.predict(observation, state)
            if k >= 20:
                total += allocation
            observation, *_ = env.step(allocation)
            observation["duration"] = observation["duration"] * factor
        shared.append(total / total.sum())
    assert np.abs(shared[0] - shared[1]).sum() < 0.12


def test_workers_that_slow_down_together_cost_no_more_than_plain_averages() -> None:
    pool = gamma(11.1, np.geomspace(1, 8, 16) / 11.1)
    change = OnOff(5.0, starts=0.05, ends=0.2, rack=16)
    scenario = Scenario(pool, budget=24, horizon=200, changes=(change,), name="together")
    results = bench.run(["default", "certainty-equivalence"], scenario, seeds=8, jobs=1)
    assert results.compare("default", "certainty-equivalence").ratio.mean < 1.03


def slow_start(seed: int) -> Scenario:
    rng = np.random.default_rng(seed)
    times = np.geomspace(1, 8, 8)[:, None] * rng.gamma(11, 1 / 11, (8, 12 * 150))
    times *= 1.0 + 19.0 * np.exp(-np.arange(12 * 150) / 5.0)
    return Scenario(trace(list(times)), budget=12, horizon=150, name=f"slow-start-{seed}")


def test_slow_first_tasks_cost_little_more_than_for_plain_averages() -> None:
    scenarios = [slow_start(seed) for seed in range(8)]
    results = bench.run(["default", "recent-average"], scenarios, seeds=2, jobs=1)
    assert results.compare("default", "recent-average").ratio.mean < 1.25


def test_a_worker_known_from_its_first_tasks_counts_as_fast_as_the_others_became() -> None:
    belief = DistributionBelief.empty(1, WORKERS)
    rng = np.random.default_rng(0)
    for k in range(24):
        # each worker begins one round after the last; the last one does one task only
        busy = np.arange(min(k + 1, WORKERS - (k > WORKERS)))
        slow = np.where(k - busy < 4, 10.0, 1.0)
        time = MEANS[busy] * slow * rng.gamma(25.0, 1 / 25.0, busy.size)
        belief = belief.observe(busy[None], time[None], np.zeros((1, WORKERS)))
    slowness = belief.slow_start().past
    assert slowness[0, -1] == pytest.approx(np.log(10.0), abs=0.3)
    # the others know better from what they did since then
    np.testing.assert_allclose(belief.mean()[0, :-1], MEANS[:-1], rtol=0.5)
    assert slowness[0, :-1].max() < 0.3


def started_in_turn(factor: Floats, rounds: int, last: int = 64) -> DistributionBelief:
    """The belief after rounds in which worker i begins in round i, and does a task in each.

    ``factor`` holds by how much longer tasks take, by age; the last worker does ``last`` at most.
    """
    belief = DistributionBelief.empty(1, WORKERS)
    rng = np.random.default_rng(0)
    for k in range(rounds):
        busy = np.arange(min(k + 1, WORKERS - (k - WORKERS + 1 >= last)))
        time = MEANS[busy] * factor[k - busy] * rng.gamma(50.0, 1 / 50.0, busy.size)
        belief = belief.observe(busy[None], time[None], np.zeros((1, WORKERS)))
    return belief


@pytest.mark.parametrize("slow_tasks", [1, 2, 3, 5, 6, 7, 11])
def test_a_slow_start_ends_after_any_number_of_tasks(slow_tasks: int) -> None:
    factor = np.where(np.arange(64) < slow_tasks, 20.0, 1.0)
    belief = started_in_turn(factor, WORKERS + slow_tasks + 1)
    # the last worker has had two tasks since
    assert belief.tracks[0, belief.slot[0, -1], SLOT.age] == slow_tasks + 2
    np.testing.assert_allclose(belief.mean()[0], MEANS, rtol=0.5)


def test_the_next_task_of_a_young_worker_is_expected_to_be_slow() -> None:
    factor = np.where(np.arange(64) < 5, 20.0, 1.0)
    start = started_in_turn(factor, 30, last=3).slow_start()
    assert start.past[0, -1] == pytest.approx(np.log(20.0), abs=0.3)
    assert start.coming[0, -1] == pytest.approx(np.log(20.0), abs=0.3)
    # two of the five are to come, and each of them is lost but for a twentieth
    assert start.tasks[0, -1] == pytest.approx(2 * 0.95, abs=0.2)
    assert not start.coming[0, :-1].any()
    assert not start.tasks[0, :-1].any()


def test_the_course_of_a_slow_start_never_rises() -> None:
    factor = 1.0 + 30.0 * np.exp(-np.arange(64) / 4.0)
    belief = started_in_turn(factor, 50)
    courses = []
    for age in range(65):
        tracks = belief.tracks.copy()
        tracks[0, belief.slot[0, 0], SLOT.age] = age
        courses.append(belief._replace(tracks=tracks).slow_start().coming[0, 0])
    assert courses[0] == pytest.approx(np.log(31.0), abs=0.5)
    assert courses[-1] == 0.0
    assert (np.diff(courses) <= 0.0).all()


def test_steady_workers_have_no_age() -> None:
    with_age = 0
    for seed in range(20):
        belief = DistributionBelief.empty(1, WORKERS)
        rng = np.random.default_rng(seed)
        for _ in range(20):
            busy = np.arange(WORKERS)
            time = MEANS * rng.exponential(1.0, WORKERS)
            belief = belief.observe(busy[None], time[None], np.zeros((1, WORKERS)))
        with_age += belief.slow_start().past.any()
    assert with_age <= 1
