import sys
import types

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import nn

import ata_gym.training
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training import Classification, make_problem
from ata_gym.training.problems.digits import digits


def keys(count):
    return derive_keys(stream_keys(0)[0], 0, np.arange(count))


def points(count=10):
    return torch.arange(count)[:, None].float(), torch.arange(count) % 3


def of(train, test=None):
    return Classification(lambda: nn.Linear(1, 3), train, test or points(), name="mine")


def test_everything_that_is_exported_is_there():
    assert set(ata_gym.training.__all__) == set(ata_gym.training._HOMES)
    assert all(hasattr(ata_gym.training, name) for name in ata_gym.training.__all__)
    with pytest.raises(AttributeError, match="no attribute 'problems_of_mine'"):
        _ = ata_gym.training.problems_of_mine


def test_without_an_extra_the_error_is_one_sentence(monkeypatch):
    for name in ("torch", "sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'Training needs torch: pip install "ata-gym\[train\]"'):
        _ = ata_gym.training.TrainingWrapper
    with pytest.raises(ImportError, match=r'The problem digits needs sklearn.*pip install "ata-gym\[train\]"'):
        digits()


def test_digits_are_real_images_held_out_without_overlap():
    problem = digits()
    train, test = problem._train, problem._test
    assert train.inputs.shape == (1438, 1, 8, 8)
    assert test.inputs.shape == (359, 1, 8, 8)
    assert train.inputs.min() == -1
    assert train.inputs.max() == 1
    assert min(np.bincount(test.labels)) >= 20
    assert not {x.numpy().tobytes() for x in train.inputs} & {x.numpy().tobytes() for x in test.inputs}


def test_a_problem_of_ones_own_by_name_and_a_task_has_its_own_draw(monkeypatch):
    own = types.SimpleNamespace(mine=lambda: of(points()), nothing=lambda: None)
    monkeypatch.setitem(sys.modules, "my_own", own)
    problem = make_problem("my_own:mine")
    together, apart = problem.draw(keys(7)), [problem.draw(keys(7)[task : task + 1]) for task in range(7)]
    for part, parts in zip(together, zip(*apart, strict=True), strict=True):
        assert torch.equal(part, torch.cat(parts))
    with pytest.raises(ValueError, match="returned NoneType, which is no problem"):
        make_problem("my_own:nothing")


def test_samples_are_drawn_uniformly():
    counts = np.bincount(of(points()).draw(keys(20_000)).inputs[:, 0].int(), minlength=10)
    assert chisquare(counts).pvalue > 1e-3


def test_evaluation_is_the_mean_over_all_held_out_samples():
    inputs, labels = torch.randn(2500, 1, generator=torch.Generator().manual_seed(0)), torch.arange(2500) % 3
    problem = of(points(), (inputs, labels))
    with torch.no_grad():
        model = problem.build()
        figures = problem.evaluate(model)
        log_shares = model(inputs).double().log_softmax(1)
    assert figures["test_loss"] == pytest.approx(-log_shares[torch.arange(2500), labels].mean().item(), rel=1e-5)
    assert figures["accuracy"] == (log_shares.argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("digit", None, "there is no problem 'digit'; did you mean digits"),
        ("", None, "there is no problem ''"),
        ("digits", "images.npz", "the problem 'digits' takes no data"),
        ("cifar100", None, "the problem 'cifar100' needs data"),
        ("math:problem", None, "there is no problem 'math:problem'"),
        ("math:sqrt", "4", "the problem 'math:sqrt' cannot be made: TypeError: must be real number"),
    ],
)
def test_unknown_problems(name, data, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_problem(name, data)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("raise OSError('no disk')", "'broken:problem': importing broken failed with OSError: no disk"),
        ("import sys; sys.exit(3)", "there is no problem 'broken:problem': importing broken failed with SystemExit: 3"),
        ("def problem(): raise KeyError('x')", "the problem '(torch:)?broken:problem' cannot be made: KeyError: 'x'"),
        ("def problem(): exit()", "the problem '(torch:)?broken:problem' cannot be made: SystemExit"),
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
