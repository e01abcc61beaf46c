import os
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn, optim

import ata_policies
from ata_gym.training import Trainer, TrainingWrapper
from ata_gym.training.models import checkpoint
from ata_gym.utils.sealed import write_sealed
from tests.training.small_problem import small, weights

POOL = {"family": "exponential", "scale": [1.0, 2.0, 4.0, 8.0]}
OPTIONS = [
    {},
    {"optimizer": "momentum", "schedule": "cosine:7"},
    {"optimizer": "adamw", "precision": "float16", "micro_batch": 2},
    {"optimizer": optim.RMSprop, "schedule": lambda optimizer: optim.lr_scheduler.StepLR(optimizer, 2)},
]


def network():
    return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.2), nn.Linear(8, 3))


@pytest.mark.parametrize(("options", "rounds"), [*((options, 3) for options in OPTIONS), ({}, 0)])
def test_training_goes_on_bit_for_bit(tmp_path, options, rounds):
    trainer, later = (Trainer(small(network), 6, **options) for _ in range(2))
    for _ in range(rounds):
        trainer.step()
    checkpoint.save(tmp_path / "run.pt", trainer.checkpoint())
    later.step()  # it is where the checkpoint was, whatever it did before
    later.restore(checkpoint.load(tmp_path / "run.pt"))
    assert later.round == rounds
    assert [later.step() for _ in range(5)] == [trainer.step() for _ in range(5)]
    assert torch.equal(weights(later), weights(trainer))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lr": 0.3}, "another configuration: lr is 0.1 there"),
        ({"seed": 3, "micro_batch": 2}, "micro_batch is 1 there, seed is 0 there"),
        ({"schedule": "linear:3"}, "schedule is 'constant' there"),
        ({"model": nn.Linear(2, 3)}, "another model"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Trainer(small(network), 6, **options).restore(Trainer(small(network), 6).checkpoint())


def make(env_id="ata_gym/TaskAllocation-v0", horizon=8, **options):
    env = gym.make(env_id, pool=POOL, budget=6, horizon=horizon)
    return TrainingWrapper(env, small(network), optimizer="adam", evaluate=3, **options)


def play(env, policy, observation, state, rounds):
    seen = []
    for _ in range(rounds):
        action, state = policy.predict(observation, state)
        observation, *rest = env.step(action)
        seen.append(rest)
    return seen, observation, state


@pytest.mark.parametrize("name", ["ata", "gta"])
def test_env_policy_and_training_go_on_bit_for_bit(tmp_path, name):
    env_id = ata_policies.load(name).env_id
    env = make(env_id)
    policy = ata_policies.make(name, env, seed=5)
    _, observation, state = play(env, policy, env.reset(seed=3)[0], None, 4)
    env.save(tmp_path / "run.pt", state)
    later = make(env_id)
    again = ata_policies.make(name, later, seed=5)
    form = again.predict(observation)[1]
    seen, state_there = later.load(str(tmp_path / "run.pt"), like=form)
    assert all(np.array_equal(seen[part], observation[part]) for part in observation)
    assert type(state_there) is type(state)
    ended = play(later, again, seen, state_there, 4)
    assert ended[0] == play(env, policy, observation, state, 4)[0]
    assert ended[0][-1][2]  # truncated at the horizon
    assert torch.equal(weights(later.trainer), weights(env.trainer))
    assert all(np.array_equal(a, b) for a, b in zip(later.reset()[0].values(), env.reset()[0].values(), strict=True))


def test_the_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    env = make()
    with pytest.raises(ValueError, match=r"nothing to save: call reset\(\) first"):
        env.save(tmp_path / "run.pt")
    env.reset(seed=0)
    env.save(tmp_path / "run.pt")
    before = (tmp_path / "run.pt").read_bytes()
    env.save(tmp_path / "other.pt")
    assert (tmp_path / "other.pt").read_bytes() == before
    env.step(np.array([6, 0, 0, 0]))
    monkeypatch.setattr(os, "fsync", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        env.save(tmp_path / "run.pt")
    assert (tmp_path / "run.pt").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.pt", "run.pt"]


def test_what_does_not_fit_is_refused(tmp_path):
    env = make()
    observation, _ = env.reset(seed=0)
    policy = ata_policies.make("ata", env)
    state = policy.predict(observation)[1]
    env.save(tmp_path / "run.pt", state)
    with pytest.raises(ValueError, match="of another policy: its state has the parts"):
        env.load(tmp_path / "run.pt")
    with pytest.raises(ValueError, match="another configuration: lr"):
        make(lr=0.5).load(tmp_path / "run.pt", like=state)
    with pytest.raises(FileNotFoundError):
        env.load(tmp_path / "none.pt")


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_no_code_in_a_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"trainer": Malicious()}, "evil.pt")
    whole = (tmp_path / "evil.pt").read_bytes()
    env = make()
    env.reset(seed=0)
    for content in (whole, whole[:100], b"", pickle.dumps(Malicious())):
        (tmp_path / "evil.pt").write_bytes(content)
        for sealed in (False, True):
            if sealed:
                write_sealed(tmp_path / "evil.pt", content)
            with pytest.raises(ValueError, match=r"evil.pt cannot be read as a checkpoint"):
                env.load("evil.pt")
    assert not (tmp_path / "ran").exists()
    checkpoint.save(tmp_path / "weights.pt", env.model.state_dict())
    with pytest.raises(ValueError, match=r"weights.pt is no checkpoint of this kind: it must hold trainer, env"):
        env.load("weights.pt")


def test_only_plain_values_are_saved(tmp_path):
    def schedule(optimizer):
        return optim.lr_scheduler.LambdaLR(optimizer, Rate())

    trainer = Trainer(small(network), 6, schedule=schedule)
    with pytest.raises(ValueError, match=r"tensors and plain values, but schedule\.lr_lambdas\.0\.made is"):
        checkpoint.save(tmp_path / "run.pt", trainer.checkpoint())
    assert not list(tmp_path.iterdir())


class Rate:
    def __init__(self):
        self.made = {1, 2}

    def __call__(self, _done):
        return 1.0
