import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from ata_gym.training import Trainer, make_problem
from ata_gym.training.problems.classification import from_torch

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


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.ones(2), 0


def test_a_shuffled_loader_gives_the_same_order_each_time():
    orders = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        orders.append(from_torch(lambda: (module(), DataLoader(Listed(), 7, shuffle=True)))._train.inputs)
    assert torch.equal(*orders)


def test_inputs_come_as_they_are():
    words = torch.randint(0, 9, (20, 4), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(8, 3))
    assert Trainer(from_torch(lambda: (model, (words, LABELS[:20]))), 5).step() > 0


def test_by_name_with_weights_keyed_by_the_seed_in_five_lines(tmp_path, monkeypatch):
    (tmp_path / "of_five_lines.py").write_text(
        "import torch\n"
        "def mine(scale='1'):\n"
        "    inputs = torch.linspace(-1, 1, 200).reshape(50, 4) * float(scale)\n"
        "    model = torch.nn.Linear(4, 2)\n"
        "    return model, (inputs, inputs[:, 0] > 0)\n"
    )
    monkeypatch.chdir(tmp_path)  # where it is found
    problem = make_problem("torch:of_five_lines:mine")
    assert problem.name == "mine"
    weights = [Trainer(problem, 5, seed=seed).model.weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(make_problem("torch:of_five_lines:mine", "2")._train.inputs, 2 * problem._train.inputs)
    with pytest.raises(ValueError, match="there is no problem 'of_five_lines:yours'"):
        make_problem("torch:of_five_lines:yours")


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (None, "mine must return module, train or module, train, test"),
        ((module(),), "must return module, train"),
        (((INPUTS, LABELS), module()), "must return module, train"),
        ((module(), INPUTS), r"must give tensors \(inputs, labels\)"),
        ((module(), [(INPUTS[0], 0), (INPUTS[0, :1], 0)]), "of equal shapes"),
        ((module(), 3), "must give tensors"),
        ((module(), DataLoader(Endless(), 4)), "have a length: .*for a stream, see ata_gym.training.Tasks"),
        ((module(), (INPUTS, LABELS + 1)), "a label 3, but its module gives 3 classes, from 0 on"),
        ((module(), (INPUTS, LABELS - 1)), "labels must be whole numbers from 0 on"),
        ((module(), (INPUTS, LABELS / 2)), "labels must be whole numbers from 0 on"),
        ((nn.Linear(7, 3), (INPUTS, LABELS)), "the model of mine does not take its data: mat1 and mat2 shapes"),
        ((nn.Flatten(0), (INPUTS, LABELS)), r"logits of shape \(B, classes\), not \(2,\) for one sample"),
    ],
)
def test_what_is_no_problem(made, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_torch(lambda: made, "mine")
