"""The steps of a trainer: their gradients, their keys, what stops them, and models that it meets
rarely.
"""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout

from ata_gym.models.model import copy_weights
from ata_gym.models.seeds import seeded
from ata_gym.training import Classification, Trainer, make_problem, problem_names
from ata_gym.training.problems.classification import from_torch
from tests.training.small_problem import SAMPLES, small, weights

BUDGET = 6


def test_digits_are_learned_from_the_loss_of_guessing():
    trainer = Trainer("digits", 23, optimizer="adam")
    losses = [trainer.step() for _ in range(60)]
    assert losses[0] == pytest.approx(np.log(10), rel=0.1)
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    assert trainer.evaluate()["accuracy"] > 0.7


def remembered(problem):
    batches = []
    draw = problem.draw
    problem.draw = lambda keys: batches.append(draw(keys)) or batches[-1]
    return batches


def shipped(name, folder):
    if name != "cifar100":
        return make_problem(name)
    rng = np.random.default_rng(0)
    labels = np.arange(9)
    images = rng.integers(0, 256, (9, 32, 32, 3), np.uint8)
    np.savez(
        folder / "images.npz",
        allow_pickle=False,
        train_x=images,
        test_x=images,
        train_y=labels,
        test_y=labels,
    )
    return make_problem(name, folder / "images.npz")


def task(batch, b):
    if isinstance(batch, torch.Tensor):
        return batch[b : b + 1]
    return type(batch)(*(part[b : b + 1] for part in batch))


@pytest.mark.parametrize(
    ("name", "micro_batch"),
    [*((name, 1) for name in problem_names()), ("digits", 3)],
)
def test_one_backward_pass_gives_the_mean_of_b_separate_gradients(name, micro_batch, tmp_path):
    problem = shipped(name, tmp_path)
    trainer = Trainer(problem, BUDGET, optimizer="sgd", lr=0.125, micro_batch=micro_batch)
    batches = remembered(trainer.problem)
    for _ in range(2):
        before = weights(trainer).double()
        apart = torch.zeros_like(before)
        twin = copy.deepcopy(trainer.model)
        trainer.step()
        for b in range(BUDGET):
            twin.zero_grad()
            samples = [
                problem.loss(twin, task(batches[-1], b * micro_batch + s))
                for s in range(micro_batch)
            ]
            (torch.stack(samples).sum() / micro_batch).backward()
            apart += torch.cat([p.grad.flatten() for p in twin.parameters()]).double() / BUDGET
        together = torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).double()
        torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(
            weights(trainer).double(),
            before - 0.125 * apart,
            rtol=1e-4,
            atol=1e-6,
        )


def test_each_round_and_each_sample_of_a_task_has_its_own_draw():
    trainer = Trainer(small(), 250, micro_batch=2, seed=3)
    batches = remembered(trainer.problem)
    for _ in range(2):
        trainer.step()
    trainer.reset()
    trainer.step()
    first, second, again = (batch.inputs[:, 0] for batch in batches)
    assert (len(first), len(first.unique())) == (500, 20)
    assert not torch.equal(first, second)
    assert torch.equal(again, first)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_seed_is_one_trajectory_to_the_bit_with_its_dropout(optimizer):
    masks = []

    class Noted(nn.Dropout):
        def forward(self, inputs):
            outputs = super().forward(inputs)
            masks.append((outputs == 0).numpy().tobytes())
            return outputs

    def make(seed):
        model = nn.Sequential(nn.Linear(2, 8), Noted(0.5), nn.Linear(8, 3))
        return Trainer(
            small(),
            BUDGET,
            model=lambda: copy.deepcopy(model),
            seed=seed,
            optimizer=optimizer,
        )

    def play(trainer):
        masks.clear()
        return [trainer.step() for _ in range(4)], weights(trainer).tolist(), list(masks)

    torch.manual_seed(1)
    trainer = make(5)
    first = play(trainer)
    trained = trainer.model
    trainer.reset()
    assert trainer.round == 0
    assert trainer.model is not trained
    state = torch.get_rng_state()
    assert play(trainer) == first
    with pytest.raises(ZeroDivisionError), seeded(3, torch.device("cpu")):
        _ = torch.rand(1) / (1 // 0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    other = play(make(6))
    assert other[0] != first[0]
    assert len({*first[2], *other[2]}) == 8


def test_a_model_of_ones_own():
    model = nn.Sequential(nn.Linear(2, 4).requires_grad_(False), nn.Linear(4, 3))
    before = copy.deepcopy(model.state_dict())
    trainer = Trainer(small(), BUDGET, model=model)
    trainer.step()
    # a copy is trained
    assert all(torch.equal(before[name], part) for name, part in model.state_dict().items())
    same = [
        torch.equal(a, b)
        for a, b in zip(model.parameters(), trainer.model.parameters(), strict=True)
    ]
    assert same == [True, True, False, False]  # frozen weights stay
    larger = Trainer(
        small(),
        BUDGET,
        model=lambda: nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 3)),
    )
    assert larger.step() > 0


def test_evaluation_leaves_each_part_in_its_mode():
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))
    model[2].eval()
    trainer = Trainer(small(), BUDGET, model=model)
    trainer.step()
    figures = trainer.evaluate()
    assert trainer.evaluate() == figures  # nothing is dropped in evaluation
    assert [part.training for part in trainer.model] == [True, True, False, True]
    assert trainer.model.training


def test_a_loss_that_is_not_finite_stops_the_round():
    trainer = Trainer(make_problem("quadratic"), BUDGET, lr=1e100)
    losses = [trainer.step() for _ in range(2)]
    before = weights(trainer)
    with pytest.raises(
        FloatingPointError,
        match=r"loss is (inf|nan) in round 3: lower lr=.*reset\(\)",
    ):
        trainer.step()
    assert torch.equal(weights(trainer), before)
    assert trainer.round == 2
    trainer.reset()
    assert [trainer.step() for _ in range(2)] == losses


class Averaging(Classification):
    def loss(self, model, batch):
        return super().loss(model, batch).mean()


class Huge(Classification):
    def loss(self, model, batch):
        return super().loss(model, batch) + torch.empty(10**16).sum()


def test_a_round_that_has_no_loss_for_each_task_or_does_not_fit_into_memory():
    with pytest.raises(
        ValueError,
        match=r'one number per sample, shape \(6,\), not \(\).*reduction="none"',
    ):
        Trainer(small(kind=Averaging), BUDGET).step()
    trainer = Trainer(small(kind=Huge), BUDGET)
    with pytest.raises(
        MemoryError,
        match="round 1 does not fit into the memory of cpu: DefaultCPUAllocator",
    ):
        trainer.step()
    assert trainer.round == 0
    with pytest.raises(MemoryError, match="the model with its data does not fit"):
        Trainer(small(), BUDGET, model=lambda: nn.Linear(10**8, 10**8))


class PairedLoss(Classification):
    def loss(self, model, batch):
        outputs = model(batch.inputs)
        return cross_entropy(0.7 * outputs + 0.3 * outputs.flip(0), batch.labels, reduction="none")


class Ranking(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.T, 1) @ x


class Wild(nn.Module):
    def forward(self, x):
        return dropout(x, 0.5, self.training) + torch.randn_like(x)


@pytest.mark.parametrize(
    ("mixing", "noise"),
    [
        (Ranking(), nn.Identity()),
        (Ranking(), nn.AlphaDropout(0.5)),
        (nn.BatchNorm1d(8), nn.Dropout(0.5)),
        (nn.BatchNorm1d(8, track_running_stats=False).eval(), nn.Identity()),
    ],
)
def test_samples_that_depend_on_each_other_are_found_by_trying(mixing, noise):
    layers = [nn.Linear(2, 8), mixing, noise, nn.Linear(8, 3)]
    nn.init.zeros_(layers[-1].weight)  # hides the layers below at the start
    with pytest.raises(
        ValueError,
        match=r"mixes the samples of a batch.*GroupNorm.*ata_gym\.training\.Tasks",
    ):
        Trainer(small(lambda: nn.Sequential(*layers)), BUDGET)
    with pytest.raises(
        ValueError,
        match="the model or the loss of classification mixes the samples",
    ):
        Trainer(small(kind=PairedLoss), BUDGET)


@pytest.mark.parametrize(
    "layer",
    [nn.GroupNorm(2, 8), nn.Dropout(0.9), Wild(), nn.RReLU(), nn.Softmax(1)],
)
def test_samples_that_do_not_are_trained(layer):
    trainer = Trainer(small(lambda: nn.Sequential(nn.Linear(2, 8), layer, nn.Linear(8, 3))), BUDGET)
    assert np.isfinite([trainer.step() for _ in range(3)]).all()


def test_a_float64_model():
    doubles = SAMPLES[0].double(), SAMPLES[1]
    problem = from_torch(lambda: (nn.Linear(2, 3).double(), doubles))
    trainer = Trainer(problem, BUDGET)
    single = Trainer(from_torch(lambda: (nn.Linear(2, 3), SAMPLES)), BUDGET)
    single.model.load_state_dict(trainer.model.state_dict())
    for _ in range(5):
        assert trainer.step() == pytest.approx(single.step(), rel=1e-5)
    assert trainer.model.weight.dtype == torch.float64
    with pytest.raises(
        ValueError,
        match="does not take its data: mat1 and mat2 must have the same dtype",
    ):
        Trainer(small(), BUDGET, model=nn.Linear(2, 3).double()).step()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_tied_weights_stay_tied():
    trainer, later = (Trainer(small(Tied), BUDGET, optimizer="adam", ema=0.9) for _ in range(2))
    for _ in range(3):
        trainer.step()
    later.restore(trainer.checkpoint())
    for model_trainer in (trainer, later, Trainer(small(), BUDGET, model=trainer.model)):
        assert model_trainer.model.first.weight is model_trainer.model.second.weight
    assert later.step() == trainer.step()
    before = copy_weights(trainer.model)
    trainer.step()
    at_old = trainer.gradient(before, 3)
    assert len(at_old.parts) == len(before) == 5
