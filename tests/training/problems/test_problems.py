import math
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import ata_gym.training
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training import Classification, Trainer, make_problem
from ata_gym.training.problems.classification import from_torch
from ata_gym.training.problems.digits import digits
from ata_gym.training.problems.quadratic import Quadratic, QuadraticModel


def keys(count, seed=0):
    return derive_keys(stream_keys(seed)[0], 0, np.arange(count))


def points(count=10):
    return torch.arange(count)[:, None].float(), torch.arange(count) % 3


def of(train, test=None):
    return Classification(lambda: nn.Linear(1, 3), train, test or points(), name="mine")


def test_everything_that_is_exported_is_there():
    assert set(ata_gym.training.__all__) == set(dir(ata_gym.training))
    assert all(hasattr(ata_gym.training, name) for name in ata_gym.training.__all__)
    with pytest.raises(AttributeError, match="no attribute 'problems_of_mine'"):
        _ = ata_gym.training.problems_of_mine


def test_without_an_extra_the_error_is_one_sentence(monkeypatch):
    for name in ("torch", "sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'Training needs torch: pip install "ata-gym\[train\]"'):
        _ = ata_gym.training.TrainingWrapper
    with pytest.raises(
        ImportError,
        match=r'The problem digits needs sklearn.*pip install "ata-gym\[train\]"',
    ):
        digits()


def test_digits_are_real_images_held_out_without_overlap():
    problem = digits()
    train = problem._train
    test = problem._test
    assert (train.inputs.shape, test.inputs.shape) == ((1438, 1, 8, 8), (359, 1, 8, 8))
    assert (train.inputs.min(), train.inputs.max()) == (-1, 1)
    assert min(np.bincount(test.labels)) >= 20
    assert not {x.numpy().tobytes() for x in train.inputs} & {
        x.numpy().tobytes() for x in test.inputs
    }


def test_text_has_the_letters_in_order_and_is_learned():
    problem = make_problem("text")
    train, test = problem._train, problem._test
    assert (train.inputs.shape[1], len(test.labels)) == (8, 2000)
    # Each window is the one before, moved on by a letter, which was its label.
    assert torch.equal(train.inputs[1:, :-1], train.inputs[:-1, 1:])
    assert torch.equal(train.inputs[1:, -1], train.labels[:-1])
    assert test.inputs[0, -1] == train.labels[-1]
    letters = " abcdefghijklmnopqrstuvwxyz.,"
    assert "the following" in "".join(letters[i] for i in train.labels[:50_000])
    shares = np.bincount(train.labels, minlength=29) / len(train.labels)
    entropy = -(shares * np.log(shares)).sum()
    trainer = Trainer(problem, 8, micro_batch=8)
    for _ in range(150):
        trainer.step()
    assert trainer.evaluate()["test_loss"] < entropy - 0.3


def test_a_problem_of_ones_own_by_name_and_a_task_has_its_own_draw(monkeypatch):
    own = types.SimpleNamespace(mine=lambda: of(points()), nothing=lambda: None)
    monkeypatch.setitem(sys.modules, "my_own", own)
    problem = make_problem("my_own:mine")
    together = problem.draw(keys(7))
    apart = [problem.draw(keys(7)[task : task + 1]) for task in range(7)]
    for part, parts in zip(together, zip(*apart, strict=True), strict=True):
        assert torch.equal(part, torch.cat(parts))
    with pytest.raises(ValueError, match="returned NoneType, which is no problem"):
        make_problem("my_own:nothing")


def test_samples_are_drawn_uniformly():
    counts = np.bincount(of(points()).draw(keys(20_000)).inputs[:, 0].int(), minlength=10)
    assert chisquare(counts).pvalue > 1e-3


def test_evaluation_is_the_mean_over_all_held_out_samples():
    inputs = torch.randn(2500, 1, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(2500) % 3
    problem = of(points(), (inputs, labels))
    with torch.no_grad():
        model = problem.build()
        figures = problem.evaluate(model)
        log_shares = model(inputs).double().log_softmax(1)
    assert figures["test_loss"] == pytest.approx(
        -log_shares[torch.arange(2500), labels].mean().item(),
        rel=1e-5,
    )
    assert figures["accuracy"] == (log_shares.argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("digit", None, "there is no problem 'digit'; did you mean digits"),
        ("", None, "there is no problem ''"),
        ("digits", "images.npz", "the problem 'digits' takes no data"),
        ("cifar100", None, "the problem 'cifar100' needs data"),
        ("math:problem", None, "there is no problem 'math:problem'"),
        (
            "math:sqrt",
            "4",
            "the problem 'math:sqrt' cannot be made: TypeError: must be real number",
        ),
    ],
)
def test_unknown_problems(name, data, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_problem(name, data)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "raise OSError('no disk')",
            "'broken:problem': importing broken failed with OSError: no disk",
        ),
        (
            "import sys; sys.exit(3)",
            "there is no problem 'broken:problem': importing broken failed with SystemExit: 3",
        ),
        (
            "def problem(): raise KeyError('x')",
            "the problem '(torch:)?broken:problem' cannot be made: KeyError: 'x'",
        ),
        (
            "def problem(): exit()",
            "the problem '(torch:)?broken:problem' cannot be made: SystemExit",
        ),
    ],
)
def test_a_module_of_ones_own_that_fails(tmp_path, monkeypatch, code, sentence):
    (tmp_path / "broken.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    for name in ("broken:problem", "torch:broken:problem"):
        with pytest.raises(ValueError, match=sentence):
            make_problem(name)


@pytest.mark.parametrize(
    ("inputs", "labels", "sentence"),
    [
        (torch.zeros(3, 1), torch.zeros(2, dtype=torch.int64), "one label per sample"),
        (torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64), "at least one sample"),
        (torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int64), "one label per sample"),
        (torch.zeros(2, 1), torch.zeros(2), "labels must be whole numbers"),
        (torch.zeros(2, 1), torch.tensor([0, -1]), "labels must be whole numbers"),
    ],
)
def test_bad_samples(inputs, labels, sentence):
    for train, test in (((inputs, labels), points()), (points(), (inputs, labels))):
        with pytest.raises(ValueError, match=sentence):
            of(train, test)


def dense(d):
    a = (2 * np.eye(d) - np.eye(d, k=1) - np.eye(d, k=-1)) / 4
    b = np.zeros(d)
    b[0] = -0.25
    return a, b


def test_the_quadratic_is_the_published_problem():
    problem = make_problem("quadratic")
    np.testing.assert_array_equal(problem.build().x.detach(), [10.0] + 99 * [0.0])
    assert (problem.learning_rates, math.sqrt(problem.variance)) == (
        {"sgd": 1e-4},
        pytest.approx(0.01),
    )


@settings(max_examples=20)
@given(d=st.integers(1, 30), seed=st.integers(0, 100))
def test_loss_and_gradients_are_those_of_the_dense_formula(d, seed):
    problem, (a, b), x = (
        Quadratic(d, noise=0.5),
        dense(d),
        np.random.default_rng(seed).normal(size=d),
    )
    best = np.linalg.solve(a, b)
    gap = (x @ a @ x / 2 - b @ x) - (best @ a @ best / 2 - b @ best)
    point = QuadraticModel(torch.from_numpy(x))
    batch = problem.draw(keys(3, seed))
    losses = problem.loss(point, batch)
    np.testing.assert_allclose(losses.detach(), np.full(3, gap), rtol=1e-9)
    for b_th, loss in enumerate(losses):
        (gradient,) = torch.autograd.grad(loss, point.x, retain_graph=True)
        np.testing.assert_allclose(gradient, a @ x - b + batch[b_th].item(), atol=1e-12)
    figures = problem.evaluate(point)
    assert figures["suboptimality"] == pytest.approx(gap, rel=1e-9)
    assert figures["gradient_norm"] == pytest.approx(np.linalg.norm(a @ x - b))


@pytest.mark.parametrize("d", [1, 2, 7, 100])
def test_the_constants_of_theory(d):
    problem = Quadratic(d, noise=0.3)
    (a, b) = dense(d)
    assert problem.smoothness == pytest.approx(np.linalg.eigvalsh(a).max())
    x = problem.build().x.detach().numpy()
    best = np.linalg.solve(a, b)
    assert problem.gap == pytest.approx((x - best) @ a @ (x - best) / 2)
    assert problem.evaluate(QuadraticModel(torch.from_numpy(best)))[
        "suboptimality"
    ] == pytest.approx(
        0,
        abs=1e-25,
    )
    noise = problem.draw(keys(20_000)).numpy()
    assert (noise**2).mean() * d == pytest.approx(problem.variance, rel=0.05)
    assert abs(noise.mean()) < 0.01


@pytest.mark.parametrize(
    "kwargs",
    [{"dimension": 0}, {"dimension": 2.0}, {"noise": -1.0}, {"noise": math.nan}],
)
def test_bad_arguments_of_the_quadratic(kwargs):
    with pytest.raises(ValueError, match=f"{next(iter(kwargs))} must be"):
        Quadratic(**kwargs)


def test_another_model_is_refused():
    with pytest.raises(ValueError, match="trains a point, its own model, not Linear"):
        Trainer("quadratic", 1, model=nn.Linear(1, 1)).step()


INPUTS = torch.linspace(-1, 1, 80).reshape(40, 2)
LABELS = torch.arange(40) % 3


class Listed(Dataset):
    def __len__(self):
        return len(LABELS)

    def __getitem__(self, k):
        return INPUTS[k], int(LABELS[k])


def module():
    return nn.Linear(2, 3)


@pytest.mark.parametrize(
    "data",
    [
        (INPUTS, LABELS),
        TensorDataset(INPUTS, LABELS),
        Listed(),
        DataLoader(Listed(), batch_size=7),
        DataLoader(TensorDataset(INPUTS, LABELS), batch_size=64),
    ],
)
def test_loaders_datasets_and_tensors_are_the_same(data):
    problem = from_torch(lambda: (module(), data))
    held_out = torch.arange(40) % 5 == 4
    assert torch.equal(problem._train.inputs, INPUTS[~held_out])
    assert torch.equal(problem._test.labels, LABELS[held_out])
    both = from_torch(lambda: (module(), data, (INPUTS[:3], LABELS[:3])))
    assert torch.equal(both._train.inputs, INPUTS)
    assert torch.equal(both._test.inputs, INPUTS[:3])


class EndlessBatches(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.ones(2), 0


def test_a_shuffled_loader_gives_the_same_order_each_time():
    orders = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        orders.append(
            from_torch(lambda: (module(), DataLoader(Listed(), 7, shuffle=True)))._train.inputs,
        )
    assert torch.equal(*orders)


def test_inputs_come_as_they_are():
    tokens = torch.randint(0, 9, (20, 4), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(8, 3))
    assert Trainer(from_torch(lambda: (model, (tokens, LABELS[:20]))), 5).step() > 0


def test_by_name_with_weights_keyed_by_the_seed_in_five_lines(tmp_path, monkeypatch):
    (tmp_path / "of_five_lines.py").write_text(
        "import torch\n"
        "def mine(scale='1'):\n"
        "    inputs = torch.linspace(-1, 1, 200).reshape(50, 4) * float(scale)\n"
        "    model = torch.nn.Linear(4, 2)\n"
        "    return model, (inputs, inputs[:, 0] > 0)\n",
    )
    monkeypatch.chdir(tmp_path)  # where it is found
    problem = make_problem("torch:of_five_lines:mine")
    assert problem.name == "mine"
    weights = [Trainer(problem, 5, seed=seed).model.weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(
        make_problem("torch:of_five_lines:mine", "2")._train.inputs,
        2 * problem._train.inputs,
    )
    with pytest.raises(ValueError, match="there is no problem 'of_five_lines:yours'"):
        make_problem("torch:of_five_lines:yours")


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (None, "mine must return module, train or module, train, test"),
        ((module(),), "must return module, train"),
        (((INPUTS, LABELS), module()), "must return module, train"),
        ((module(), INPUTS), r"must give tensors \(inputs, labels\)"),
        ((module(), [(INPUTS[0], 0), (INPUTS[0, :1], 0)]), "of equal shapes"),
        ((module(), 3), "must give tensors"),
        (
            (module(), DataLoader(EndlessBatches(), 4)),
            "have a length: .*for a stream, see ata_gym.training.Tasks",
        ),
        ((module(), (INPUTS, LABELS + 1)), "a label 3, but its module gives 3 classes, from 0 on"),
        ((module(), (INPUTS, LABELS - 1)), "labels must be whole numbers from 0 on"),
        ((module(), (INPUTS, LABELS / 2)), "labels must be whole numbers from 0 on"),
        (
            (nn.Linear(7, 3), (INPUTS, LABELS)),
            "the model of mine does not take its data: mat1 and mat2 shapes",
        ),
        (
            (nn.Flatten(0), (INPUTS, LABELS)),
            r"logits of shape \(B, classes\), not \(2,\) for one sample",
        ),
    ],
)
def test_what_is_no_problem(result, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_torch(lambda: result, "mine")
