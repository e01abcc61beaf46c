"""Every policy of the registry, played; and one of each kind in other loops: rows alone, an RL library."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym.changes import Jump, OnOff, Spot, Switch, Walk
from ata_gym.pools import concatenate, exponential, gamma, log_normal, trace
from ata_gym.scenarios import AtaConstants, Published, Scenario
from ata_gym.utils.trees import difference, map_leaves
from ata_policies import Policy, check_policy
from ata_policies.policy import DispatchPolicy
from ata_policies.steps import decide

NAMES = ata_policies.names()
BY_KIND = (
    *("ata", "thompson-beta", "kl-gamma", "catoni", "restarting-beta", "thompson:memory=window:of=rounds"),
    *("cucb:memory=discount", "epsilon-uniform", "uta", "explore-then-commit", "exponentiated-gradient"),
    *("distribution-learner", "dynamic-oracle", "lb-bsp-federated", "lb-bsp-linear", "lb-bsp-gpu", "lb-bsp-profiled"),
    *("learned", "race", "race-backup", "race-dynamic-oracle", "dispatch", "dispatch-rest", "dispatch-dynamic-oracle"),
)
"""At least one policy of each class, and one with each memory."""


def test_every_class_is_among_the_kinds() -> None:
    """And none overrides ``predict``, which is tested once for all."""
    made = [ata_policies.load(name) for name in NAMES]
    kinds = {one.build for one in made if isinstance(one, ata_policies.Preset)}
    assert {kind.predict for kind in kinds} == {Policy.predict}
    fixed = {"Ofta", "Oracle", "Gta", "DispatchGta", "DispatchOracle", "DispatchCaps", "RaceOracle", "RaceCaps"}
    alike = {"DynamicOfta", "RaceFastest", "LearnedDispatch"}  # to DynamicOracle, RaceBackup and LearnedAllocation
    played = {ata_policies.load(name).build.__name__ for name in BY_KIND}  # type: ignore[union-attr]
    assert {kind.__name__ for kind in kinds} - fixed - alike == played


@pytest.mark.parametrize("name", NAMES)
def test_keeps_the_contract(name: str) -> None:
    """Legal, reproducible, the same alone as in a batch, and more; here its advice is an error too."""
    dispatch = "Dispatch" in ata_policies.load(name).env_id
    check_policy(name, rounds=(6 if dispatch else 16) if name in BY_KIND else 4)


WORKERS = st.one_of(
    st.builds(lambda mean: exponential([mean]), st.floats(0.1, 10.0)),
    st.builds(lambda shape, mean: gamma([shape], [mean / shape]), st.floats(0.3, 9.0), st.floats(0.1, 10.0)),
    st.builds(lambda sigma, mu: log_normal([mu], [sigma]), st.floats(0.1, 2.0), st.floats(-1.0, 2.0)),
    st.builds(lambda times: trace([times]), st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9)),
)
CHANGES = (
    Switch(every=4),
    Walk(0.1, 0.7),
    OnOff(5.0, 0.2, 0.3),
    Jump(at=9, factor=6.0, workers=(0,)),
    Spot(0.1, 0.3, 0.5),
)
NARROW = Published(*[AtaConstants(alpha=0.1, eta=0.1)] * 2)
"""Bounds so narrow that scores are above 0 after few rounds."""


def play(name: str, scenario: Scenario, rows: int, seed: int) -> tuple[Any, Any]:
    """The actions in 16 rounds, (steps, rows, n), and the last state."""
    envs = gym.make_vec(ata_policies.load(name).env_id, num_envs=rows, scenario=scenario)
    policy, state, actions = ata_policies.make(name, envs, seed), None, []
    observation, _ = envs.reset(seed=seed)
    for _ in range(16 * (scenario.budget if isinstance(policy, DispatchPolicy) else 1)):
        action, state = decide(policy, envs, observation, state)
        observation = envs.step(action)[0]
        actions.append(action)
    return np.array(actions), state


@pytest.mark.parametrize("name", BY_KIND)
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(
    workers=st.lists(WORKERS, min_size=1, max_size=4),
    changes=st.lists(st.sampled_from(CHANGES), max_size=2, unique=True),
    budget=st.integers(1, 6),
    price=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 99),
)
def test_a_row_of_a_batch_is_the_row_alone(
    name: str, workers: list[Any], changes: list[Any], budget: int, price: float, seed: int
) -> None:
    """Bit for bit, in any pool, whatever changes."""
    scenario = Scenario(concatenate(workers), budget, horizon=11, changes=tuple(changes), price=price, published=NARROW)
    batch, state = play(name, scenario, 3, seed)
    for e in (0, 2):
        alone, own = play(name, scenario, 1, seed + e)
        np.testing.assert_array_equal(alone[:, 0], batch[:, e])
        assert difference(own, map_leaves(lambda leaf, e=e: leaf[e : e + 1], state)) is None


@pytest.mark.parametrize("name", ["ata", "race", "dispatch"])
def test_stable_baselines3_evaluates_a_policy_over_a_monitored_env(name: str) -> None:
    """As it does its own agents; only policies that need privileged information cannot be driven so."""
    pytest.importorskip("stable_baselines3", reason="extra rl is not installed")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    env_id = ata_policies.load(name).env_id
    env, by_hand = (gym.make(env_id, scenario="icml2025-regret", horizon=20) for _ in range(2))
    policy = ata_policies.make(name, env, seed=3)
    env.reset(seed=3)
    returns, lengths = evaluate_policy(policy, Monitor(env), n_eval_episodes=2, return_episode_rewards=True)
    steps = 20 * (env.unwrapped.budget if env_id == "ata_gym/TaskDispatch-v0" else 1)  # type: ignore[attr-defined]
    assert lengths == [steps, steps]
    by_hand.reset(seed=3)
    state = None
    for expected in returns:  # SB3 resets once more before the first episode
        observation, total = by_hand.reset()[0], 0.0
        for _ in range(steps):
            action, state = policy.predict(observation, state)
            observation, reward, *_ = by_hand.step(action)
            total += float(reward)
        np.testing.assert_allclose(expected, total)
