import os
import pickle
from functools import partial
from itertools import islice

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import ata_policies
from ata_gym.training import Tasks, Trainer, TrainingWrapper
from ata_gym.training.models import checkpoint
from ata_gym.utils.sealed import write_sealed
from ata_policies.steps import play_on
from tests.training.small_problem import SAMPLES, mean_loss, small, weights

POOL = {"family": "exponential", "scale": [1.0, 2.0, 4.0, 8.0]}


def network():
    return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.2), nn.Linear(8, 3))


def shuffled():
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
    loader = DataLoader(TensorDataset(*SAMPLES), 5, shuffle=True)
    return Tasks(model, mean_loss, loader, evaluate=lambda model: {"bias": float(model[3].bias[0])})


@pytest.mark.parametrize(
    ("problem", "options", "rounds"),
    [
        (small(network), {}, 0),
        (small(network), {}, 3),
        (small(network), {"optimizer": "momentum", "schedule": "cosine:7"}, 3),
        (small(network), {"optimizer": "adamw", "precision": "float16", "micro_batch": 2}, 3),
        (small(network), {"optimizer": optim.RMSprop, "schedule": partial(optim.lr_scheduler.StepLR, step_size=2)}, 3),
        (shuffled(), {"optimizer": "adam", "ema": 0.75, "seed": 2}, 7),
    ],
)
def test_training_goes_on_bit_for_bit_whatever_was_drawn_elsewhere(tmp_path, problem, options, rounds):
    trainer, later = (Trainer(problem, 6, **options) for _ in range(2))
    state = torch.get_rng_state()
    for _ in range(rounds):
        trainer.step()
    assert torch.equal(torch.get_rng_state(), state)
    checkpoint.save(tmp_path / "run.pt", trainer.checkpoint())
    torch.manual_seed(2)
    later.step()  # it is where the checkpoint was, whatever it did before
    later.restore(checkpoint.load(tmp_path / "run.pt"))
    assert later.round == rounds
    assert [later.step() for _ in range(5)] == [trainer.step() for _ in range(5)]
    for ours, theirs in zip(later.model.state_dict().values(), trainer.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert later.evaluate() == trainer.evaluate()


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


@pytest.mark.parametrize("name", ["ata", "gta"])
def test_env_policy_and_training_go_on_bit_for_bit(tmp_path, name):
    env_id = ata_policies.load(name).env_id
    env = make(env_id)
    policy = ata_policies.make(name, env, seed=5)
    played = ata_policies.play(policy, env, seed=3)
    *_, last = islice(played, 4)
    env.save(tmp_path / "run.pt", last.state)
    later = make(env_id)
    again = ata_policies.make(name, later, seed=5)
    seen, state = later.load(str(tmp_path / "run.pt"), like=again.predict(last.observation)[1])
    assert all(np.array_equal(seen[part], last.observation[part]) for part in seen)
    assert type(state) is type(last.state)
    ours, theirs = ([step[4:] for step in steps] for steps in (play_on(again, later, seen, state), played))
    assert ours == theirs
    assert len(ours) == 4  # to the horizon
    assert torch.equal(weights(later.trainer), weights(env.trainer))
    assert all(np.array_equal(a, b) for a, b in zip(later.reset()[0].values(), env.reset()[0].values(), strict=True))


def test_the_file_appears_whole_or_not_at_all_and_what_does_not_fit_is_refused(tmp_path, monkeypatch):
    env, path = make(), tmp_path / "run.pt"
    with pytest.raises(ValueError, match=r"nothing to save: call reset\(\) first"):
        env.save(path)
    state = ata_policies.make("ata", env).predict(env.reset(seed=0)[0])[1]
    env.save(path, state)
    before = path.read_bytes()
    env.save(tmp_path / "other.pt", state)
    assert (tmp_path / "other.pt").read_bytes() == before
    with pytest.raises(ValueError, match="of another policy: its state has the parts"):
        env.load(path)
    with pytest.raises(ValueError, match="another configuration: lr"):
        make(lr=0.5).load(path, like=state)
    with pytest.raises(FileNotFoundError):
        env.load(tmp_path / "none.pt")
    env.step(np.array([6, 0, 0, 0]))
    monkeypatch.setattr(os, "fsync", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        env.save(path)
    assert path.read_bytes() == before
    assert sorted(part.name for part in tmp_path.iterdir()) == ["other.pt", "run.pt"]


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
    with pytest.raises(ValueError, match=r"tensors and plain values, but schedule\.made is \{1, 2\}"):
        checkpoint.save(tmp_path / "run.pt", {"schedule": {"made": {1, 2}}})
    assert not list(tmp_path.iterdir())
