import json
import os
import pickle
from functools import partial
from itertools import islice

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import ata_policies
from ata_gym.models import checkpoint
from ata_gym.training import Tasks, Trainer, TrainingWrapper
from ata_gym.utils.files.sealed import write_sealed
from ata_policies.steps import play_on
from tests.training.small_problem import SAMPLES, Malicious, mean_loss, small, weights

IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0"]
POOL = {"family": "exponential", "scale": [1.0, 2.0, 4.0, 8.0]}
GOOD = np.array([3, 2, 1, 0])


def make(env_id=IDS[0], **kwargs):
    return gym.make(env_id, **({"pool": POOL, "budget": 6, "horizon": 5} | kwargs))


def play(env, rounds=5, seed=0):
    return [env.reset(seed=seed), *(env.step(GOOD) for _ in range(rounds))]


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*:UserWarning")
def test_the_checker_of_gymnasium_finds_nothing():
    check_env(TrainingWrapper(make().unwrapped, small()))


@pytest.mark.parametrize("env_id", IDS)
def test_observations_rewards_and_flags_stay_as_they_are_and_every_episode_trains_anew(env_id):
    wrapped = TrainingWrapper(make(env_id), small(), evaluate=2)
    plain = make(env_id)
    losses = []
    runtimes = []
    for seed in (3, None, 3):
        steps = play(wrapped, seed=seed)
        losses.append([info["loss"] for *_, info in steps[1:]])
        runtimes.append(steps[-1][-1]["runtime"])
        for actual, reference in zip(steps, play(plain, seed=seed), strict=True):
            assert actual[0].keys() == reference[0].keys()
            assert all(np.array_equal(actual[0][name], reference[0][name]) for name in reference[0])
            assert actual[1:-1] == reference[1:-1]
            assert reference[-1].items() <= actual[-1].items()
    assert losses[0] == losses[1] == losses[2]
    assert runtimes[0] == runtimes[2] != runtimes[1]
    assert (wrapped.observation_space, wrapped.action_space) == (
        plain.observation_space,
        plain.action_space,
    )


def test_the_trajectory_is_the_trainers_whatever_the_policy_and_the_task_times():
    trainer = Trainer(small(), 6, seed=4)
    expected = [trainer.step() for _ in range(5)]
    for name, seed in (("ata", 0), ("gta", 0), ("uta", 9)):
        env = TrainingWrapper(make(ata_policies.load(name).env_id), small(), seed=4)
        played = ata_policies.play(ata_policies.make(name, env), env, seed)
        assert [step.info["loss"] for step in played] == expected
        for actual, reference in zip(
            env.model.parameters(), trainer.model.parameters(), strict=True
        ):
            assert torch.equal(actual, reference)


@pytest.mark.parametrize(
    "kwargs",
    [{"env_id": IDS[0]}, {"env_id": IDS[1]}, {"env_id": IDS[1], "observation": "flat"}],
)
def test_data_that_differ_by_worker_are_of_those_whose_results_counted(kwargs):
    env = TrainingWrapper(make(**kwargs), "heterogeneous")
    plain = make(kwargs["env_id"])
    trainer = Trainer("heterogeneous", 6)
    for actual, reference in zip(play(env)[1:], play(plain)[1:], strict=True):
        assert actual[-1]["loss"] == trainer.step(np.bincount(reference[0]["worker"], minlength=4))
    assert torch.equal(env.model.x, trainer.model.x)


def test_evaluation_at_chosen_rounds():
    def rounds(evaluate):
        infos = [step[-1] for step in play(TrainingWrapper(make(), small(), evaluate=evaluate))]
        assert all(
            {"accuracy", "test_loss"} <= info.keys() or "accuracy" not in info for info in infos
        )
        return [k for k, info in enumerate(infos) if "accuracy" in info]

    assert (rounds(None), rounds(2)) == ([], [0, 2, 4])
    assert (rounds([5, 1]), rounds({0})) == ([1, 5], [0])


@pytest.mark.parametrize("evaluate", [0, -1, 1.5, True, [1.5], [-1], "all"])
def test_rounds_to_evaluate_are_whole_numbers(evaluate):
    with pytest.raises(ValueError, match="evaluate must be a whole number"):
        TrainingWrapper(make(), small(), evaluate=evaluate)


def test_the_spec_rebuilds_the_wrapped_env():
    env = TrainingWrapper(make(IDS[1]), "digits", optimizer="adam", lr=0.01, seed=2, evaluate=3)
    steps = play(env, rounds=3)
    for spec in (
        env.spec,
        EnvSpec.from_json(env.spec.to_json()),
        pickle.loads(pickle.dumps(env.spec)),
    ):
        again = gym.make(spec)
        assert isinstance(again, TrainingWrapper)
        assert [step[-1] for step in play(again, rounds=3)] == [step[-1] for step in steps]
    (wrapper,) = json.loads(env.spec.to_json())["additional_wrappers"]
    assert (wrapper["kwargs"]["problem"], wrapper["kwargs"]["lr"]) == ("digits", 0.01)


def test_only_single_envs_of_ours_are_wrapped():
    for env in (gym.make("CartPole-v1"), gym.make("ata_gym/TaskDispatch-v0")):
        with pytest.raises(TypeError, match="wraps a single env of ata_gym"):
            TrainingWrapper(env, small())
    with pytest.raises(TypeError, match="wraps a single env of ata_gym"):
        TrainingWrapper(gym.make_vec(IDS[0], num_envs=2, pool=POOL, budget=6), small())


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
        (
            small(network),
            {
                "optimizer": optim.RMSprop,
                "schedule": partial(optim.lr_scheduler.StepLR, step_size=2),
            },
            3,
        ),
        (shuffled(), {"optimizer": "adam", "ema": 0.75, "seed": 2}, 7),
    ],
)
def test_training_goes_on_bit_for_bit_whatever_was_drawn_elsewhere(
    tmp_path,
    problem,
    options,
    rounds,
):
    (trainer, later), state = (
        (Trainer(problem, 6, **options) for _ in range(2)),
        torch.get_rng_state(),
    )
    for _ in range(rounds):
        trainer.step()
    assert torch.equal(torch.get_rng_state(), state)
    checkpoint.save(tmp_path / "run.pt", trainer.checkpoint())
    torch.manual_seed(2)
    later.step()  # it is where the checkpoint was, whatever it did before
    later.restore(checkpoint.load(tmp_path / "run.pt"))
    assert (later.round, [later.step() for _ in range(5)]) == (
        rounds,
        [trainer.step() for _ in range(5)],
    )
    for actual, reference in zip(
        later.model.state_dict().values(),
        trainer.model.state_dict().values(),
        strict=True,
    ):
        assert torch.equal(actual, reference)
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


def training(env_id=IDS[0], **options):
    return TrainingWrapper(
        make(env_id, horizon=8),
        small(network),
        optimizer="adam",
        evaluate=3,
        **options,
    )


@pytest.mark.parametrize("name", ["ata", "gta"])
def test_env_policy_and_training_go_on_bit_for_bit(tmp_path, name):
    env_id = ata_policies.load(name).env_id
    env = training(env_id)
    policy = ata_policies.make(name, env, seed=5)
    played = ata_policies.play(policy, env, seed=3)
    *_, last = islice(played, 4)
    env.save(tmp_path / "run.pt", last.state)
    later = training(env_id)
    again = ata_policies.make(name, later, seed=5)
    observation, state = later.load(
        str(tmp_path / "run.pt"), like=again.predict(last.next_observation)[1]
    )
    assert all(
        np.array_equal(observation[part], last.next_observation[part]) for part in observation
    )
    assert type(state) is type(last.state)
    actual, reference = (
        [step[4:] for step in steps]
        for steps in (play_on(again, later, observation, state), played)
    )
    assert actual == reference
    assert len(actual) == 4  # to the horizon
    assert torch.equal(weights(later.trainer), weights(env.trainer))
    assert all(
        np.array_equal(a, b)
        for a, b in zip(later.reset()[0].values(), env.reset()[0].values(), strict=True)
    )


def test_the_file_appears_whole_or_not_at_all_and_what_does_not_fit_is_refused(
    tmp_path,
    monkeypatch,
):
    env = training()
    path = tmp_path / "run.pt"
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
        training(lr=0.5).load(path, like=state)
    with pytest.raises(FileNotFoundError):
        env.load(tmp_path / "none.pt")
    env.step(np.array([6, 0, 0, 0]))
    monkeypatch.setattr(os, "fsync", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        env.save(path)
    assert (path.read_bytes(), sorted(part.name for part in tmp_path.iterdir())) == (
        before,
        ["other.pt", "run.pt"],
    )


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_no_code_in_a_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"trainer": Malicious(os.mkdir, "ran")}, "evil.pt")
    whole = (tmp_path / "evil.pt").read_bytes()
    env = training()
    env.reset(seed=0)
    for content in (whole, whole[:100], b"", pickle.dumps(Malicious(os.mkdir, "ran"))):
        (tmp_path / "evil.pt").write_bytes(content)
        for sealed in (False, True):
            if sealed:
                write_sealed(tmp_path / "evil.pt", content)
            with pytest.raises(ValueError, match=r"evil.pt cannot be read as a checkpoint"):
                env.load("evil.pt")
    assert not (tmp_path / "ran").exists()
    checkpoint.save(tmp_path / "weights.pt", env.model.state_dict())
    with pytest.raises(
        ValueError,
        match=r"weights.pt is no checkpoint of this kind: it must hold trainer, env",
    ):
        env.load("weights.pt")


def test_only_plain_values_are_saved(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"tensors and plain values, but schedule\.made is \{1, 2\}",
    ):
        checkpoint.save(tmp_path / "run.pt", {"schedule": {"made": {1, 2}}})
    assert not list(tmp_path.iterdir())
