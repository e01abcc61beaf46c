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

BUDGET = 7
WORLD: dict[str, Any] = {"pool": shifted_exponential(np.arange(1.0, 9.0), np.arange(1.0, 9.0)), "budget": BUDGET}


@settings(max_examples=40)
@given(
    counts=st.lists(st.integers(1, 10**6), min_size=1, max_size=6), mean=st.floats(0.01, 1e4),
    variance=st.floats(0, 1e4), level=st.floats(0, 30), absolute=st.floats(0, 100), relative=st.floats(0, 2),
)  # fmt: skip
def test_formulas(
    counts: list[int], mean: float, variance: float, level: float, absolute: float, relative: float
) -> None:
    k, b = np.array([*counts, 0.0]), absolute + relative * mean  # the last worker was never tried
    cucb = mean - b * np.sqrt(3 * level / (2 * k[:-1]))
    ucbv = mean - np.sqrt(2 * variance * level / k[:-1]) - 3 * b * level / k[:-1]
    for found, expected in (
        (cucb_score(k, k * mean, level, absolute, relative), cucb),
        (ucbv_score(k, k * mean, k * variance, level, absolute, relative), ucbv),
    ):
        np.testing.assert_allclose(found, [*np.maximum(expected, 0.0), 0.0], rtol=1e-9, atol=1e-9 * (mean + b))


@settings(max_examples=50)
@given(k=st.integers(1, 10**6), mean=st.floats(1e-3, 1e6), level=st.floats(1e-3, 50), shape=st.floats(0.1, 100))
def test_kl_by_root_finding(k: int, mean: float, level: float, shape: float) -> None:
    found = kl_score(*np.array([[k, 0], [k * mean, 0]], float), level, [shape, shape])

    def excess(ln_ratio: float) -> float:  # of mean / q; expm1 keeps the digits of a small divergence
        return k * shape * (math.expm1(ln_ratio) - ln_ratio) - level

    most = math.log(2 + 2 * level / (k * shape) + 2 * math.sqrt(level / (k * shape)))
    root = brentq(excess, 0, most + 1, xtol=1e-15, rtol=1e-14)
    np.testing.assert_allclose(found, [mean * math.exp(-root), 0.0], rtol=1e-7)


@pytest.mark.parametrize("name", ["cucb", "ucb-v"])
def test_a_given_scale_replaces_the_means(play: Any, name: str) -> None:
    """A larger scale keeps every score at 0 for longer: the allocation stays even."""
    far, near = (play(name, 30, hyperparameters={"scale": scale}, **WORLD).actions for scale in (1e6, 1e-6))
    assert far[2:].max() <= 1
    assert near[-1].max() > 1


def test_a_round_by_hand(play: Any) -> None:
    """After each worker's first tasks, KL allocates by the bounds at ln k."""
    run = play("kl-lcb", 20, 1, seed=3, hyperparameters={"shape": 2.0}, **WORLD)
    for k in range(10, 21):
        (counts,), (totals,) = run.states[k - 1].belief
        expected = allocate(kl_score(counts, totals, math.log(k), np.full(8, 2.0)), BUDGET)
        np.testing.assert_array_equal(run.actions[k - 1, 0], expected)
