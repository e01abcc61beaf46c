"""Workers that owe results are probed when it pays."""

import itertools

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.pools import exponential
from ata_policies import Allocator
from ata_policies.beliefs.availability import Availability
from tests.envs.playing import ALLOCATION


@pytest.mark.parametrize("name", ["default", "restarting-beta", "lb-bsp-ema:availability=True"])
@pytest.mark.parametrize("budget", [1, 12])
def test_a_worker_that_had_all_tasks_is_seldom_probed_after_its_death(
    name: str, budget: int
) -> None:
    """A probe in vain takes a hundred of its rounds, and a round without it thirteen."""
    allocator = Allocator(2, budget, name, deadline=100.0 * budget)
    in_vain = 0
    for round in range(220):
        tasks = allocator.allocate()
        if round >= 20 and tasks[0]:
            in_vain += 1
            allocator.observe({1: [13.0] * budget}, lost=[0])
        else:
            allocator.observe({0: [1.0] * tasks[0], 1: [13.0] * tasks[1]})
    assert 1 <= in_vain <= 30


def test_rounds_in_which_a_worker_was_known_to_be_away_do_not_count_as_silence() -> None:
    pauses = []
    nobody, second = np.array([[False, False], [False, True]])
    for rounds in (1, 500):
        availability = Availability.full(1, 2)
        for _ in range(rounds):
            availability = availability.note_absences(second, nobody)
            availability = availability._replace(allocation=np.array([[4, 0]]))
            availability = availability.updated(np.array([[4.0, 0.0]]), np.ones(1), 20.0)
        availability = availability.note_absences(nobody, second)
        availability = availability._replace(allocation=np.array([[2, 2]]))
        availability = availability.updated(np.array([[2.0, 0.0]]), np.ones(1), 20.0)
        pauses.append(availability.pause[0, 1])
    assert pauses[0] == pauses[1] > 1


def test_a_spell_that_ends_by_an_earlier_task_lasts_for_some_rounds() -> None:
    """A worker that is away for one round has tasks of later rounds when that is known."""
    availability = Availability.full(1, 2)
    tasks = np.array([[1, 3]])
    for results in ([0.0, 3.0], [1.0, 3.0]):
        availability = availability._replace(allocation=tasks)
        availability = availability.updated(np.array([results]), np.ones(1), 1e6, delay=2)
    assert availability.spells[0] == 1
    assert 0.0 < availability.spell_rounds[0] <= 1.0


@pytest.mark.parametrize("name", ["default", "restarting-beta", "lb-bsp-federated"])
def test_the_time_of_rounds_has_each_latency_once(name: str) -> None:
    """Whether a policy learns latencies apart, or sees the times of whole shares."""
    late = exponential([1.0, 2.0, 4.0]).with_latency(np.array([3.0, 1.0, 2.0]))
    env = gym.make(ALLOCATION, pool=late, budget=6)
    policy = ata_policies.make(name, env)
    runtime = 0.0
    for step in itertools.islice(ata_policies.play(policy, env, 0), 20):
        np.testing.assert_allclose(step.state.plan.availability.time, [runtime], rtol=1e-12)
        runtime = step.info["runtime"]
