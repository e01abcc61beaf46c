"""Pools drawn at random: what workers are drawn from, how often each is drawn, and plain data."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from ata_gym.pools import PoolDistribution
from ata_gym.pools.families import FAMILIES
from ata_gym.scenarios import Scenario

LEVELS = 16
LARGEST_CV = {
    "deterministic": 0.0,
    "exponential": 1.0,
    "uniform": stats.uniform.std() / stats.uniform.mean(),
    "half-normal": stats.halfnorm.std() / stats.halfnorm.mean(),
}
"""Of families that have one shape only."""
ALL = (*LARGEST_CV, "gamma", "log-normal", "weibull", "pareto")


@settings(max_examples=10)
@given(low=st.floats(0.05, 3.0), ratio=st.floats(1.0, 3.0), family=st.sampled_from(ALL[1:]))
def test_the_catalogue_has_mean_1_and_the_wanted_cvs(low: float, ratio: float, family: str) -> None:
    catalogue = PoolDistribution(2, families=(family,), cv=(low, low * ratio)).catalogue
    wanted = np.minimum(
        low * ratio ** (np.arange(LEVELS) / (LEVELS - 1)),
        LARGEST_CV.get(family, np.inf),
    )
    assert catalogue.mean() == pytest.approx(np.ones(LEVELS), rel=1e-9)
    assert catalogue.sd() == pytest.approx(wanted, rel=1e-6)


def test_families_lie_one_after_the_other() -> None:
    assert set(ALL) == {family.name for family in FAMILIES if not family.trace}
    catalogue = PoolDistribution(3, families=ALL).catalogue
    assert catalogue.families == tuple(name for name in ALL for _ in range(LEVELS))
    assert not catalogue.sd()[:LEVELS].any()  # deterministic
    assert PoolDistribution(2, families="gamma").families == ("gamma",)


def drawn(pools: PoolDistribution, rows: int = 20_000, seed: int = 3) -> Any:
    return pools.draw(np.random.default_rng(seed).random((rows, pools.KINDS, pools.n)))


def test_families_levels_and_counts_are_equally_likely() -> None:
    pools = PoolDistribution(7, fewest=3, families=ALL)
    workers = drawn(pools)
    places = np.bincount(workers.place.ravel(), minlength=LEVELS * len(ALL))
    assert stats.chisquare(places).pvalue > 1e-3
    counts = np.bincount(workers.present.sum(axis=1))
    assert not counts[:3].any()
    assert stats.chisquare(counts[3:]).pvalue > 1e-3
    assert (
        np.diff(workers.present.astype(int), axis=1) <= 0
    ).all()  # the workers are at the first places


def test_means_are_log_uniform_up_to_a_log_uniform_ratio() -> None:
    same_ratio = PoolDistribution(4, heterogeneity=(9.0, 9.0))
    parts = np.log(drawn(same_ratio).mean.ravel()) / np.log(9.0)
    assert stats.kstest(parts, "uniform").pvalue > 1e-3
    uniforms = np.random.default_rng(5).random((20_000, 4, 4))
    uniforms[:, 2] = 1.0  # each worker has the slowest mean of its pool
    ratio = PoolDistribution(4, heterogeneity=(2.0, 50.0)).draw(uniforms).mean
    assert (ratio == ratio[:, :1]).all()
    workers = drawn(same_ratio)
    # workers do not depend on each other
    for values in (
        np.log(workers.mean),
        workers.place.astype(float),
    ):
        correlation = np.corrcoef(values.T)[np.triu_indices(4, 1)]
        assert np.abs(correlation).max() < 5 / np.sqrt(len(values))
    assert stats.kstest(np.log(ratio[:, 0] / 2) / np.log(25), "uniform").pvalue > 1e-3


@settings(max_examples=15)
@given(st.integers(1, 12), st.data())
def test_every_draw_is_a_pool(n: int, data: st.DataObject) -> None:
    fewest = data.draw(st.integers(1, n))
    low = data.draw(st.floats(1.0, 50.0))
    pools = PoolDistribution(n, fewest, heterogeneity=(low, 2 * low))
    edges = st.sampled_from([5e-324, 1e-300, 0.5, 1 - 2**-53])
    uniforms = np.array(data.draw(st.lists(edges, min_size=4 * n, max_size=4 * n))).reshape(1, 4, n)
    workers = pools.draw(uniforms)
    assert ((workers.place >= 0) & (workers.place < pools.catalogue.n)).all()
    assert ((workers.mean >= 1.0) & (workers.mean <= 2 * low * (1 + 1e-12))).all()
    assert fewest <= workers.present.sum() <= n


def test_the_typical_pool_is_in_the_middle() -> None:
    pools = PoolDistribution(
        8,
        families=("gamma", "uniform"),
        heterogeneity=(4.0, 9.0),
        cv=(0.25, 1.0),
    )
    typical = pools.typical()
    assert (typical.families, typical.sd() / typical.mean()) == (("gamma",) * 8, pytest.approx(0.5))
    assert np.prod(typical.mean()) ** (1 / 8) == pytest.approx(6.0**0.5)  # log-uniform from 1 to 6
    assert typical.mean().max() < 6.0


def test_plain_data_survive_json() -> None:
    pools = PoolDistribution(7, 3, ("gamma", "uniform"), (1.5, 4.0), (0.3, 0.7))
    again = PoolDistribution.from_data(json.loads(json.dumps(pools.to_data())))
    assert (again, hash(again)) == (pools, hash(pools))
    assert PoolDistribution.from_data(pools) is pools
    assert Scenario(again, budget=3).to_data() == Scenario(pools, budget=3).to_data()


@pytest.mark.parametrize(
    ("field", "sentence", "values"),
    [
        ("n", "n of PoolDistribution must be", [0, 2.5]),
        ("fewest", "fewest of PoolDistribution must be at most n, 4, not 5", [5]),
        ("fewest", "fewest of PoolDistribution must be", [0]),
        ("families", "no family to draw from 'gama'.*gamma", [("gama",)]),
        ("families", "no family to draw from 'trace-by-task'", [("trace-by-task",)]),
        ("families", "must name at least one family", [()]),
        (
            "heterogeneity",
            "heterogeneity must be two numbers from 1",
            [(0.5, 2.0), (3.0, 2.0), 2.0, (1.0, np.nan)],
        ),
        (
            "cv",
            "cv must be two numbers from 0.01 to 10",
            [(0.0, 1.0), (0.1, 11.0), (0.1, 0.2, 0.3), "ab"],
        ),
    ],
)
def test_bad_input_is_refused_by_name(field: str, sentence: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=sentence):
            PoolDistribution(**({"n": 4} | {field: value}))


def test_data_of_something_else_are_refused() -> None:
    for data in ({"n": 4, "colour": 1}, {}, 7):
        with pytest.raises(
            ValueError,
            match="the data of a PoolDistribution hold n, fewest, families",
        ):
            PoolDistribution.from_data(data)  # type: ignore[arg-type]
