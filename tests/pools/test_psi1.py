"""psi1 norms: E exp(|Y| / c) = 2 by an independent route, and the rules of a norm."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy.integrate import quad
from scipy.special import gamma, gammainc, gammaincc

from ata_gym import pools
from ata_gym.pools import Pool

shifted = st.floats(0, 20)


def exponential_moment(pool, c, *, centred):
    """E exp(|Y| / c) of worker 0 as 1 + (integral of exp(y / c) P(|Y| > y) dy) / c, from scipy's
    tails.
    """
    shift = pool.distributions.shift[0]
    scale = pool.distributions.scale[0]
    z = pool.standard(0)
    mean = pool.mean()[0]
    sd = pool.sd()[0]

    def integrand(y):
        above = z.logsf(((mean if centred else 0.0) + y - shift) / scale)
        if centred:
            below = z.logcdf((mean - y - shift) / scale)
        else:
            below = -np.inf
        return np.exp(y / c + np.logaddexp(above, below)) / c

    low = shift + scale * z.support()[0]
    high = shift + scale * min(z.support()[1], z.isf(1e-300))
    cuts = [low, *(mean + np.array([-40, -20, -10, -5, -2, 0, 2, 5, 10, 20, 40]) * sd), high]
    cuts = sorted({0.0, *(abs(x - mean) if centred else x for x in cuts if low <= x <= high)})
    ranges = [(a, b) for a, b in pairwise(cuts) if b - a > 1e-12 * b]
    return 1 + sum(quad(integrand, a, b, epsabs=1e-12, limit=200)[0] for a, b in ranges)


distributions = st.one_of(
    st.builds(pools.exponential, st.floats(0.1, 10), shifted),
    st.builds(lambda low, width: pools.uniform(low, low + width), shifted, st.floats(0.1, 10)),
    st.builds(pools.half_normal, st.floats(0.1, 10), shifted),
    st.builds(pools.gamma, st.floats(0.4, 1e3), st.floats(0.01, 100), shifted),
    st.builds(pools.weibull, st.floats(1, 20), st.floats(0.1, 10), shifted),
)


@settings(max_examples=40)
@given(distributions, st.booleans())
def test_the_exponential_moment_is_two(pool, centred):
    (c,) = pool.psi1_norm(centred)
    assert exponential_moment(pool, c, centred=centred) == pytest.approx(2, abs=1e-8)


def test_closed_forms():
    k = np.array([1e-3, 0.1, 1.0, 30.0, 1e6])
    np.testing.assert_allclose(
        pools.gamma(k, 2.0).psi1_norm(),
        -2 / np.expm1(-np.log(2) / k),
        rtol=1e-12,
    )
    # a gamma distribution of many shapes is normal: 2 exp(t^2 / 2) Phi(t) = 2, the raw equation of
    # the half-normal distribution
    half = pools.half_normal((2 / np.pi) ** 0.5).psi1_norm()
    np.testing.assert_allclose(pools.gamma(1e14, 1e-7).psi1_norm(centred=True), half, rtol=1e-8)
    np.testing.assert_allclose(pools.gamma(1e40, 1e-20).psi1_norm(centred=True), half, rtol=1e-7)
    # a weibull distribution of a large shape k is 1 + log(E) / k: E is cut at exp(-Euler's
    # constant)
    u = 1 / (1e8 * pools.weibull(1e8, 1.0).psi1_norm(centred=True)[0])
    e = np.exp(-np.euler_gamma)
    above = e**-u * gamma(1 + u) * gammaincc(1 + u, e)
    below = e**u * gamma(1 - u) * gammainc(1 - u, e)
    assert above + below == pytest.approx(2, abs=1e-6)


def test_heavy_tails_have_no_norm_and_shifts_may_be_far_beyond_the_scale():
    heavy = (
        pools.log_normal(0, [0.1, 2.9])
        + pools.pareto([0.5, 3, 50], 1)
        + pools.weibull([0.3, 0.999], 1)
    )
    for centred in (False, True):
        np.testing.assert_array_equal(
            (heavy + pools.pareto(3.0, 1.0, shift=-1.0)).psi1_norm(centred),
            np.inf,
        )
    np.testing.assert_allclose(pools.deterministic(7.0).psi1_norm(), 7 / np.log(2))
    assert pools.deterministic(7.0).psi1_norm(centred=True) == 0.0
    far = pools.exponential(1e-200, shift=1e200)
    np.testing.assert_allclose(far.psi1_norm(), 1e200 / np.log(2))
    np.testing.assert_allclose(far.psi1_norm(centred=True), 1.53134684e-200)


times_of_one = st.lists(st.floats(0.1, 1e3), min_size=1, max_size=30)
constant = st.builds(lambda time, length: [time] * length, st.floats(0.1, 1e3), st.integers(1, 30))


@settings(max_examples=30)
@given(times_of_one | constant, st.booleans(), st.floats(0, 1e3))
@example([1.0] * 99_999 + [1e6], False, 0.0)
@example([1.0] * 99_999 + [1e6], True, 0.0)
def test_records(times, centred, shift):
    pool = Pool("trace-by-round", times=[times], shift=shift)
    (c,), y = (
        pool.psi1_norm(centred),
        np.abs(shift + np.array(times) - (pool.mean()[0] if centred else 0)),
    )
    if centred and len(set(times)) == 1:
        assert c == 0.0
    elif y.max() > 1e-6:
        assert np.mean(np.exp(y / c)) == pytest.approx(2, abs=1e-9)
    else:
        assert c < 1e-5


@settings(max_examples=6)
@given(st.lists(distributions, min_size=1, max_size=6))
def test_each_worker_has_its_own_norm(parts):
    pool = pools.concatenate(parts)
    for centred in (False, True):
        alone = np.concatenate([part.psi1_norm(centred) for part in parts])
        np.testing.assert_allclose(pool.psi1_norm(centred), alone, rtol=1e-13)


def test_the_answer_is_the_callers_own():
    pool = pools.exponential([1, 2])
    pool.psi1_norm()[:] = 0
    pool.mean()[:] = 0
    np.testing.assert_allclose(pool.psi1_norm(), [2, 4])
    np.testing.assert_allclose(pool.mean(), [1, 2])
