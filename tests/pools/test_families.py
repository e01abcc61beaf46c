"""Means and standard deviations of the families, against scipy, published settings and recorded
times.
"""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ata_gym import pools
from ata_gym.pools import Pool, families
from ata_gym.pools.families import CODES, FAMILIES

parametric = [family for family in FAMILIES if family.in_scipy]
factor = st.floats(1e-3, 1e3)
shapes = {
    "gamma": (1e-3, 1e8),
    "log-normal": (0.01, 3),
    "weibull": (0.1, 50),
    "pareto": (2.01, 100),
}


@settings(max_examples=30)
@given(family=st.sampled_from(parametric), scale=factor, shift=st.floats(0, 1e3), data=st.data())
def test_moments_agree_with_scipy(family, scale, shift, data):
    if family.shaped:
        shape = data.draw(st.floats(*shapes[family.name]))
    else:
        shape = 1.0
    pool = Pool(family.name, shift=shift, scale=scale, shape=shape)
    z = pool.standard(0)
    np.testing.assert_allclose(pool.sd(), scale * z.std(), rtol=1e-7)
    np.testing.assert_allclose(pool.mean(), shift + scale * z.mean(), rtol=1e-9)
    assert z.support()[0] == family.lowest


@settings(max_examples=40)
@given(family=st.sampled_from(parametric), level=st.floats(0.3, 0.999), data=st.data())
def test_the_excess_beyond_a_time_is_the_integral_of_the_chance_to_be_longer(family, level, data):
    if family.shaped:
        shape = data.draw(st.floats(*shapes[family.name]))
    else:
        shape = 1.0
    z = family.distribution(shape)
    x = float(z.ppf(level))
    places = z.isf(np.logspace(np.log10(1 - level), -14, 60))
    edges = np.unique(np.concatenate([[x], np.nextafter(places, np.inf)]))
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    beyond = (z.sf(edges[:-1, None] + half * (1 + nodes)) * weights * half).sum()
    rest = float(family.excess(np.array([edges[-1]]), shape)[0])
    assert family.excess(np.array([x]), shape)[0] == pytest.approx(beyond + rest, rel=1e-7)
    assert 0 <= rest < 0.7 * (beyond + rest)
    assert family.excess(np.array([family.lowest]), shape)[0] == pytest.approx(
        float(z.mean()) - family.lowest,
        rel=1e-9,
    )


@settings(max_examples=20)
@given(sigma=st.floats(1e-3, 15), mu=st.floats(-20, 20))
def test_log_normal_moments(sigma, mu):
    pool = pools.log_normal(mu, sigma)
    np.testing.assert_allclose(np.log(pool.mean()), mu + sigma**2 / 2, atol=1e-12)
    coefficient = pool.sd() / pool.mean()
    np.testing.assert_allclose(np.log1p(coefficient**2), sigma**2, rtol=1e-12)


def test_pareto_moments_are_infinite_where_the_tail_is_too_heavy():
    pool = pools.pareto([0.5, 1.0, 1.5, 2.0, 2.5], 3.0)
    np.testing.assert_array_equal(np.isinf(pool.mean()), [True, True, False, False, False])
    np.testing.assert_array_equal(np.isinf(pool.sd()), [True, True, True, True, False])


records = st.lists(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=9), min_size=1, max_size=6)


@settings(max_examples=20)
@given(records, factor, st.floats(0, 100))
def test_a_record_is_an_empirical_distribution(times, scale, shift):
    pool = Pool("trace-by-task", times=times, scale=scale, shift=shift)
    np.testing.assert_allclose(pool.mean(), [shift + scale * np.mean(t) for t in times], rtol=1e-12)
    np.testing.assert_allclose(pool.sd(), [scale * np.std(t) for t in times], rtol=1e-9, atol=1e-9)


def test_codes_are_the_places_in_the_table():
    assert [FAMILIES[code].name for code in CODES.values()] == list(CODES)
    names = (
        "deterministic exponential uniform half-normal gamma log-normal weibull pareto"
        " trace-by-task trace-by-round"
    )
    assert list(CODES) == names.split()


@pytest.mark.parametrize("shape", [90.0, 110.0, 1e4, 1e6, 3.3e8, 1e12])
def test_narrow_weibull_times_keep_their_spread(shape):
    """The cumulants of log Z = log(E) / k, E ~ Exp(1), are zeta(2) / k^2, -2 zeta(3) / k^3, 6
    zeta(4) / k^4, ...
    """
    pool = pools.weibull(shape, 1.0)
    x = 1 / shape
    log_ratio = np.pi**2 / 6 * x**2 - 2 * 1.2020569031595942 * x**3 + 14 / 4 * np.pi**4 / 90 * x**4
    np.testing.assert_allclose(
        pool.sd() / pool.mean(),
        np.sqrt(np.expm1(log_ratio)),
        rtol=20 * x**3 + 1e-12,
    )


def test_each_code_has_the_name_of_its_family() -> None:
    for name, code in CODES.items():
        assert getattr(families, name.upper().replace("-", "_")) == code
