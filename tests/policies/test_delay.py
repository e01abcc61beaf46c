"""Results that come some rounds late: nobody is away for that, nor tried again meanwhile."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import deterministic, exponential
from ata_gym.scenarios import Scenario
from ata_policies import Setting
from ata_policies.beliefs.availability import Availability, best_pause
from ata_policies.steps import decide, play
from tests.envs.playing import ALLOCATION, DISPATCH

NAMES = [name for name in ata_policies.names() if ata_policies.load(name).env_id != DISPATCH]
POOL = exponential([1.0, 1.5, 2.0, 3.0, 5.0], [0.5] * 5)
DELAY = 3


def make_envs(env_id: str, rows: int = 2, **options: Any) -> Any:
    return gym.make_vec(env_id, num_envs=rows, **({"delay": DELAY} | options))


@pytest.mark.parametrize("name", NAMES)
def test_nobody_is_away_whose_results_are_only_late(name: str) -> None:
    """The round of a policy is the round of the env, also after a reset and before any result."""
    envs = make_envs(ata_policies.load(name).env_id, pool=POOL, budget=6, horizon=20)
    policy = ata_policies.make(name, envs)
    observation = envs.reset(seed=0)[0]
    state = None
    for _ in range(45):
        round = envs.unwrapped.conditions().round + 1
        action, state = decide(policy, envs, observation, state)
        assert not policy.away(state).any()
        assert (state.round == round).all()
        observation, *_ = envs.step(action)


def simulated_probes(dead: range, delay: int, rounds: int) -> list[int]:
    """The rounds in which a worker has a task; it gives no result in the rounds ``dead``.

    A simulation of the rule as it is described, of a worker with one of two tasks. As no deadline
    is known, a probe in vain costs as much as 3 rounds without it.
    """
    tasks: list[int] = []
    spells = [1.5]
    pause = 0
    away = False
    since = 0
    next_probe = 0
    probe = None
    for now in range(rounds):
        known = now - 1 - delay
        if known in tasks:
            if known not in dead:
                if away:
                    spells.append(now - since - pause / 2)
                away = False
                probe = None
            elif not away:
                away = True
                since = now
                pause = best_pause(np.array(3.0), np.array(max(np.mean(spells), 1.0)))
                next_probe = now + pause + delay
            elif known == probe:
                spell = max(np.mean(spells), now - since + 1.0)
                pause = best_pause(np.array(3.0), np.array(spell))
                next_probe = now + pause
                probe = None
        if not away:
            tasks.append(now)
        elif now == next_probe:
            tasks.append(now)
            probe = now
    return tasks


@pytest.mark.parametrize("delay", [0, 1, 3, 7])
@pytest.mark.parametrize("dead", [range(5, 150), range(5, 6), range(0, 31), range(20, 400)])
def test_a_probe_is_answered_before_the_next_one(delay: int, dead: range) -> None:
    rounds = 300
    availability = Availability.full(1, 2)
    tasks: list[int] = []
    for now in range(rounds):
        known = now - 1 - delay
        allocation = np.array([[known in tasks, known >= 0]], np.int64)
        results = np.array([[known in tasks and known not in dead, known >= 0]])
        availability = availability._replace(allocation=allocation)
        availability = availability.updated(results, np.ones(1), None, delay)
        if availability.available()[0, 0]:
            tasks.append(now)
    assert tasks == simulated_probes(dead, delay, rounds)


def test_workers_whose_first_results_are_awaited_are_not_tried_again() -> None:
    envs = make_envs(ALLOCATION, pool=exponential(np.linspace(1.0, 9.0, 100)), budget=20, rows=4)
    tries = np.zeros((4, 100))
    steps = play(ata_policies.make("default", envs), envs)
    for _ in range(DELAY + 1):
        tries += next(steps).action
    assert (tries.sum(axis=1) == 80).all()
    assert tries.max() == 1


def test_a_tuned_and_a_profiled_split_compare_results_with_their_own_round() -> None:
    """Where times are exact, both end where they end without a delay."""
    pool = deterministic([1.0, 2.0, 4.0])
    for name in ("lb-bsp-gpu", "lb-bsp-profiled"):
        last = []
        for delay in (0, DELAY):
            env = gym.make(ALLOCATION, pool=pool, budget=14, delay=delay, horizon=120)
            last.append([step.action for step in play(ata_policies.make(name, env), env)][-1])
        assert np.array_equal(*last), name


@pytest.mark.parametrize("name", ["default", "restarting-beta", "lb-bsp-ema:availability=True"])
def test_a_worker_that_dies_is_left_out_as_soon_as_it_is_known(name: str) -> None:
    scenario = Scenario(deterministic([1.0] * 6), 12, changes=(Spot(0.02, 0.02, deadline=9.0),))
    envs = make_envs(ALLOCATION, rows=8, scenario=scenario)
    policy = ata_policies.make(name, envs)
    observation = envs.reset(seed=1)[0]
    state = None
    wasted = 0
    gone_rounds = 0
    for _ in range(150):
        gone = np.isinf(envs.unwrapped.means())
        action, state = decide(policy, envs, observation, state)
        wasted += int((gone & (action > 0)).sum())
        gone_rounds += int(gone.sum())
        observation, *_ = envs.step(action)
    assert gone_rounds > 2000
    assert wasted < gone_rounds / 3


@pytest.mark.parametrize("name", ["default", "restarting-beta", "lb-bsp-federated"])
def test_the_later_the_deadline_the_fewer_the_probes(name: str) -> None:
    probes = []
    for deadline in (0.0, 20.0, 1000.0):
        scenario = Scenario(
            deterministic([1.0] * 6), 12, changes=(Spot(0.02, 0.02, deadline=deadline),)
        )
        envs = make_envs(ALLOCATION, rows=8, scenario=scenario)
        policy = ata_policies.make(name, envs)
        observation = envs.reset(seed=1)[0]
        state = None
        in_vain = 0
        for _ in range(150):
            gone = np.isinf(envs.unwrapped.means())
            action, state = decide(policy, envs, observation, state)
            in_vain += int((gone & (action > 0)).sum())
            observation, *_ = envs.step(action)
        probes.append(in_vain)
    assert probes[0] > 1.2 * probes[1] > 1.2 * 1.2 * probes[2]


def test_a_policy_for_another_delay_is_refused() -> None:
    prompt, late = (gym.make(ALLOCATION, pool=POOL, budget=6, delay=delay) for delay in (0, 2))
    for made_for, played, words in (
        (prompt, late, "0 rounds late, and this observation has the allocation of an earlier"),
        (late, prompt, "2 rounds late, and this observation has no allocation"),
    ):
        policy = ata_policies.make("restarting-beta", made_for)
        with pytest.raises(ValueError, match=words):
            policy.predict(played.reset(seed=0)[0])


def test_a_setting_tells_the_delay() -> None:
    assert Setting.from_env(gym.make(ALLOCATION, delay=2)).delay == 2
    assert Setting.from_env(gym.make(ALLOCATION)).delay == 0
    assert Setting.from_scenario(Scenario(POOL, 3), delay=1).delay == 1


@pytest.mark.parametrize(
    ("allocation", "sentence"),
    [
        (np.full(5, -1), "must be from 0 to 6"),
        (np.full(5, 7), "must be from 0 to 6"),
        (np.ones(4, int), r"must have shape \(5,\)"),
        (np.ones(5), "must hold integers"),
    ],
)
def test_an_allocation_that_cannot_be_is_refused(allocation: Any, sentence: str) -> None:
    env = gym.make(ALLOCATION, pool=POOL, budget=6, delay=1)
    observation = env.reset(seed=0)[0]
    with pytest.raises(ValueError, match=rf"observation\[.allocation.\] {sentence}"):
        ata_policies.make("default", env).predict(observation | {"allocation": allocation})
