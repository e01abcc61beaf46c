"""Levels that return to their long run: what is learned of them, and what it is worth."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import changes
from ata_gym.pools import gamma
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_gym.utils.trees import difference
from ata_policies.beliefs.distributions.arrays import HORIZONS, MEMORIES, ROW, SLOT
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.steps import play

N = 4


def autoregressive(rounds: int, correlation: float, deviation: float, rows: int = 1) -> Floats:
    """Draw levels whose logarithm is AR(1), (rounds, rows, N)."""
    rng = np.random.default_rng(3)
    log = np.empty((rounds, rows, N))
    log[0] = rng.normal(size=(rows, N))
    for k in range(1, rounds):
        shock = rng.normal(size=(rows, N))
        log[k] = correlation * log[k - 1] + np.sqrt(1.0 - correlation**2) * shock
    return np.exp(deviation * log)


def observed(levels: Floats, absent: Any = (), results: int = 2) -> list[DistributionBelief]:
    """Return the beliefs after each round; ``absent`` workers have no results from round 200 on."""
    rng = np.random.default_rng(4)
    rounds, rows, n = levels.shape
    belief = DistributionBelief.empty(rows, n)
    beliefs = [belief]
    for k in range(rounds):
        worker = np.tile(np.repeat(np.arange(n), results), (rows, 1))
        time = np.take_along_axis(levels[k], worker, 1) * rng.gamma(50.0, 0.02, worker.shape)
        if k >= 200:
            worker = np.where(np.isin(worker, absent), -1, worker)
        belief = belief.observe(worker, time, np.zeros((rows, n)))
        beliefs.append(belief)
    return beliefs


def level_of(belief: DistributionBelief, h: int) -> Floats:
    tracks = belief.tracks[0]
    usual = tracks[:, SLOT.time] / tracks[:, SLOT.results]
    if h == 0:
        return np.asarray(usual)
    time = tracks[:, SLOT.time + 2 * h] + usual
    return np.asarray(time / (tracks[:, SLOT.results + 2 * h] + 1.0))


def test_the_weights_are_those_of_a_ridge_regression_towards_the_memory_in_force() -> None:
    beliefs = observed(autoregressive(60, 0.9, 0.3))
    assert not (beliefs[-1].tracks[0, :, SLOT.restart] > 0.0).any()
    assert not beliefs[-1].suspects().any()
    before = []
    after = []
    weight = []
    for k in range(2, 60):
        usual = level_of(beliefs[k], 0)
        before.append([np.log(level_of(beliefs[k], h) / usual) for h in range(1, MEMORIES)])
        # the memory of a single round has a result more, at the usual level
        last = beliefs[k + 1].tracks[0, :, SLOT.time + 2 * (MEMORIES - 1)]
        after.append(np.log(last / 2.0 / usual))
        weight.append((1.0 - 1.0 / 256.0) ** (59 - k))
    assert HORIZONS[-1] == 1.0
    z = np.moveaxis(np.array(before), 1, 2).reshape(-1, MEMORIES - 1)
    y = np.concatenate(after)
    weights = np.repeat(weight, N)
    ridge = (weights * y**2).sum() / weights.sum()
    prior = np.arange(1, MEMORIES) == beliefs[-2].row[0, ROW.force]
    expected = np.linalg.solve(
        (z.T * weights) @ z + ridge * np.eye(MEMORIES - 1),
        (z.T * weights) @ y + ridge * prior,
    )
    np.testing.assert_allclose(
        beliefs[-1].row[0, ROW.weights : ROW.weights + MEMORIES - 1], expected, rtol=1e-6
    )


@pytest.mark.parametrize("correlation", [0.6, 0.9])
def test_correlation_and_variance_of_levels_are_learned(correlation: float) -> None:
    row = observed(autoregressive(600, correlation, 0.3, rows=8))[-1].row
    squares, first, second = row[:, ROW.products : ROW.products + 3].T
    assert (row[:, ROW.returns] == 1.0).all()
    assert np.median(second / first) == pytest.approx(correlation, abs=0.08)
    variance = first**2 / second / row[:, ROW.deviations]
    assert np.median(variance) == pytest.approx(0.09, rel=0.3)
    assert (first <= squares).all()


def test_a_worker_without_feedback_returns_to_its_long_run_and_is_known_less() -> None:
    levels = autoregressive(240, 0.8, 0.3, rows=32)
    levels[195:200, :, 0] = 1.8
    beliefs = observed(levels, absent=[0])
    # the rows in which these levels were predicted best
    returns = beliefs[-1].row[:, ROW.returns] == 1.0
    assert returns.any()
    beliefs = [belief.take_rows(returns) for belief in beliefs]
    tracks = beliefs[-1].tracks[:, 0]
    usual = tracks[:, SLOT.time] / tracks[:, SLOT.results]
    distance = [np.abs(np.log(belief.mean()[:, 0] / usual)) for belief in beliefs[201::10]]
    assert (distance[0] > 0.1).mean() > 0.7
    assert (np.max(distance[2:], axis=0) < 0.05).all()
    counts = np.array([belief.counts[:, 0] for belief in beliefs[201:]])
    assert (np.diff(counts, axis=0) < 0.2).all()
    assert (counts > 1.0 - 1e-9).all()
    assert (np.median(beliefs[-1].counts[:, 1:], axis=1) > counts[-1]).all()


def test_where_nothing_moves_nothing_returns() -> None:
    for belief in observed(np.tile([1.0, 2.0, 5.0, 9.0], (400, 8, 1)))[-50:]:
        assert (belief.row[:, ROW.force] == 0.0).all()
        assert (belief.row[:, ROW.returns] == 0.0).all()
        assert (belief.counts == belief.tracks[:, :, SLOT.results]).all()


def test_rows_do_not_depend_on_each_other() -> None:
    levels = autoregressive(120, 0.8, 0.4, rows=3)
    rng = np.random.default_rng(5)
    together = DistributionBelief.empty(3, N)
    alone = DistributionBelief.empty(1, N)
    for k in range(120):
        worker = rng.integers(0, N, (3, 5))
        time = np.take_along_axis(levels[k], worker, 1) * rng.gamma(50.0, 0.02, worker.shape)
        together = together.observe(worker, time, np.zeros((3, N)))
        alone = alone.observe(worker[1:2], time[1:2], np.zeros((1, N)))
    assert difference(together.take_rows(slice(1, 2)), alone) is None


PERIODIC = Scenario(
    gamma(10.0, np.geomspace(5.0, 15.0, 6) / 10),
    budget=24,
    horizon=400,
    changes=(changes.Periodic(60, 0.5),),
)
LOADED = Scenario(
    gamma(10.0, np.geomspace(10.0, 100.0, 30) / 10),
    budget=15,
    horizon=300,
    changes=(changes.Load(0, 0, 0.5, 0.8),),
)


@pytest.mark.parametrize(("scenario", "bound"), [(PERIODIC, 0.94), (LOADED, 0.98)])
def test_speeds_that_change_fast_are_followed(scenario: Scenario, bound: float) -> None:
    def runtimes(name: str) -> Floats:
        env = gym.make_vec(
            "ata_gym/TaskAllocation-v0",
            8,
            vectorization_mode="vector_entry_point",
            scenario=scenario,
        )
        *_, last = play(ata_policies.make(name, env), env, 0)
        return np.asarray(last.info["runtime"])

    ratio = runtimes("distribution-learner") / runtimes("recent-average")
    assert ratio.mean() < bound
