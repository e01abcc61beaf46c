"""Detectors against slow formulas of their own, their false alarms, and who starts anew."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ata_policies.beliefs.detectors import Cusum, Glr, MonitoredMoments, PageHinkley

DETECTORS: list[type[MonitoredMoments]] = [PageHinkley, Cusum, Glr]


def feed(belief: Any, times: np.ndarray, worker: int = 0) -> Any:
    """One task after the other, of one worker, in rounds of their own; ``times`` has a row for each row."""
    for time in np.atleast_2d(times).T:
        belief = belief.observe(np.full((len(time), 1), worker), time[:, None])
    return belief


def rounds(belief: Any, durations: list[float], number: int = 1) -> Any:
    """So many rounds of a single row, with one task of each of the first workers."""
    for _ in range(number):
        belief = belief.observe(np.arange(len(durations))[None], np.array([durations]))
    return belief


times = st.lists(st.floats(0.05, 20), min_size=1, max_size=80).map(np.array)


def looked(belief: Any, x: np.ndarray, shape: float) -> tuple[list[bool], Any]:
    """Whether each task raises an alarm, and what is remembered in the end; all are learned from, come what may."""
    alarms, marks = [], belief.marks
    for t in range(len(x)):
        known = belief._replace(counts=np.full((1, 1), float(t)), totals=np.full((1, 1), x[:t].sum()), marks=marks)
        task = x[None, t : t + 1]
        marks, alarm = known.look(np.zeros((1, 1), np.int64), task, task, np.full((1, 1), shape))
        alarms.append(bool(alarm[0, 0]))
    return alarms, marks


@settings(max_examples=40)
@given(x=times, frozen=st.sampled_from([5.0, 20.0, math.inf]), threshold=st.floats(1, 50), shape=st.floats(0.1, 50))
def test_cusum_and_page_hinkley_by_their_formula(x: np.ndarray, frozen: float, threshold: float, shape: float) -> None:
    alarms, marks = looked(Cusum.empty(1, 1, least=3.0, frozen=frozen, threshold=threshold), x, shape)
    up = down = 0.0
    limit = threshold / shape
    for t in range(3, len(x)):
        z = x[t] / x[: int(min(t, frozen))].mean() - 1
        up, down = (max(old + min(new, 0.34 * limit), 0.0) for old, new in ((up, z - 0.5), (down, -z - 0.25)))
        largest = max(up, down)
        assert alarms[t] == (largest >= limit) or math.isclose(largest, limit, rel_tol=1e-9)
    np.testing.assert_allclose(marks[0, 0, :2], [up, down], rtol=1e-8, atol=1e-8)
    assert not any(alarms[:3])


@settings(max_examples=25)
@given(x=times, threshold=st.floats(0.1, 30), shape=st.floats(0.1, 50))
def test_glr_by_its_formula(x: np.ndarray, threshold: float, shape: float) -> None:
    """All splits that it keeps, by brute force."""
    alarms, _ = looked(Glr.empty(1, 1, least=3.0, threshold=threshold), x, shape)
    for t in range(1, len(x) + 1):
        largest = 0.0
        for j in range(2, 11):
            s = (t // 2**j - 1) * 2**j
            if s >= 1:
                assert 2**j <= t - s < 2 ** (j + 1)
                m, one, two = x[:t].mean(), x[:s].mean(), x[s:t].mean()
                largest = max(largest, s * math.log(m / one) + (t - s) * math.log(m / two))
        unlikely, limit = shape * largest, threshold + 1.5 * math.log(t)
        assert alarms[t - 1] == (unlikely >= limit) or math.isclose(unlikely, limit, rel_tol=1e-6)


@pytest.mark.parametrize("kind", DETECTORS)
def test_alarms_are_rare_where_nothing_changes_and_soon_after_a_jump_by_two(kind: type[MonitoredMoments]) -> None:
    """100 rows of 1,000 exponential times of mean 3, then up to 300 of mean 6 or 1.5."""
    rng = np.random.default_rng(1)
    calm = feed(kind.empty(100, 1), rng.exponential(3.0, (100, 1000)))
    assert calm.alarms.sum() <= 2
    for mean, delay in ((6.0, 200), (1.5, 300)):
        after = feed(calm, rng.exponential(mean, (100, delay)))
        assert (after.alarms > calm.alarms).mean() >= 0.9


@pytest.mark.parametrize("kind", DETECTORS)
def test_times_that_vary_less_are_judged_sooner_and_an_outlier_is_no_change(kind: type[MonitoredMoments]) -> None:
    """Gamma times of CV 0.2: a jump by two is seen in 10 tasks, a single task 30 times as long is not."""
    rng = np.random.default_rng(2)
    calm = feed(kind.empty(50, 1), rng.gamma(25.0, 1 / 25, (50, 300)))
    odd = feed(calm, np.full((50, 1), 30.0))
    assert (odd.totals - calm.totals < 2.5 * calm.totals / calm.counts).all()  # 6 standard deviations above the mean
    odd = feed(odd, rng.gamma(25.0, 1 / 25, (50, 20)))
    assert calm.alarms.sum() == 0
    assert odd.alarms.sum() == 0
    assert (feed(calm, rng.gamma(25.0, 2 / 25, (50, 10))).alarms > 0).mean() >= 0.9


@pytest.mark.parametrize(("pause", "share", "anew"), [(0, 1 / 3, True), (30, 1 / 3, False), (0, math.inf, False)])
def test_everybody_starts_anew_once_many_of_those_at_work_have_raised_an_alarm(
    pause: int, share: float, anew: bool
) -> None:
    """Workers 0 to 3 have tasks; 0 becomes slow, and 1 either within 10 rounds, or later, or none counts as many."""
    belief = feed(PageHinkley.empty(1, 5, share=share), np.full((1, 30), 9.0), worker=4)
    belief = rounds(belief, [1.0] * 4, 100)
    everybody = belief._replace(constants=belief.constants._replace(share=np.zeros(1)))
    while belief.alarms.sum() < 1:
        belief, everybody = (rounds(one, [3.0, 1.0, 1.0, 1.0]) for one in (belief, everybody))
    assert (everybody.counts[0].tolist(), everybody.rounds_since[0]) == ([1.0] * 4 + [0.0], 1.0)
    assert (belief.counts[0, 0], belief.totals[0, 0]) == (1.0, 3.0)
    assert (belief.counts[0, 1:] > 20).all()
    belief = rounds(belief, [3.0, 1.0, 1.0, 1.0], pause)
    while belief.alarms.sum() < 2:
        belief = rounds(belief, [3.0, 3.0, 1.0, 1.0])
    assert [belief.counts[0, 4] == 0, belief.counts[0, 2] == 1, belief.rounds_since[0] == 1] == [anew] * 3


def test_workers_out_of_use_are_tried_again_together() -> None:
    """Every 100 rounds those without a task for 50, which are due until they have had one."""
    belief, due = rounds(PageHinkley.empty(1, 3, refresh=100.0), [1.0, 9.0, 9.0]), []
    for _ in range(119):
        belief = rounds(belief, [1.0])
        due.append(belief.untried()[0].tolist())
    assert [any(one) for one in due] == [k >= 99 for k in range(1, 120)]
    assert due[-1] == [False, True, True]
    belief = rounds(belief, [1.0, 9.0, 9.0])
    assert not belief.untried().any()
    late = feed(belief, np.ones((1, 90)))
    assert late.untried()[0].tolist() == [False, True, True]


@pytest.mark.parametrize(("time", "anew"), [(0.1, True), (7.0, False), (90.0, False)])
def test_a_startlingly_short_task_of_a_worker_out_of_use_outweighs_its_past(time: float, anew: bool) -> None:
    """Of mean 9 and exponential times, more or less."""
    past = 9.0 * stats.expon.ppf((np.arange(10) + 0.5) / 10)
    belief = feed(feed(PageHinkley.empty(1, 2, refresh=100.0), past, worker=1), np.ones((1, 120)))
    after = feed(belief, np.array([[time]]), worker=1)
    assert (after.counts[0, 1] == 1) == anew
    assert after.counts[0, 0] == belief.counts[0, 0]
    assert after.alarms.sum() == 0
