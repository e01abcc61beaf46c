"""Memories that forget: windows and discounts against all that was seen; detectors, and who starts
anew.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from ata_gym.changes import Jump
from ata_gym.pools import gamma, shifted_exponential
from ata_policies.beliefs.detectors import Cusum, Glr, MonitoredMoments, PageHinkley
from ata_policies.beliefs.memory import Discount, Window

MEANS = np.arange(1.0, 13.0)
STEADY = gamma(25.0, MEANS / 25)
SCENARIO: dict[str, Any] = {
    "pool": shifted_exponential(MEANS / 2, MEANS / 2),
    "budget": 8,
    "seed": 1,
}
N = 3

played_rounds = st.lists(
    st.lists(st.tuples(st.integers(-1, N - 1), st.floats(0.1, 10)), min_size=4, max_size=4),
    min_size=1,
    max_size=40,
)
ROUNDS = st.builds(
    lambda played, mean: [
        [(-1, 0.0)] * 4,
        *[
            [(0, mean + 1.0), *((worker, mean + time) for worker, time in results[1:])]
            for results in played
        ],
    ],
    played_rounds,
    st.sampled_from([0.0, 0.0, 1e4, 1e8]),
)
"""The empty feedback after a reset, and then rounds of up to four results, the first one of worker
0.

Times are from 0.1 to 10, or vary as little about a mean of 1e8.
"""


def fed(belief: Any, played: list[list[tuple[int, float]]]) -> Any:
    for results in played:
        worker, time = zip(*results, strict=True)
        belief = belief.observe(np.array([worker]), np.array([time]))
    return belief


def compare(belief: Any, expected: list[list[float]]) -> None:
    """With lists of (weight, time) for each worker."""
    for i, weighted in enumerate(expected):
        w, x = np.array(weighted, np.float64).reshape(-1, 2).T
        if w.size:
            deviations = (w * (x - np.average(x, weights=w)) ** 2).sum()
        else:
            deviations = 0.0
        for found, sums in zip(belief[:2], (w.sum(), (w * x).sum()), strict=True):
            np.testing.assert_allclose(found[0, i], sums, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(belief.deviations[0, i], deviations, rtol=1e-6, atol=1e-8)


@settings(max_examples=40)
@given(
    played=ROUNDS,
    length=st.integers(1, 4),
    blocks=st.integers(1, 5),
    unit=st.sampled_from(["tasks", "rounds"]),
)
def test_a_window_holds_the_last_tasks_of_each_worker_or_the_last_rounds(
    played,
    length,
    blocks,
    unit,
) -> None:
    """All but what the oldest block held, whose place is being filled: W - W / k to W tasks or
    rounds.
    """

    def in_window(past: list[Any]) -> list[Any]:
        newest = (len(past) - 1) // length * length  # where the block being filled begins
        kept = past[max(newest - length * (blocks - 1), 0) :]
        assert len(kept) == len(past) or length * (blocks - 1) < len(kept) <= length * blocks
        return kept

    memory = Window(length * blocks, unit, blocks)
    belief = fed(memory.start(1, N, deviations=True), played)
    if unit == "rounds":
        counting = in_window(played[1:])
    else:
        counting = played
    times = [[x for results in counting for worker, x in results if worker == i] for i in range(N)]
    compare(
        belief,
        [[(1.0, x) for x in (in_window(own) if unit == "tasks" else own)] for own in times],
    )
    assert memory.rounds(belief, np.array([len(played)]))[0] == min(len(played), length * blocks)


@settings(max_examples=25)
@given(played=ROUNDS, discount=st.floats(0.05, 0.999))
def test_a_discounted_belief_is_a_weighted_sum(played: Any, discount: float) -> None:
    expected: list[list[Any]] = [[] for _ in range(N)]
    for results in played:
        for i in range(N):
            expected[i] = [(discount * w, x) for w, x in expected[i]]
            worth = sum(w for w, _ in expected[i])
            assert abs(worth - 0.5) > 1e-12 or worth == 0.5
            if worth < 0.5:
                expected[i] = []
            expected[i] += [(1.0, x) for worker, x in results if worker == i]
    memory = Discount(discount)
    belief = fed(memory.start(1, N, deviations=True), played)
    compare(belief, expected)
    k = len(played)
    np.testing.assert_allclose(
        memory.rounds(belief, np.array([k]))[0],
        sum(discount**j for j in range(k)),
    )


def test_who_forgets_finds_a_worker_that_became_fast(play: Any) -> None:
    """A window of rounds and a discount try it again; a window of tasks does not, being never
    empty.
    """
    means = np.array([1.0, 1.0, 1.0, 1.0, 60.0])
    for memory, finds in (
        ({"memory": "window", "unit": "rounds", "window": 60}, True),
        ({"memory": "discount", "discount": 0.98}, True),
        ({"memory": "window", "window": 60}, False),
    ):
        pool = shifted_exponential(means, means)
        run = play("thompson", 300, hyperparameters=memory, pool=pool, budget=7)
        assert (run.actions[21:, :, 4] > 0).any(axis=0).all() == finds


@pytest.mark.parametrize("name", ["thompson", "thompson-beta", "ata-icml"])
def test_without_alarm_refresh_and_discount_it_is_the_plain_policy(play: Any, name: str) -> None:
    """Until a task is clipped, at 5 means or 6 standard deviations: gamma times of CV 0.2 never
    are.
    """
    calm = {"memory": "restarting", "refresh": None, "effective_tasks": None, "threshold": 1e9}
    plain, restarting = (
        play(name, 120, hyperparameters=h, **SCENARIO | {"pool": STEADY}) for h in ({}, calm)
    )
    np.testing.assert_array_equal(restarting.actions, plain.actions)
    assert not restarting.states[-1].belief.alarms.any()


def test_an_idle_worker_that_became_fast_is_noticed_at_the_next_refresh(play: Any) -> None:
    changes = [Jump(at=450, workers=(11,), factor=1 / 48)]
    run, never = (
        play(
            "thompson-beta",
            700,
            changes=changes,
            hyperparameters={"memory": "restarting", "refresh": refresh},
            **SCENARIO,
        )
        for refresh in (200.0, None)
    )
    assert (run.actions[605:, :, 11] >= 4).mean() > 0.95
    assert (run.actions[450:595, :, 11] == 0).mean() > 0.95
    assert run.round_times[610:].mean() < 0.7 * run.round_times[300:450].mean()
    assert (never.actions[450:595, :, 11] > 0).mean() < 0.1


DETECTORS: list[type[MonitoredMoments]] = [PageHinkley, Cusum, Glr]


def feed(belief: Any, times: np.ndarray, worker: int = 0) -> Any:
    """One task after the other, of one worker, in rounds of their own; ``times`` has a row for each
    row.
    """
    for time in np.atleast_2d(times).T:
        belief = belief.observe(np.full((len(time), 1), worker), time[:, None])
    return belief


def rounds(belief: Any, durations: list[float], number: int = 1) -> Any:
    for _ in range(number):
        belief = belief.observe(np.arange(len(durations))[None], np.array([durations]))
    return belief


times = st.lists(st.floats(0.05, 20), min_size=1, max_size=80).map(np.array)


def looked(belief: Any, x: np.ndarray, shape: float) -> tuple[list[bool], Any]:
    """Whether each task raises an alarm, and what is remembered in the end; all are learned from,
    come what may.
    """
    alarms = []
    marks = belief.marks
    for t in range(len(x)):
        known = belief._replace(
            counts=np.full((1, 1), float(t)),
            totals=np.full((1, 1), x[:t].sum()),
            marks=marks,
        )
        task = x[None, t : t + 1]
        marks, alarm = known.look(np.zeros((1, 1), np.int64), task, task, np.full((1, 1), shape))
        alarms.append(bool(alarm[0, 0]))
    return alarms, marks


@settings(max_examples=40)
@given(
    x=times,
    frozen=st.sampled_from([5.0, 20.0, math.inf]),
    threshold=st.floats(1, 50),
    shape=st.floats(0.1, 50),
)
def test_cusum_and_page_hinkley_by_their_formula(
    x: np.ndarray,
    frozen: float,
    threshold: float,
    shape: float,
) -> None:
    alarms, marks = looked(
        Cusum.empty(1, 1, least=3.0, frozen=frozen, threshold=threshold),
        x,
        shape,
    )
    up = down = 0.0
    limit = threshold / shape
    for t in range(3, len(x)):
        z = x[t] / x[: int(min(t, frozen))].mean() - 1
        up, down = (
            max(old + min(new, 0.34 * limit), 0.0)
            for old, new in ((up, z - 0.5), (down, -z - 0.25))
        )
        largest = max(up, down)
        assert alarms[t] == (largest >= limit) or math.isclose(largest, limit, rel_tol=1e-9)
    np.testing.assert_allclose(marks[0, 0, :2], [up, down], rtol=1e-8, atol=1e-8)
    assert not any(alarms[:3])


@settings(max_examples=25)
@given(x=times, threshold=st.floats(0.1, 30), shape=st.floats(0.1, 50))
def test_glr_by_its_formula(x: np.ndarray, threshold: float, shape: float) -> None:
    alarms, _ = looked(Glr.empty(1, 1, least=3.0, threshold=threshold), x, shape)
    for t in range(1, len(x) + 1):
        largest = 0.0
        for j in range(2, 11):
            s = (t // 2**j - 1) * 2**j
            if s >= 1:
                assert 2**j <= t - s < 2 ** (j + 1)
                m = x[:t].mean()
                one = x[:s].mean()
                two = x[s:t].mean()
                largest = max(largest, s * math.log(m / one) + (t - s) * math.log(m / two))
        unlikely = shape * largest
        limit = threshold + 1.5 * math.log(t)
        assert alarms[t - 1] == (unlikely >= limit) or math.isclose(unlikely, limit, rel_tol=1e-6)


@pytest.mark.parametrize("kind", DETECTORS)
def test_alarms_are_rare_where_nothing_changes_and_soon_after_a_jump_by_two(
    kind: type[MonitoredMoments],
) -> None:
    rng = np.random.default_rng(1)
    calm = feed(kind.empty(100, 1), rng.exponential(3.0, (100, 1000)))
    assert calm.alarms.sum() <= 2
    for mean, delay in ((6.0, 200), (1.5, 300)):
        after = feed(calm, rng.exponential(mean, (100, delay)))
        assert (after.alarms > calm.alarms).mean() >= 0.9


@pytest.mark.parametrize("kind", DETECTORS)
def test_times_that_vary_less_are_judged_sooner_and_an_outlier_is_no_change(
    kind: type[MonitoredMoments],
) -> None:
    """Gamma times of CV 0.2: a jump by two is seen in 10 tasks, a single task 30 times as long is
    not.
    """
    rng = np.random.default_rng(2)
    calm = feed(kind.empty(50, 1), rng.gamma(25.0, 1 / 25, (50, 300)))
    odd = feed(calm, np.full((50, 1), 30.0))
    assert (
        odd.totals - calm.totals < 2.5 * calm.totals / calm.counts
    ).all()  # 6 standard deviations above the mean
    odd = feed(odd, rng.gamma(25.0, 1 / 25, (50, 20)))
    assert (calm.alarms.sum(), odd.alarms.sum()) == (0, 0)
    assert (feed(calm, rng.gamma(25.0, 2 / 25, (50, 10))).alarms > 0).mean() >= 0.9


@pytest.mark.parametrize(
    ("pause", "share", "anew"),
    [(0, 1 / 3, True), (30, 1 / 3, False), (0, math.inf, False)],
)
def test_everybody_starts_anew_once_many_of_those_at_work_have_raised_an_alarm(
    pause,
    share,
    anew,
) -> None:
    """Workers 0 to 3 have tasks; 0 becomes slow, and 1 either within 10 rounds, or later, or none
    counts as many.
    """
    belief = feed(PageHinkley.empty(1, 5, share=share), np.full((1, 30), 9.0), worker=4)
    belief = rounds(belief, [1.0] * 4, 100)
    all_workers = belief._replace(constants=belief.constants._replace(share=np.zeros(1)))
    while belief.alarms.sum() < 1:
        belief, all_workers = (rounds(one, [3.0, 1.0, 1.0, 1.0]) for one in (belief, all_workers))
    assert (all_workers.counts[0].tolist(), all_workers.rounds_since[0]) == ([1.0] * 4 + [0.0], 1.0)
    assert (belief.counts[0, 0], belief.totals[0, 0]) == (1.0, 3.0)
    assert (belief.counts[0, 1:] > 20).all()
    belief = rounds(belief, [3.0, 1.0, 1.0, 1.0], pause)
    while belief.alarms.sum() < 2:
        belief = rounds(belief, [3.0, 3.0, 1.0, 1.0])
    assert [belief.counts[0, 4] == 0, belief.counts[0, 2] == 1, belief.rounds_since[0] == 1] == [
        anew,
    ] * 3


def test_workers_out_of_use_are_tried_again_together() -> None:
    belief = rounds(PageHinkley.empty(1, 3, refresh=100.0), [1.0, 9.0, 9.0])
    due = []
    for _ in range(119):
        belief = rounds(belief, [1.0])
        due.append(belief.untried()[0].tolist())
    assert ([any(one) for one in due], due[-1]) == (
        [k >= 99 for k in range(1, 120)],
        [False, True, True],
    )
    belief = rounds(belief, [1.0, 9.0, 9.0])
    assert not belief.untried().any()
    late = feed(belief, np.ones((1, 90)))
    assert late.untried()[0].tolist() == [False, True, True]


@pytest.mark.parametrize(("time", "anew"), [(0.1, True), (7.0, False), (90.0, False)])
def test_a_startlingly_short_task_of_a_worker_out_of_use_outweighs_its_past(
    time: float,
    anew: bool,
) -> None:
    past = 9.0 * stats.expon.ppf((np.arange(10) + 0.5) / 10)
    belief = feed(feed(PageHinkley.empty(1, 2, refresh=100.0), past, worker=1), np.ones((1, 120)))
    after = feed(belief, np.array([[time]]), worker=1)
    assert (after.counts[0, 1] == 1, after.counts[0, 0]) == (anew, belief.counts[0, 0])
    assert after.alarms.sum() == 0
