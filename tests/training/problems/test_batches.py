import random
from itertools import count

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler

from ata_gym.training.problems.batches import keyed_batches


class Noisy(Dataset):
    """Items with noise of each generator that datasets draw from."""

    def __init__(self, size=10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, k):
        return k + 0.1 * torch.rand(()) + 0.01 * random.random() + 0.001 * torch.tensor(np.random.random())  # noqa: NPY002


class Stream(IterableDataset):
    def __init__(self, length=None):
        self.length = length

    def __iter__(self):
        for k in count() if self.length is None else range(self.length):
            yield k + 0.5 * torch.rand(())


class Growing:
    """A sampler of batches whose epochs differ in length."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        yield from ([k] for k in range(2 + self.epoch))


def loader(data=None, **options):
    return DataLoader(Noisy() if data is None else data, **({"batch_size": 3, "shuffle": True} | options))


def collate(items):
    return torch.stack(items) + 0.1 * torch.rand(())


SOURCES = {
    "shuffled": lambda: loader(collate_fn=collate),
    "in order": lambda: loader(shuffle=False, drop_last=True),
    "of its own generator": lambda: loader(generator=torch.Generator().manual_seed(5)),
    "worker processes": lambda: loader(num_workers=2),
    "without batches": lambda: loader(batch_size=None),
    "of a sampler of batches": lambda: DataLoader(
        Noisy(), batch_sampler=BatchSampler(RandomSampler(Noisy()), 4, False)
    ),
    "growing": lambda: DataLoader(Noisy(), batch_sampler=Growing()),
    "stream": lambda: DataLoader(Stream(10), batch_size=3),
    "endless": lambda: DataLoader(Stream(), batch_size=3),
    "sequence": lambda: Noisy(4),
    "iterable": lambda: Stream(4),
    "list": lambda: list(torch.arange(12.0).reshape(4, 3)),
}


def read(batches, ts):
    return [batches[t] for t in ts]


def equal(one, other):
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_each_batch_depends_on_its_number_and_the_key_alone(source):
    first = read(keyed_batches(source(), 1), range(9))
    torch.manual_seed(3)
    random.seed(3)
    batches = keyed_batches(source(), 1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert equal(read(batches, (7, 8)), first[7:])  # as after a restart
    assert equal(read(batches, (2, 3, 2, 0, 8)), [first[t] for t in (2, 3, 2, 0, 8)])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002


@pytest.mark.parametrize("name", ["shuffled", "of its own generator", "without batches"])
def test_an_epoch_has_each_sample_once_in_an_order_of_its_own(name):
    batches = keyed_batches(SOURCES[name](), 1)
    size = 10 if name == "without batches" else 4
    epochs = [torch.cat([b.reshape(-1) for b in read(batches, range(e * size, (e + 1) * size))]) for e in range(3)]
    orders = [epoch.floor().int().tolist() for epoch in epochs]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    others = keyed_batches(SOURCES[name](), 2)
    assert not equal(read(others, range(size)), read(batches, range(size)))


def test_the_users_generator_stays_as_it_is_and_augmentation_is_drawn_anew_in_each_epoch():
    generator = torch.Generator().manual_seed(5)
    read(keyed_batches(loader(generator=generator), 1), range(9))
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(5).get_state())
    first, second = read(keyed_batches(loader(shuffle=False, batch_size=10), 1), (0, 1))
    assert torch.equal(first.floor(), second.floor())
    assert not torch.equal(first, second)
    growing = read(keyed_batches(SOURCES["growing"](), 1), range(9))
    assert [batch.floor().item() for batch in growing] == [0, 1, 0, 1, 2, 0, 1, 2, 3]


@pytest.mark.parametrize("empty", [[], DataLoader(Noisy(2), batch_size=3, drop_last=True), DataLoader(Stream(0))])
def test_a_source_without_batches(empty):
    with pytest.raises(ValueError, match="at least one batch in each epoch"):
        keyed_batches(empty, 0)[0]


@pytest.mark.parametrize("wrong", [3, {"a": 1}, "text", iter([1]), None])
def test_what_gives_no_batches(wrong):
    with pytest.raises(TypeError, match=r"batches must (be a DataLoader|give one epoch after the other)"):
        keyed_batches(wrong, 0)


class Failing(Noisy):
    broken = True

    def __getitem__(self, k):
        if k == 4 and self.broken:
            raise KeyError(k)
        return super().__getitem__(k)


def test_a_dataset_that_fails_can_be_asked_again():
    data = Failing()
    batches = keyed_batches(DataLoader(data, batch_size=3), 1)
    batches[0]
    with pytest.raises(KeyError):
        read(batches, range(1, 5))
    data.broken = False
    assert equal(read(batches, range(1, 5)), read(keyed_batches(DataLoader(data, batch_size=3), 1), range(1, 5)))
