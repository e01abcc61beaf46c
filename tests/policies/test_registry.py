"""Policies by name: what is registered, what is refused, and who plays which env."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

import ata_policies
from ata_gym.pools import shifted_exponential
from ata_policies import Setting, default_name
from ata_policies.allocation.baselines import Uta
from ata_policies.registry import DEFAULTS, env_ids

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
    for given, said in zip(wrong, (text, f"None {other}", f"3 {other}", "not an env of ata_gym"), strict=True):
        for asked in (lambda given=given: ata_policies.make("ata", given), lambda given=given: Setting.of(given)):
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
