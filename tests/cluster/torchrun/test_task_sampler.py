"""Every sample once in an epoch and never twice in a round, whatever the allocations and the loader
of a sampler.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ata_gym.cluster import TaskSampler, TaskStream, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import compute, refused  # noqa: E402


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
    with pytest.raises(ValueError, match="give sampler or shuffle, not both"):
        TaskSampler(SimpleNamespace(budget=4), 10, sampler=range(10), shuffle=False)


class EasyFirst(Sampler):
    """A curriculum: epoch e has the 4 + e easiest samples, each as often as it takes."""

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([number % (4 + self.epoch) for number in range(17)])

    def __len__(self):
        return 17


def with_generator(seed=7):
    return torch.Generator().manual_seed(seed)


SAMPLERS = {
    "random": lambda: RandomSampler(range(20)),
    "weighted": lambda: WeightedRandomSampler(torch.arange(1.0, 21.0), 17),
    "generator": lambda: WeightedRandomSampler(
        torch.arange(1.0, 21.0), 17, generator=with_generator()
    ),
    "subset": lambda: SubsetRandomSampler([3, 5, 9, 11, 2, 7, 1, 0, 15]),
    "curriculum": EasyFirst,
    "list": lambda: [torch.tensor(4), np.int64(2), 0, 1, 3, 9, 8],
    "set_epoch": lambda: DistributedSampler(range(20), 1, 0, seed=3),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_gives_the_order_that_tasks_are_cut_from(name):
    sampler = SAMPLERS[name]()
    length = len(sampler)
    rounds = -(-3 * length // 6)

    def computed(seed, splits):
        torch.manual_seed(seed)
        arguments = {"samples": 2, "sampler": SAMPLERS[name]()}
        return list(played(20, 3, rounds, splits, **arguments))

    expected = computed(0, lambda _: [3])
    # ranks are seeded unlike, and one of them comes in the middle of the second epoch
    assert computed(1, random_splits(3, seed=1)) == expected
    order = [sample for samples_of_round in expected for sample in samples_of_round]
    late = TaskSampler(SimpleNamespace(budget=3), 20, samples=2, sampler=sampler)
    assert late.rounds == length // 6
    start = length + length // 2
    assert late.samples_from(start, length) == order[start : start + length]
    epochs = [order[epoch * length : (epoch + 1) * length] for epoch in range(3)]
    if name == "curriculum":
        assert [max(epoch) for epoch in epochs] == [3, 4, 5]
    elif name == "list":
        assert epochs == [[4, 2, 0, 1, 3, 9, 8]] * 3
    else:
        assert len(set(map(tuple, epochs))) == 3
    if name == "weighted":
        heavy = [sample for sample in late.samples_from(0, 20_000) if sample >= 10]
        assert len(heavy) / 20_000 == pytest.approx(155 / 210, abs=0.02)
    if name in ("random", "subset", "set_epoch"):
        assert all(sorted(epoch) == sorted(set(sampler)) for epoch in epochs)


def test_the_generator_of_a_sampler_is_left_as_it_was_and_its_seed_counts():
    def order(seed):
        generator = with_generator(seed)
        torch.rand(3, generator=generator)
        before = generator.get_state()
        sampler = RandomSampler(range(20), generator=generator)
        samples = TaskSampler(SimpleNamespace(budget=4), 20, sampler=sampler).samples_from(0, 40)
        assert torch.equal(generator.get_state(), before)
        return samples

    assert order(1) == order(1) != order(2)


class Counting(Sampler):
    """A sampler that counts its epochs itself."""

    epoch = 0

    def __iter__(self):
        self.epoch += 1
        return iter([self.epoch % 4, 1, 2])

    def __len__(self):
        return 3


class Longer(Sampler):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        yield from self.samples

    def __len__(self):
        return 3


class WithEpoch(Counting):
    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.mark.parametrize(
    ("sampler", "error"),
    [
        ((number for number in range(3)), "sampler needs a length.*a generator has none"),
        (7, "sampler needs a length.*a int has none"),
        ([], "the list is empty"),
        (Counting(), "the Counting gave two different orders for the same epoch"),
        (Longer(range(4)), "the Longer gave more samples in epoch 0, and its length was 3"),
        (Longer(range(2)), "the Longer gave 2 samples in epoch 0, and its length was 3"),
        ([0, 1, 10], "the list gave the number 10, and the dataset has the samples 0 to 9"),
        ([0, -1], "the list gave the number -1"),
        ([0.0, 1.0], "the list must give numbers of samples, not 0.0"),
        (
            BatchSampler(range(10), 2, drop_last=False),
            r"the BatchSampler must give numbers of samples, not \[0, 1\].*the sampler inside",
        ),
    ],
)
def test_a_sampler_that_cannot_be_followed_is_refused_with_the_cure(sampler, error):
    with pytest.raises(ValueError, match=error):
        TaskSampler(SimpleNamespace(budget=4), 10, sampler=sampler)
    # the cures
    for cured in (WithEpoch(), list(range(3)), range(10)):
        TaskSampler(SimpleNamespace(budget=4), 10, samples=2, sampler=cured)


def unlike_samplers(kind):
    """The error of ranks whose samplers differ."""
    rank = dist.get_rank()
    allocator = TorchAllocator(4, "uta", name=f"w{rank}")
    torch.manual_seed(rank)
    samplers = {
        "split": DistributedSampler(range(20), 2, rank),
        "seed": RandomSampler(range(20), generator=with_generator(rank)),
        "alike": RandomSampler(range(20)),
    }
    loader = DataLoader(
        torch.arange(20), batch_sampler=TaskSampler(allocator, 20, sampler=samplers[kind])
    )
    errors = {refused(lambda: play(allocator, loader)) for _ in range(2)}
    (error,) = errors
    return error


@pytest.mark.parametrize("kind", ["split", "seed", "alike"])
def test_samplers_of_other_orders_are_noticed_on_all_ranks(kind):
    (error,) = set(on_ranks(2, unlike_samplers, kind))
    if kind == "alike":
        assert not error
    else:
        assert error.startswith(
            "RuntimeError: round 1: the ranks follow different orders of samples; w1 differs from"
        )
        assert "Give TaskSampler the same dataset, samples, sampler, shuffle and seed" in error


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
    # the cure
    other = TorchAllocator(3)
    assert play(other, TaskStream(other, DataLoader(Endless()))) == [0, 1, 2, 3, 0, 1]


@pytest.mark.usefixtures("alone")
def test_a_second_loop_in_a_round_goes_on_where_the_first_one_ended():
    allocator = TorchAllocator(BUDGET, "uta")
    sampler = TaskSampler(allocator, DATA)
    loader = plain(sampler)
    with allocator.round(NOTHING) as share:
        batches = [*compute(share, loader, limit=4), *compute(share, loader)]
        share.reduce()
    assert torch.cat(batches).tolist() == sampler.samples_from(0, BUDGET)
