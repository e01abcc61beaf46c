import json
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import ata_policies
from ata_gym.training import Trainer, TrainingWrapper
from tests.training.small_problem import small

IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0"]
POOL = {"family": "exponential", "scale": [1.0, 2.0, 4.0, 8.0]}
GOOD = np.array([3, 2, 1, 0])


def make(env_id=IDS[0], **kwargs):
    return gym.make(env_id, **({"pool": POOL, "budget": 6, "horizon": 5} | kwargs))


def play(env, rounds=5, seed=0):
    """What the reset and the steps of one allocation return."""
    return [env.reset(seed=seed), *(env.step(GOOD) for _ in range(rounds))]


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*:UserWarning")
def test_the_checker_of_gymnasium_finds_nothing():
    check_env(TrainingWrapper(make().unwrapped, small()))


@pytest.mark.parametrize("env_id", IDS)
def test_observations_rewards_and_flags_stay_as_they_are_and_every_episode_trains_anew(env_id):
    wrapped, plain = TrainingWrapper(make(env_id), small(), evaluate=2), make(env_id)
    losses, runtimes = [], []
    for seed in (3, None, 3):
        seen = play(wrapped, seed=seed)
        losses.append([info["loss"] for *_, info in seen[1:]])
        runtimes.append(seen[-1][-1]["runtime"])
        for ours, theirs in zip(seen, play(plain, seed=seed), strict=True):
            assert ours[0].keys() == theirs[0].keys()
            assert all(np.array_equal(ours[0][name], theirs[0][name]) for name in theirs[0])
            assert ours[1:-1] == theirs[1:-1]
            assert theirs[-1].items() <= ours[-1].items()
    assert losses[0] == losses[1] == losses[2]
    assert runtimes[0] == runtimes[2] != runtimes[1]
    assert wrapped.observation_space == plain.observation_space
    assert wrapped.action_space == plain.action_space


def test_the_trajectory_is_the_trainers_whatever_the_policy_and_the_task_times():
    trainer = Trainer(small(), 6, seed=4)
    expected = [trainer.step() for _ in range(5)]
    for name, seed in (("ata", 0), ("gta", 0), ("uta", 9)):
        env = TrainingWrapper(make(ata_policies.load(name).env_id), small(), seed=4)
        played = ata_policies.play(ata_policies.make(name, env), env, seed)
        assert [step.info["loss"] for step in played] == expected
        for ours, theirs in zip(env.model.parameters(), trainer.model.parameters(), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kwargs", [{"env_id": IDS[0]}, {"env_id": IDS[1]}, {"env_id": IDS[1], "observation": "flat"}])
def test_data_that_differ_by_worker_are_of_those_whose_results_counted(kwargs):
    env, plain, trainer = (
        TrainingWrapper(make(**kwargs), "heterogeneous"),
        make(kwargs["env_id"]),
        Trainer("heterogeneous", 6),
    )
    for ours, theirs in zip(play(env)[1:], play(plain)[1:], strict=True):
        assert ours[-1]["loss"] == trainer.step(np.bincount(theirs[0]["worker"], minlength=4))
    assert torch.equal(env.model.x, trainer.model.x)


def test_evaluation_at_chosen_rounds():
    def rounds(evaluate):
        infos = [step[-1] for step in play(TrainingWrapper(make(), small(), evaluate=evaluate))]
        assert all({"accuracy", "test_loss"} <= info.keys() or "accuracy" not in info for info in infos)
        return [k for k, info in enumerate(infos) if "accuracy" in info]

    assert rounds(None) == []
    assert rounds(2) == [0, 2, 4]
    assert rounds([5, 1]) == [1, 5]
    assert rounds({0}) == [0]


@pytest.mark.parametrize("evaluate", [0, -1, 1.5, True, [1.5], [-1], "all"])
def test_rounds_to_evaluate_are_whole_numbers(evaluate):
    with pytest.raises(ValueError, match="evaluate must be a whole number"):
        TrainingWrapper(make(), small(), evaluate=evaluate)


def test_the_spec_rebuilds_the_wrapped_env():
    env = TrainingWrapper(make(IDS[1]), "digits", optimizer="adam", lr=0.01, seed=2, evaluate=3)
    seen = play(env, rounds=3)
    for spec in (env.spec, EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        again = gym.make(spec)
        assert isinstance(again, TrainingWrapper)
        assert [step[-1] for step in play(again, rounds=3)] == [step[-1] for step in seen]
    (wrapper,) = json.loads(env.spec.to_json())["additional_wrappers"]
    assert wrapper["kwargs"]["problem"] == "digits"
    assert wrapper["kwargs"]["lr"] == 0.01


def test_only_single_envs_of_ours_are_wrapped():
    for env in (gym.make("CartPole-v1"), gym.make("ata_gym/TaskDispatch-v0")):
        with pytest.raises(TypeError, match="wraps a single env of ata_gym"):
            TrainingWrapper(env, small())
    with pytest.raises(TypeError, match="wraps a single env of ata_gym"):
        TrainingWrapper(gym.make_vec(IDS[0], num_envs=2, pool=POOL, budget=6), small())
