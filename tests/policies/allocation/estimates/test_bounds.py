"""Confidence bounds against their formulas, and the policies that allocate by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from ata_gym import allocate
from ata_gym.pools import shifted_exponential
from ata_policies.allocation.estimates.bounds import cucb_score, kl_score, ucbv_score
from ata_policies.beliefs.moments import Moments

POOL = shifted_exponential(np.arange(1.0, 9.0), np.arange(1.0, 9.0))
BUDGET = 7

COUNTS = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)
LEVELS = st.floats(0, 30)


def moments(counts: list[int], mean: float, variance: float) -> Moments:
    k = np.array([counts], np.float64)
    return Moments(k, k * mean, k * variance)


def scores(belief: Moments, level: float, absolute: float, relative: float, shape: float) -> dict[str, np.ndarray]:
    (k,), (totals,), (deviations,) = belief
    return {
        "cucb": cucb_score(k, totals, level, absolute, relative),
        "ucbv": ucbv_score(k, totals, deviations, level, absolute, relative),
        "kl": kl_score(k, totals, level, np.full_like(k, shape)),
    }


@settings(max_examples=40)
@given(
    counts=COUNTS,
    mean=st.floats(0.01, 1e4),
    variance=st.floats(0, 1e4),
    level=LEVELS,
    absolute=st.floats(0, 100),
    relative=st.floats(0, 2),
    shape=st.floats(0.1, 50),
)
def test_formulas(
    counts: list[int], mean: float, variance: float, level: float, absolute: float, relative: float, shape: float
) -> None:
    found = scores(moments(counts, mean, variance), level, absolute, relative, shape)
    b = absolute + relative * mean
    for i, k in enumerate(counts):
        if k == 0:
            assert all(score[i] == 0 for score in found.values())
            continue
        close = {"rtol": 1e-9, "atol": 1e-9 * (mean + b)}
        cucb = mean - b * math.sqrt(3 * level / (2 * k))
        np.testing.assert_allclose(found["cucb"][i], max(cucb, 0), **close)
        ucbv = mean - math.sqrt(2 * variance * level / k) - 3 * b * level / k
        np.testing.assert_allclose(found["ucbv"][i], max(ucbv, 0), **close)


@settings(max_examples=50)
@given(k=st.integers(1, 10**6), mean=st.floats(1e-3, 1e6), level=st.floats(1e-3, 50), shape=st.floats(0.1, 100))
def test_kl_by_root_finding(k: int, mean: float, level: float, shape: float) -> None:
    found = kl_score(*np.array([[k], [k * mean]], float), level, [shape])[0]

    def excess(ln_ratio: float) -> float:  # of mean / q; expm1 keeps the digits of a small divergence
        return k * shape * (math.expm1(ln_ratio) - ln_ratio) - level

    most = math.log(2 + 2 * level / (k * shape) + 2 * math.sqrt(level / (k * shape)))
    root = brentq(excess, 0, most + 1, xtol=1e-15, rtol=1e-14)
    np.testing.assert_allclose(found, mean * math.exp(-root), rtol=1e-7)


WORLD: dict[str, Any] = {"pool": POOL, "budget": BUDGET}


@pytest.mark.parametrize("name", ["cucb", "ucb-v"])
def test_a_given_scale_replaces_the_means(play: Any, name: str) -> None:
    """A larger scale keeps every score at 0 for longer: the allocation stays even."""
    far, near = (play(name, 30, hyperparameters={"scale": scale}, **WORLD).actions for scale in (1e6, 1e-6))
    assert far[2:].max() <= 1
    assert near[-1].max() > 1


def test_a_round_by_hand(play: Any) -> None:
    """After each worker's first tasks, KL allocates by the bounds at ln k."""
    run, checked = play("kl-lcb", 20, 1, seed=3, hyperparameters={"shape": 2.0}, **WORLD), 0
    for k, (action, state) in enumerate(zip(run.actions, run.states, strict=True), start=1):
        (counts,), (totals,) = state.belief
        if counts.all():
            checked += 1
            np.testing.assert_array_equal(
                action[0], allocate(kl_score(counts, totals, math.log(k), np.full(8, 2.0)), BUDGET)
            )
    assert checked > 10
