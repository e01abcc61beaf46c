"""The perturbed leader: who leads by a closed form, and how often rare decisions are counted."""

import numpy as np
import pytest

from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario
from ata_policies import Setting
from docs.perturbed_leader import Losses, PerturbedLeader

ROWS = 4_000
PLAYED = 5
"""The rounds so far."""


def decided(means, losses, budget, redraws):
    """The decisions of rows that have the same losses, and the tasks of all seen took 2."""
    setting = Setting.from_scenario(Scenario(exponential(means), budget))
    policy = PerturbedLeader(setting, rate=2.0, redraws=redraws)
    state = policy.first_state(ROWS)
    n = len(means)
    seen = type(state.belief)(np.full((ROWS, n), 3.0), np.full((ROWS, n), 6.0))
    plan = Losses(np.tile(np.array(losses), (ROWS, 1)), np.zeros((ROWS, n)))
    state = state._replace(belief=seen, plan=plan, round=np.full(ROWS, PLAYED))
    nothing = {
        "worker": np.full((ROWS, budget), -1),
        "duration": np.zeros((ROWS, budget)),
    }
    return policy.act(state, nothing)


def test_of_two_workers_the_leader_is_that_of_a_difference_of_exponentials():
    action, _ = decided([1.0, 2.0], [10.0, 16.0], 1, 1)
    eta = 2.0 * np.sqrt((np.log(2) + 1) / (1 * 2 * PLAYED))
    chance = 1 - 0.5 * np.exp(-eta * (16.0 - 10.0) / 2.0)
    assert (action.sum(axis=1) == 1).all()
    assert action[:, 0].mean() == pytest.approx(chance, abs=4 * 0.5 / ROWS**0.5)


@pytest.mark.parametrize("redraws", [3, 20])
def test_a_round_counts_for_one_on_average_but_for_what_is_cut_off(redraws):
    action, state = decided([1.0, 2.0, 3.0], [6.0, 9.0, 8.0], 2, redraws)
    waits = state.plan.waits
    chance = (action > 0).mean(axis=0)
    assert ((waits > 0) == (action > 0)).all()
    assert waits.max() <= redraws
    expected = 1 - (1 - chance) ** redraws
    error = waits.std(axis=0) / ROWS**0.5
    assert (np.abs(waits.mean(axis=0) - expected) < 4 * error + 0.02).all()


def test_what_was_rare_is_added_as_often_as_it_was_missed():
    setting = Setting.from_scenario(Scenario(exponential([1.0, 2.0]), 2))
    policy = PerturbedLeader(setting)
    state = policy.first_state(1)._replace(
        plan=Losses(np.array([[1.0, 2.0]]), np.array([[0.0, 3.0]])), round=np.array([1])
    )
    _, state = policy.predict(
        {
            "worker": np.array([1, 1]),
            "duration": np.array([3.0, 5.0]),
            "elapsed": np.zeros(2),
        },
        state,
    )
    assert state.plan.total.tolist() == [[1.0, 2.0 + 3 * 4.0]]
