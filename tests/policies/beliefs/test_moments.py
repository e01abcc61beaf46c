"""Moments against numpy's, also of times that hardly vary; and what every belief has in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.typing import Floats, Ints
from ata_gym.utils.trees import difference, map_leaves
from ata_policies.allocation.estimates.robust import MedianOfMeans, TruncatedMean
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.memory import Discount, Everything, Memory, Window
from ata_policies.beliefs.moments import learn_shapes
from ata_policies.beliefs.restarts import DETECTORS, Restarts

N = 3


def games(mean: float, seed: int) -> tuple[Ints, Floats]:
    """Workers and times (rounds, B): by turns above and below the mean, by about 1."""
    rng = np.random.default_rng(seed)
    worker = np.sort(rng.integers(0, N, rng.integers((1, 3), (60, 12))), axis=1)
    signs = np.ones(worker.shape)
    for i in range(N):
        signs[worker == i] = (-1.0) ** np.arange((worker == i).sum())
    return worker, mean + signs * rng.uniform(0.5, 1.5, worker.shape)


def played(belief: Any, worker: Ints, times: Floats) -> Any:
    """The belief after these rounds, without cancelled tasks."""
    for who, time in zip(worker, times, strict=True):
        belief = belief.observe(who[None], time[None], np.zeros((1, N)))
    return belief


def check(belief: Any, weights: Floats, worker: Ints, times: Floats) -> None:
    """The belief's moments are those of results with these weights."""
    for i in range(N):
        some = (worker == i) & (weights > 0.0)
        w, x = weights[some], times[some]
        assert belief.counts[0, i] == pytest.approx(w.sum(), rel=1e-9)
        if len(x) >= 2:
            expected = w @ (x - np.average(x, weights=w)) ** 2
            assert belief.deviations[0, i] == pytest.approx(expected, rel=1e-6)


MEMORIES: list[Memory] = [Everything(), Window(12), Window(12, "rounds"), Discount(0.9)]
MEMORIES += [Restarts(detector, threshold=6.0, refresh=30.0) for detector in DETECTORS]
STARTS = [
    *(lambda rows, memory=memory: memory.start(rows, N, deviations=True) for memory in MEMORIES),
    *(lambda rows, estimate=estimate: estimate.start(rows, N) for estimate in (MedianOfMeans(), TruncatedMean(2.0))),
    lambda rows: DistributionBelief.empty(rows, N),
]


@pytest.mark.parametrize("start", STARTS)
@settings(max_examples=3)
@given(seed=st.integers(0, 10**6), exponent=st.sampled_from([-80, 40]))
def test_a_row_is_what_it_is_alone_and_in_any_unit_of_time(start: Any, seed: int, exponent: int) -> None:
    """Bit for bit, while workers change; and no belief is changed in place."""
    rng, unit, rows, row, scaled = np.random.default_rng(seed), 2.0**exponent, start(3), start(1), start(1)
    for k in range(150):
        worker, elapsed = rng.integers(-1, N, (3, 4)), rng.exponential(size=(3, N)) * (rng.random((3, N)) < 0.1)
        time = rng.gamma(4.0, np.where((k // 50 + np.arange(3)[:, None] + worker) % 3, 1.0, 9.0))
        old = map_leaves(np.copy, rows)
        later = rows.observe(worker, time, elapsed)
        assert difference(old, rows) is None
        rows, row = later, row.observe(worker[2:], time[2:], elapsed[2:])
        scaled = scaled.observe(worker[2:], unit * time[2:], unit * elapsed[2:])
    assert difference(row, map_leaves(lambda leaf: leaf[2:], rows)) is None
    for name, power in (("counts", 0), ("totals", 1), ("sums", 1), ("deviations", 2)):
        if hasattr(row, name):
            np.testing.assert_array_equal(getattr(scaled, name), unit**power * getattr(row, name))


means = st.one_of(st.sampled_from([1e6, 1e8, 1e9]), st.floats(10.0, 1e9))
seeds = st.integers(0, 10**6)


@settings(max_examples=20)
@given(mean=means, seed=seeds)
def test_everything(mean: float, seed: int) -> None:
    worker, times = games(mean, seed)
    belief = played(Everything().start(1, N, deviations=True), worker, times)
    check(belief, np.ones(times.shape), worker, times)
    check(played(DistributionBelief.empty(1, N), worker, times), np.ones(times.shape), worker, times)
    shapes = learn_shapes(belief, 1e-30)[0]  # each worker's own
    for i in range(N):
        x = times[worker == i]
        if len(x) >= 2:
            assert shapes[i] == pytest.approx((len(x) - 1) / len(x) * (x.mean() / x.std()) ** 2, rel=1e-6)


@settings(max_examples=20)
@given(
    mean=means, seed=seeds, memory=st.floats(40, 500), detector=st.sampled_from(["page-hinkley", "cusum", "glr"]),
    change=st.booleans(),
)  # fmt: skip
def test_restarts(mean: float, seed: int, memory: float, detector: str, change: bool) -> None:
    """A worker's task counts less with each round in which it has more; after a change, only those since its alarm."""
    rounds = [(who[None], time[None]) for who, time in zip(*games(mean, seed), strict=True)]
    if change:
        before = [(np.arange(N)[None], np.full((1, N), mean * (0.1 if k < 30 else 1.0))) for k in range(50)]
        rounds = before + rounds
    belief: Any = Restarts(detector, "worker", memory, None, threshold=8.0).start(1, N, deviations=True)
    first, own = np.zeros(N), np.array([np.bincount(who[0], minlength=N) for who, _ in rounds])
    for k, (who, time) in enumerate(rounds):
        alarms = belief.alarms
        belief = belief.observe(who, time)
        first[belief.alarms[0] > alarms[0]] = k
    assert belief.alarms.min() == belief.alarms.max() == change
    worker, times = (np.concatenate(parts, axis=1)[0] for parts in zip(*rounds, strict=True))
    round = np.repeat(np.arange(len(rounds)), own.sum(axis=1))
    later = (own[::-1].cumsum(axis=0)[::-1] - own)[round, worker]
    check(belief, (1.0 - 1.0 / memory) ** later * (round >= first[worker]), worker, times)
