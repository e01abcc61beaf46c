import copy

import numpy as np
import pytest
import torch
from torch import nn

from ata_gym.training import Classification, Trainer, make_problem, problem_names
from ata_gym.training.devices.device import find_device, seeded
from tests.training.small_problem import SAMPLES, weights

BUDGET = 23


def small(build=None, **kwargs):
    return Classification(build or (lambda: nn.Linear(2, 3)), SAMPLES, SAMPLES, **kwargs)


def run(rounds=5, problem=None, **kwargs):
    trainer = Trainer(problem or small(), BUDGET, **kwargs)
    return [trainer.step() for _ in range(rounds)], weights(trainer)


def test_digits_are_learned():
    trainer = Trainer("digits", BUDGET)
    losses = [trainer.step() for _ in range(400)]
    assert np.mean(losses[-50:]) < 0.25 * np.mean(losses[:50])
    assert trainer.evaluate()["accuracy"] > 0.9


def test_the_first_loss_is_near_that_of_guessing():
    assert Trainer("digits", BUDGET).step() == pytest.approx(np.log(10), rel=0.1)


class Remembering:
    """A problem that keeps its batches, and the model's weights at that time."""

    def __init__(self, problem):
        self.problem, self.batches = problem, []
        self.name, self.learning_rates = problem.name, problem.learning_rates
        self.build, self.evaluate, self.loss = problem.build, problem.evaluate, problem.loss

    def to(self, _device):
        return self

    def draw(self, keys):
        self.batches.append(self.problem.draw(keys))
        return self.batches[-1]


def shipped(name, folder):
    if name != "cifar100":
        return make_problem(name)
    rng, path = np.random.default_rng(0), folder / "images.npz"
    images = {f"{which}_x": rng.integers(0, 256, (9, 32, 32, 3), np.uint8) for which in ("train", "test")}
    np.savez(path, allow_pickle=False, **images, train_y=np.arange(9), test_y=np.arange(9))
    return make_problem(name, path)


def task(batch, b):
    return batch[b : b + 1] if isinstance(batch, torch.Tensor) else type(batch)(*(part[b : b + 1] for part in batch))


@pytest.mark.parametrize("micro_batch", [1, 3])
@pytest.mark.parametrize("name", [*problem_names(), "small"])
def test_one_backward_pass_gives_the_mean_of_b_separate_gradients(name, micro_batch, tmp_path):
    problem = small() if name == "small" else shipped(name, tmp_path)
    seen = Remembering(problem)
    trainer = Trainer(seen, BUDGET, optimizer="sgd", lr=0.125, micro_batch=micro_batch)
    for _ in range(2):
        before = weights(trainer).double()
        apart = torch.zeros_like(before)
        twin = copy.deepcopy(trainer.model)
        trainer.step()
        for b in range(BUDGET):
            twin.zero_grad()
            samples = [problem.loss(twin, task(seen.batches[-1], b * micro_batch + s)) for s in range(micro_batch)]
            (torch.stack(samples).sum() / micro_batch).backward()
            apart += torch.cat([p.grad.flatten() for p in twin.parameters()]).double() / BUDGET
        together = torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).double()
        torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(weights(trainer).double(), before - 0.125 * apart, rtol=1e-4, atol=1e-6)


def test_each_round_and_task_has_its_own_draw():
    seen = Remembering(small())
    trainer = Trainer(seen, 500, seed=3)
    for _ in range(2):
        trainer.step()
    *_, first, second = (batch.inputs[:, 0] for batch in seen.batches)
    assert len(first.unique()) == 20
    assert not torch.equal(first, second)
    trainer.reset()
    trainer.step()
    assert torch.equal(seen.batches[-1].inputs[:, 0], first)


def test_one_seed_is_one_trajectory_to_the_bit():
    losses, end = run(seed=5)
    torch.manual_seed(99)
    again, end_again = run(seed=5)
    assert losses == again
    assert torch.equal(end, end_again)
    others, _ = run(seed=6)
    assert losses != others


def test_reset_starts_the_same_trajectory():
    trainer = Trainer(small(), BUDGET, optimizer="adam")
    first = [trainer.step() for _ in range(4)]
    trained = trainer.model
    end = weights(trainer)
    trainer.reset()
    assert trainer.round == 0
    assert [trainer.step() for _ in range(4)] == first
    assert torch.equal(weights(trainer), end)
    assert trainer.model is not trained


def test_optimisers_by_name_and_as_factories():
    plain = run(optimizer="sgd", lr=0.1)[1]
    assert torch.equal(plain, run(optimizer=torch.optim.SGD, lr=0.1)[1])
    assert torch.equal(plain, run(optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1))[1])
    assert torch.equal(plain, run(lr=0.1)[1])  # the default
    assert torch.equal(run(optimizer="adam", lr=1e-3)[1], run(optimizer=torch.optim.Adam)[1])
    ends = [plain, run(optimizer="adam")[1], run(optimizer=torch.optim.AdamW, lr=0.01)[1], run(lr=0.2)[1]]
    assert not any(torch.equal(a, b) for i, a in enumerate(ends) for b in ends[:i])


def test_frozen_weights_stay():
    model = nn.Sequential(nn.Linear(2, 4).requires_grad_(False), nn.Linear(4, 3))
    trainer = Trainer(small(), BUDGET, model=model)
    trainer.step()
    same = [torch.equal(a, b) for a, b in zip(model.parameters(), trainer.model.parameters(), strict=True)]
    assert same == [True, True, False, False]


def test_a_model_of_ones_own():
    model = nn.Linear(2, 3)
    before = model.weight.clone()
    trainer = Trainer(small(), BUDGET, model=model)
    assert torch.equal(trainer.model.weight, before)
    trainer.step()
    assert torch.equal(model.weight, before)  # a copy is trained
    assert not torch.equal(trainer.model.weight, before)
    wide = Trainer(small(), BUDGET, model=lambda: nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 3)))
    assert wide.step() > 0


def test_torchs_global_generator_is_left_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    run(problem=small(lambda: nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 3))))
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ZeroDivisionError), seeded(3, torch.device("cpu")):
        _ = torch.rand(1) / (1 // 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_is_keyed_by_the_seed_and_the_round():
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 3))

    def play(seed):
        trainer, masks = Trainer(small(), BUDGET, model=model, seed=seed), []
        trainer.model[1].register_forward_hook(lambda _part, _inputs, outputs: masks.append(outputs == 0))
        return [trainer.step() for _ in range(2)], masks

    losses, masks = play(4)
    torch.manual_seed(1234)
    assert play(4)[0] == losses
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], play(5)[1][0])


def test_evaluation_leaves_each_part_in_its_mode():
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))
    model[2].eval()
    trainer = Trainer(small(), BUDGET, model=model)
    trainer.step()
    figures = trainer.evaluate()
    assert trainer.evaluate() == figures  # nothing is dropped in evaluation
    assert [part.training for part in trainer.model] == [True, True, False, True]
    assert trainer.model.training


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False).eval(), nn.SyncBatchNorm(3)]
)
def test_batch_norm_is_refused(layer):
    with pytest.raises(ValueError, match=r"mixes the samples of a batch.*GroupNorm"):
        Trainer(small(), BUDGET, model=nn.Sequential(nn.Linear(2, 3), layer))


class Failing(nn.Module):
    """Its output is NaN once its weight has been trained a few times."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        return self.linear(inputs) * (float("nan") if self.calls == 3 else 1.0)


def test_a_loss_that_is_not_finite_stops_the_round():
    trainer = Trainer(small(Failing), BUDGET)
    losses = [trainer.step() for _ in range(2)]
    before = weights(trainer)
    with pytest.raises(FloatingPointError, match=r"loss is nan in round 3: lower lr=.*reset\(\)"):
        trainer.step()
    assert torch.equal(weights(trainer), before)
    assert trainer.round == 2
    trainer.reset()
    assert [trainer.step() for _ in range(2)] == losses


def test_a_learning_rate_far_too_high():
    trainer = Trainer("digits", BUDGET, lr=1e30)
    with pytest.raises(FloatingPointError, match="training loss is"):
        [trainer.step() for _ in range(5)]


@pytest.mark.parametrize(
    ("kwargs", "error", "sentence"),
    [
        ({"budget": 0}, ValueError, "budget must be a whole number"),
        ({"seed": -1}, ValueError, "seed must be a whole number"),
        ({"seed": 1.5}, ValueError, "seed must be a whole number"),
        ({"optimizer": "adamm"}, ValueError, "optimizer must be 'sgd', 'momentum', 'adam', 'adamw'"),
        ({"lr": 0}, ValueError, "lr must be a finite number above 0"),
        ({"lr": float("nan")}, ValueError, "lr must be a finite number above 0"),
        ({"lr": True}, ValueError, "lr must be a finite number above 0"),
        ({"device": "tpu"}, ValueError, 'device must be "cpu", "cuda"'),
        ({"device": "meta"}, ValueError, 'device must be "cpu", "cuda"'),
        ({"device": 1.5}, ValueError, 'device must be "cpu", "cuda"'),
        ({"device": "cuda:99"}, ValueError, r'"cuda:99" was asked for, but torch .* sees \d CUDA devices'),
        ({"problem": "digit"}, ValueError, "did you mean digits"),
        ({"problem": nn.Linear(1, 1)}, TypeError, "must be a name or have the parts"),
        ({"model": lambda: None}, TypeError, "must be a torch module, or a function that returns one"),
    ],
)
def test_bad_arguments(kwargs, error, sentence):
    with pytest.raises(error, match=sentence):
        Trainer(**({"problem": small(), "budget": BUDGET} | kwargs))


def test_a_problem_without_a_learning_rate_for_the_optimiser():
    with pytest.raises(ValueError, match=r"classification has no learning rate for 'adam': give lr="):
        Trainer(small(learning_rates={"sgd": 0.1}), BUDGET, optimizer="adam")
    assert Trainer(small(learning_rates={"sgd": 0.1}), BUDGET, optimizer="adam", lr=0.1).step() > 0


class Averaging(Classification):
    def loss(self, model, batch):
        return super().loss(model, batch).mean()


def test_a_loss_that_is_not_one_per_task():
    trainer = Trainer(Averaging(lambda: nn.Linear(2, 3), SAMPLES, SAMPLES), BUDGET)
    with pytest.raises(ValueError, match=r'one number per sample, shape \(23,\), not \(\).*reduction="none"'):
        trainer.step()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_is_refused_where_there_is_none():
    with pytest.raises(ValueError, match=r'"cuda" was asked for, but torch .* sees 0 CUDA devices: use device="cpu"'):
        find_device("cuda")


def test_a_setting_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'optimiser'"):
        Trainer("quadratic", 1, optimiser="sgd")
    with pytest.raises(ValueError, match="compile must be True or False, not 1"):
        Trainer("quadratic", 1, compile=1)
