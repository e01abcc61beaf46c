"""Policies by name, and every one of them played; and one of each kind in other loops: rows alone, an RL library."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym.changes import Jump, OnOff, Spot, Switch, Walk
from ata_gym.pools import concatenate, exponential, gamma, log_normal, shifted_exponential, trace
from ata_gym.scenarios import AtaConstants, Published, Scenario
from ata_gym.utils.trees import difference, map_leaves
from ata_policies import Policy, Setting, check_policy, default_name
from ata_policies.allocation.baselines import Uta
from ata_policies.policy import DispatchPolicy
from ata_policies.registry import DEFAULTS, env_ids
from ata_policies.steps import decide, play_on

POOL = shifted_exponential([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])


def made(name: str, env_id: str = "ata_gym/TaskAllocation-v0", **hyperparameters: Any) -> Any:
    return ata_policies.make(name, gym.make(env_id, pool=POOL, budget=7), **hyperparameters)


def test_every_policy_says_what_it_is() -> None:
    for found in map(ata_policies.load, ata_policies.names()):
        assert found.env_id in env_ids()
        assert 10 < len(found.summary()) <= 120
        assert all((found.source, found.constants, found.knows, found.assumes))
        assert {type(flag) for flag in (found.learns, found.priced, found.nonstationary, found.privileged)} == {bool}


def test_a_preset_says_what_its_parts_say_together() -> None:
    found = ata_policies.load("restarting-beta")
    assert found.source == "ours, after Thompson, 1933; Liu, Lee and Shroff, AAAI 2018"
    assert found.constants.startswith("weight 5, a prior of no weight; beta 1.5; Page-Hinkley")
    assert (found.knows, found.nonstationary) == ("nothing", True)
    assert not ata_policies.load("thompson-beta").nonstationary
    assert ata_policies.load("certainty-equivalence").constants == "none"


@pytest.mark.parametrize(
    ("name", "hyperparameters", "message"),
    [
        ("atta", {}, "did you mean ata"),
        ("no.such.module:Thing", {}, "there is no policy"),
        ("ata_policies.allocation.baselines:Nothing", {}, "there is no policy"),
        ("ata_policies.policy:Totals", {}, "Totals is no policy: make it a subclass"),
        ("uta", {"alpha": 1.0}, "does not take"),
        ("ata", {"alpha": -1.0}, "alpha"),
        ("ata", {"seed": -1}, "seed must be"),
    ],
)
def test_unknown_names_and_hyperparameters(name: str, hyperparameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(name, **hyperparameters)


def test_what_is_no_env_of_ours_is_refused() -> None:
    text = "an env is needed here, not the text 'ata_gym/TaskAllocation-v0': make it first, by gymnasium.make"
    other = "is not an env of ata_gym: make one with gymnasium.make"
    wrong: tuple[Any, ...] = ("ata_gym/TaskAllocation-v0", None, 3, gym.make("CartPole-v1"))
    for one, said in zip(wrong, (text, f"None {other}", f"3 {other}", "not an env of ata_gym"), strict=True):
        for asked in (lambda one=one: ata_policies.make("ata", one), lambda one=one: Setting.of(one)):
            with pytest.raises(ValueError, match=said):
                asked()


def test_the_default_policy_of_an_env() -> None:
    for env_id in DEFAULTS:
        policy, preset = made("default", env_id, seed=3), ata_policies.load(default_name(env_id))
        assert isinstance(preset, ata_policies.Preset)
        assert (type(policy), policy.seed) == (preset.build, 3)
    with pytest.raises(ValueError, match=r"depends on the env; give its name: .* for ata_gym/TaskAllocation-v0"):
        ata_policies.load("default")
    with pytest.raises(ValueError, match="no default policy is named for ata_gym/TaskNothing-v0"):
        default_name("ata_gym/TaskNothing-v0")


@pytest.mark.parametrize("name", ["gta", "ata_policies.allocation.baselines:Uta"])
@pytest.mark.parametrize("env_id", env_ids())
def test_a_policy_is_made_for_its_own_env_alone(name: str, env_id: str) -> None:
    """However the env was made: by id or class, single or vector, wrapped or not."""
    found = ata_policies.load(name)
    assert name == "gta" or found is Uta
    single = gym.make(env_id, pool=POOL, budget=7, horizon=9)
    direct = type(single.unwrapped)(pool=POOL, budget=7)  # type: ignore[call-arg]
    vector = gym.make_vec(env_id, num_envs=2, pool=POOL, budget=7)
    for env in (single, direct, vector, gym.wrappers.RecordEpisodeStatistics(single)):
        if found.env_id == env_id:
            assert ata_policies.make(name, env).setting.n == 3
        else:
            with pytest.raises(ValueError, match=f"{found.__name__} plays {found.env_id}, and this env is {env_id}"):
                ata_policies.make(name, env)


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
def test_a_row_of_a_batch_is_the_row_alone(name, workers, changes, budget, price, seed) -> None:
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
        episode = list(play_on(policy, by_hand, by_hand.reset()[0], state))
        state = episode[-1].state
        np.testing.assert_allclose(expected, sum(step.reward for step in episode))
