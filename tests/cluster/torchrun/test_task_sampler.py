"""Every sample once in an epoch and never twice in a round, whatever the allocations and the loader
of a sampler.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset, Sampler  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.training import compute  # noqa: E402


def played(size, budget, rounds, splits, **arguments):
    """The samples of each round, in the order of the ranks, where each rank has a sampler of its
    own.
    """
    allocator = SimpleNamespace(budget=budget)
    samplers = [TaskSampler(allocator, size, **arguments) for _ in range(5)]
    for number in range(rounds):
        allocator.rounds = number
        first = 0
        samples_of_round = []
        for sampler, tasks in zip(samplers, splits(number), strict=False):
            allocator.share = SimpleNamespace(tasks=tasks, first=first, done=0, orders=[])
            first += tasks
            samples_of_round += [sample for batch in sampler for sample in batch]
        yield samples_of_round


def random_splits(budget, seed):
    def split(number):
        rng = np.random.default_rng([seed, number])
        return rng.multinomial(budget, rng.dirichlet(np.ones(rng.integers(1, 6)))).tolist()

    return split


@settings(max_examples=25)
@given(
    st.integers(1, 7),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 60),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_an_epoch_has_each_sample_once_and_a_round_none_twice(
    budget,
    samples,
    tasks_per_pass,
    more,
    shuffle,
    seed,
):
    size = 2 * budget * samples + more
    rounds = -(-3 * size // (budget * samples))
    arguments = {
        "samples": samples,
        "tasks_per_pass": tasks_per_pass,
        "shuffle": shuffle,
        "seed": seed,
    }
    computed = list(played(size, budget, rounds, random_splits(budget, seed), **arguments))
    for samples_of_round in computed:
        assert len(set(samples_of_round)) == len(samples_of_round) == budget * samples
    stream = [sample for samples_of_round in computed for sample in samples_of_round]
    for epoch in range(3):
        assert sorted(stream[epoch * size : (epoch + 1) * size]) == list(range(size))
    assert computed == list(played(size, budget, rounds, lambda _: [budget], **arguments))


def test_epochs_have_other_orders_and_so_have_seeds():
    orders = [
        TaskSampler(SimpleNamespace(budget=4), 64, seed=seed).samples_from(0, 192)
        for seed in (0, 1)
    ]
    parts = [tuple(order[start : start + 64]) for order in orders for start in (0, 64, 128)]
    assert len(set(parts)) == 6


def test_bad_arguments_are_named():
    for wrong in ({"samples": 0}, {"tasks_per_pass": 1.5}, {"seed": -1}, {"shuffle": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TaskSampler(SimpleNamespace(budget=4), 10, **wrong)
    with pytest.raises(ValueError, match="number of samples"):
        TaskSampler(SimpleNamespace(budget=4), [])


SAMPLES = 24
BUDGET = 6
DATA = torch.arange(float(SAMPLES))
NOTHING = torch.nn.Identity()


def plain(sampler):
    return DataLoader(DATA, batch_sampler=sampler)


def accelerated(name):
    return getattr(pytest.importorskip("accelerate.data_loader"), name)


def prepared(sampler, **options):
    two = {"num_processes": 2, "process_index": 1, "even_batches": False}
    return accelerated("prepare_data_loader")(plain(sampler), **two, **options)


def dispatched(sampler):
    class DataLoaderOfTheSecond(accelerated("DataLoaderDispatcher")):
        def __iter__(self):
            yield from DATA[:, None]

    return DataLoaderOfTheSecond(DATA, batch_sampler=sampler)


def split(sampler):
    sampler.batch_size = 4
    return prepared(sampler, split_batches=True)


class Every(Sampler):
    def __init__(self, batch_sampler):
        self.batch_sampler = batch_sampler

    def __iter__(self):
        yield from list(self.batch_sampler)[::2]


class Hidden(Sampler):
    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        yield from self.inner


def play(allocator, loader):
    batches = []
    for _ in range(2):
        with allocator.round(NOTHING) as share:
            batches += compute(share, loader)
            share.reduce()
    return torch.cat(batches).tolist()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "wrap",
    [
        plain,
        prepared,
        lambda sampler: accelerated("skip_first_batches")(prepared(sampler), 1),
        lambda sampler: plain(Every(Every(sampler))),
        lambda sampler: DataLoader(DATA, sampler=sampler, batch_size=None),
    ],
)
def test_a_loader_gives_the_samples_of_the_allocation_whatever_is_around_the_sampler(wrap):
    allocator = TorchAllocator(BUDGET, "uta")
    sampler = TaskSampler(allocator, DATA, samples=2, tasks_per_pass=4)
    assert play(allocator, wrap(sampler)) == sampler.samples_from(0, SAMPLES)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (dispatched, "DataLoaderOfTheSecond"),
        (split, "DataLoaderShard with a BatchSamplerShard"),
        (
            lambda sampler: DataLoader(DATA, sampler=sampler, batch_size=1),
            "DataLoader with a BatchSampler",
        ),
        (lambda sampler: plain(Hidden(sampler)), "DataLoader with a Hidden"),
        (lambda sampler: Hidden(plain(sampler)), "Hidden"),  # no DataLoader, but it has one
    ],
)
def test_what_is_not_understood_is_refused_by_name(wrap, name):
    allocator = TorchAllocator(BUDGET, "uta")
    loader = wrap(TaskSampler(allocator, DATA, samples=4))
    with pytest.raises(ValueError, match=f"the {name} holds a TaskSampler"):
        play(allocator, loader)
    assert allocator.rounds == 0


class Endless(IterableDataset):
    def __iter__(self):
        yield from range(4)

    def __len__(self):
        return 4


@pytest.mark.usefixtures("alone")
def test_another_loader_goes_on_where_it_stopped_and_starts_over():
    allocator = TorchAllocator(3)
    assert play(allocator, DataLoader(Endless(), batch_size=1)) == [0, 1, 2, 3, 0, 1]
    with pytest.raises(ValueError, match="the DataLoader has no batches"):
        play(allocator, DataLoader(DATA[:0]))
    for dataset in (Endless(), (number for number in range(3))):
        with pytest.raises(
            ValueError,
            match=f"a {type(dataset).__name__} gives them in an order of its own",
        ):
            TaskSampler(allocator, dataset)


@pytest.mark.usefixtures("alone")
def test_a_second_loop_in_a_round_goes_on_where_the_first_one_ended():
    allocator = TorchAllocator(BUDGET, "uta")
    sampler = TaskSampler(allocator, DATA)
    loader = plain(sampler)
    with allocator.round(NOTHING) as share:
        batches = [*compute(share, loader, limit=4), *compute(share, loader)]
        share.reduce()
    assert torch.cat(batches).tolist() == sampler.samples_from(0, BUDGET)
