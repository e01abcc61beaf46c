"""Loaders without a ``TaskSampler``: streams that are shared out, those that each rank has a part
of, and equal ones that are noticed.
"""

import copy
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from ata_gym.cluster import TaskSampler, TaskStream, TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun.loading.first_batches import checksum  # noqa: E402
from tests.cluster.torchrun.processes import CONTEXT, on_ranks  # noqa: E402
from tests.cluster.torchrun.training import compute, refused  # noqa: E402

SAMPLES = 22
"""No multiple of the samples of a round, so that epochs end in rounds."""
NOTHING = nn.Identity()


class Stream(IterableDataset):
    """The numbers of samples, split by worker process; shuffled with all global generators."""

    def __init__(self, shuffle=False, part=0, parts=1):
        self.shuffle = shuffle
        self.part, self.parts = part, parts

    def __iter__(self):
        info = get_worker_info()
        step = info.num_workers if info else 1
        numbers = range(self.part, SAMPLES * self.parts, self.parts)[info.id if info else 0 :: step]
        for number in numbers:
            drawn = (torch.rand(()).item(), random.random(), np.random.rand())  # noqa: NPY002
            yield number, drawn if self.shuffle else 0


class Epochs(IterableDataset):
    """A stream whose order follows from ``set_epoch``."""

    epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        rng = random.Random(self.epoch)
        yield from rng.sample(range(SAMPLES), SAMPLES)

    def __len__(self):
        return SAMPLES


def forced(shares, **options):
    """An allocator whose rank r has shares[r] tasks in every round."""
    limits = {f"w{rank}": (share, share) for rank, share in enumerate(shares)}
    return TorchAllocator(
        sum(shares), "uta", name=f"w{dist.get_rank()}", limits=limits, warm_up=0, **options
    )


def flat(batch):
    """A batch in a form that can be compared."""
    if isinstance(batch, torch.Tensor):
        return tuple(batch.flatten().tolist())
    if isinstance(batch, list | tuple):
        return tuple(flat(part) for part in batch)
    return batch


def shared_out(make_loader, budget, rounds, seed, first_round=0, **options):
    """The batches of each round, in the order of three ranks with streams of their own, which are
    split at random.
    """
    allocator = SimpleNamespace(budget=budget)
    streams = []
    for rank in range(3):
        torch.manual_seed(rank)
        streams.append(TaskStream(allocator, make_loader(), **options))
    for number in range(first_round, rounds):
        rng = np.random.default_rng([seed, number])
        allocator.rounds = number
        first = 0
        batches = []
        orders = []
        for rank, tasks in enumerate(rng.multinomial(budget, rng.dirichlet(np.ones(3))).tolist()):
            torch.manual_seed(17 * rank + number)
            allocator.share = SimpleNamespace(tasks=tasks, first=first, done=0, orders=orders)
            before = torch.get_rng_state()
            streams[rank].skip()
            batches += [flat(batch) for batch in streams[rank]]
            assert torch.equal(before, torch.get_rng_state())
            first += tasks
        assert len(set(orders)) == 1
        yield batches


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_a_stream_is_computed_by_one_rank_in_the_order_of_one_process(workers):
    def make(shuffle=True):
        return DataLoader(
            Stream(shuffle),
            batch_size=3,
            num_workers=workers,
            multiprocessing_context=CONTEXT if workers else None,
        )

    rounds = 3 if workers else 7
    expected = list(shared_out(make, 5, rounds, seed=0))
    assert list(shared_out(make, 5, rounds, seed=1)) == expected
    flattened = [batch for round_batches in expected for batch in round_batches]
    epoch = [flat(numbers) for numbers, _ in make(shuffle=False)]
    places = np.arange(len(flattened)) % len(epoch)
    assert [numbers for numbers, _ in flattened] == [epoch[place] for place in places]
    # fresh noise in each epoch, and the same after a restart in the middle of one
    assert len(set(flattened)) == len(flattened)
    assert list(shared_out(make, 5, rounds, seed=2, first_round=2)) == expected[2:]


def test_an_epoch_of_a_stream_has_an_order_of_its_own_and_each_sample_once():
    def make():
        return DataLoader(Epochs(), batch_size=None)

    batches = [batch for part in shared_out(make, 4, 16, seed=0) for batch in part]
    for epoch in range(2):
        part = batches[epoch * SAMPLES : (epoch + 1) * SAMPLES]
        assert part == random.Random(epoch).sample(range(SAMPLES), SAMPLES)
    allocator = SimpleNamespace(budget=4)
    assert TaskStream(allocator, make()).rounds == SAMPLES // 4
    assert TaskStream(allocator, DataLoader(Stream())).rounds is None


class Stateful:
    """A loader that has a state, and counts what it reads."""

    def __init__(self):
        self.start = 0
        self.read = 0

    def __iter__(self):
        while self.start < SAMPLES:
            self.read += 1
            self.start += 1
            yield self.start - 1
        self.start = 0

    def state_dict(self):
        return {"start": self.start}

    def load_state_dict(self, state):
        self.start = state["start"]


def test_a_state_saves_the_reading_of_what_was_before():
    allocator = SimpleNamespace(budget=5, rounds=0)

    def play(stream, rounds, tasks=2, first=1):
        batches = []
        for _ in range(rounds):
            allocator.share = SimpleNamespace(tasks=tasks, first=first, done=0, orders=[])
            stream.skip()
            batches.append(list(stream))
            allocator.rounds += 1
        return batches

    for loader, again in ((Stateful, 0), (Epochs, 35 - SAMPLES)):
        allocator.rounds = 0
        stream = TaskStream(allocator, loader())
        play(stream, 7)
        state = stream.state_dict()
        other_rank = TaskStream(allocator, loader())
        allocator.rounds = 0
        play(other_rank, 7, tasks=0, first=5)
        assert other_rank.state_dict() == state
        expected = play(stream, 2)
        allocator.rounds = 7
        restarted = TaskStream(allocator, loader())
        restarted.load_state_dict(state)
        assert play(restarted, 2) == expected
        if loader is Stateful:
            # what is read in two rounds, without the end of the second
            assert restarted.loader.read == again + 8
    for wrong in ({}, {"epoch": 0, "epoch_start": -1, "task": 0}, 7):
        with pytest.raises(ValueError, match="this is no state of TaskStream"):
            restarted.load_state_dict(wrong)


@pytest.mark.usefixtures("alone")
def test_a_stream_gives_the_same_tasks_when_a_round_begins_again_or_a_loop_goes_on():
    allocator = TorchAllocator(6, "uta")
    stream = TaskStream(allocator, DataLoader(Stream(), batch_size=2))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="reduce"), allocator.round(NOTHING) as share:
            # a change in place is not seen again
            assert [*changed(share, stream)][0] == [0, 1]  # noqa: RUF015
    with allocator.round(NOTHING) as share:
        batches = [*compute(share, stream, limit=4), *compute(share, stream)]
        share.reduce()
    assert torch.cat([numbers for numbers, _ in batches]).tolist() == list(range(12))
    allocator.load_state_dict(TorchAllocator(6, "uta").state_dict())
    with allocator.round(NOTHING) as share:
        batches = compute(share, stream)
        share.reduce()
    assert torch.cat([numbers for numbers, _ in batches]).tolist() == list(range(12))


def changed(share, stream):
    """The samples of each batch, all of which are changed in place then."""
    for numbers, _ in compute(share, stream):
        yield numbers.tolist()
        numbers.add_(100)


class Broken(IterableDataset):
    """A stream that cannot be read once."""

    broken = True

    def __iter__(self):
        for number in range(SAMPLES):
            if self.broken and number == 7:
                self.broken = False
                raise OSError("the file is not there")
            yield number


@pytest.mark.usefixtures("alone")
def test_an_error_of_a_stream_is_no_end_of_an_epoch():
    allocator = TorchAllocator(5, "uta")
    stream = TaskStream(allocator, DataLoader(Broken(), batch_size=None))
    late_round(allocator, stream)
    assert refused(lambda: late_round(allocator, stream)) == "OSError: the file is not there"
    with allocator.round(NOTHING) as share:
        assert compute(share, stream) == [5, 6, 7, 8, 9]
        share.reduce()


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_a_stateful_loader_goes_on_where_it_was():
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    allocator = SimpleNamespace(budget=5, rounds=0)
    streams = [TaskStream(allocator, stateful(Epochs(), batch_size=2)) for _ in range(2)]
    for _ in range(3):
        allocator.share = SimpleNamespace(tasks=2, first=1, done=0, orders=[])
        list(streams[0])
        allocator.rounds += 1
    streams[1].load_state_dict(streams[0].state_dict())
    batches = [[flat(batch) for batch in stream] for stream in streams]
    assert batches[0] == batches[1]


def trained(shares, rounds):
    torch.manual_seed(dist.get_rank())
    allocator = forced(shares)
    stream = TaskStream(allocator, DataLoader(Numbers(), batch_size=2))
    model = nn.Linear(1, 1).double()
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    gradients = []
    for _ in range(rounds):
        with allocator.round(model) as share:
            for x in share.take(stream):
                share.backward((model(x) - x.square()).square().mean())
            share.reduce()
        gradients.append([parameter.grad.item() for parameter in model.parameters()])
        model.zero_grad()
    return gradients


class Numbers(IterableDataset):
    def __iter__(self):
        yield from torch.linspace(-1.0, 1.0, SAMPLES, dtype=torch.float64)[:, None]


def test_a_stream_that_is_shared_out_has_the_gradient_of_one_process():
    ((*expected,),) = on_ranks(1, trained, (6,), 3)
    for rank in on_ranks(3, trained, (4, 0, 2), 3):
        np.testing.assert_allclose(rank, expected, rtol=1e-12, atol=1e-14)


def rounds_of(loader_of, shares, rounds):
    """The samples that this rank computed, or the error."""
    dist_rank = dist.get_rank()
    allocator = forced(shares)
    loader = loader_of(dist_rank, allocator)
    computed = []

    def play():
        with allocator.round(NOTHING) as share:
            computed.extend(compute(share, loader))
            share.reduce()

    for _ in range(rounds):
        error = refused(play)
        if error:
            # the round can begin again, and has the same error
            assert refused(play) == error
            return error
    return [flat(batch) for batch in computed]


def unequal_parts(rank, allocator):
    return TaskStream(allocator, DataLoader(Stream(part=rank, parts=2)))


class Workers:
    """A loader whose order depends on the number of its worker processes after the first batch."""

    def __init__(self, number):
        self.num_workers = number

    def __iter__(self):
        yield 0
        yield from range(1, SAMPLES, self.num_workers)


def unequal_workers(rank, allocator):
    return TaskStream(allocator, Workers(1 + rank))


@pytest.mark.parametrize("loader_of", [unequal_parts, unequal_workers])
def test_streams_that_are_not_the_same_on_all_ranks_are_not_shared_out(loader_of):
    errors = set(on_ranks(2, rounds_of, loader_of, (2, 4), 1))
    (error,) = errors
    assert error.startswith(
        "RuntimeError: round 1: the ranks follow different orders of samples; w1 differs from w0",
    )
    assert "without TaskStream, each rank computes what its own loader gives" in error


def own_part(rank, _allocator):
    return DataLoader(Stream(part=rank, parts=2), batch_size=2)


def test_streams_of_a_part_for_each_rank_are_not_skipped():
    ranks = on_ranks(2, rounds_of, own_part, (2, 4), 2)
    for rank, batches in enumerate(ranks):
        samples = [number for numbers, _ in batches for number in numbers]
        assert samples == list(range(rank, 2 * len(samples), 2))


def shuffled(_rank, _allocator):
    torch.manual_seed(0)
    return DataLoader(range(100), shuffle=True)


def weighted(_rank, _allocator):
    torch.manual_seed(0)
    return DataLoader(range(100), sampler=WeightedRandomSampler(torch.ones(100), 100))


def streamed(_rank, _allocator):
    return DataLoader(Stream(), batch_size=2)


def nested(_rank, _allocator):
    return DataLoader([{"x": (torch.ones(2), "a"), "y": np.ones(3)}] * 9, batch_size=None)


SAME = "w0 and w1 computed the same batches, which the loader of each of them gave first"


@pytest.mark.parametrize("loader_of", [shuffled, weighted, streamed, nested])
def test_two_ranks_that_compute_the_same_batches_are_named_on_all_ranks(loader_of):
    (error,) = set(on_ranks(2, rounds_of, loader_of, (2, 4), 1))
    assert error.startswith(f"RuntimeError: round 1: {SAME}. The step is not taken. ")


def cured():
    """The errors of loaders that give equal batches, and the batches with the cures."""
    allocator = forced((2, 4))
    weights = WeightedRandomSampler(torch.ones(100), 100)
    numbers = torch.arange(100)
    errors, computed = [], []
    for make, cure in (
        (streamed, lambda loader: TaskStream(allocator, loader)),
        (weighted, lambda _: loader_of_sampler(allocator, numbers, sampler=weights)),
        (shuffled, lambda _: loader_of_sampler(allocator, numbers)),
    ):
        loader = make(dist.get_rank(), allocator)
        errors.append(refused(lambda loader=loader: late_round(allocator, loader)))
        with allocator.round(NOTHING) as share:
            computed.append([flat(batch) for batch in compute(share, cure(loader))])
            share.reduce()
    return errors, computed


def loader_of_sampler(allocator, numbers, **options):
    return DataLoader(numbers, batch_sampler=TaskSampler(allocator, numbers, **options))


def test_who_follows_the_error_of_equal_batches_goes_on_with_unequal_ones():
    (errors, first), (other_errors, second) = on_ranks(2, cured)
    assert errors == other_errors
    assert all(SAME in error for error in errors)
    assert [len(batches) for batches in first] == [2, 2, 2]
    assert [len(batches) for batches in second] == [4, 4, 4]
    # a sampler that draws by weights may draw a sample twice
    for place in (0, 2):
        assert not set(first[place]) & set(second[place])


def late_round(allocator, loader):
    with allocator.round(NOTHING) as share:
        compute(share, loader)
        share.reduce()


def leaves_and_joins():
    allocator = TorchAllocator(2, "uta", name=f"w{dist.get_rank()}", warm_up=0)
    loader = DataLoader(Stream())
    errors = []
    if dist.get_rank() == 1:
        allocator.leave()
    timed(allocator)
    errors.append(refused(lambda: late_round(allocator, loader)))
    allocator.join()
    timed(allocator)
    errors.append(refused(lambda: late_round(allocator, loader)))
    return errors


def timed(allocator):
    """A round of equal batches, as an error advises."""
    with allocator.round(NOTHING) as share:
        for _ in range(share.tasks):
            with share.timed():
                share.backward(torch.ones((), requires_grad=True))
        share.reduce()


def test_a_rank_that_has_tasks_later_is_compared_with_what_the_others_had():
    for errors in on_ranks(2, leaves_and_joins):
        assert errors[0] == ""
        assert errors[1].startswith(f"RuntimeError: round 4: {SAME}")


def test_what_a_batch_holds_has_a_checksum_of_its_own():
    batches = [
        torch.zeros(4),
        torch.zeros(2, 2),
        torch.zeros(4, dtype=torch.bfloat16),
        torch.tensor(0.0),
        np.zeros(4),
        ["a", 1, None],
        ("a", 1, b"x"),
        {"x": torch.ones(2), "y": [torch.zeros(1)]},
        {"x": torch.ones(2), "y": [torch.ones(1)]},
        torch.eye(2).to_sparse(),
        SimpleNamespace(x=torch.ones(1)),
        SimpleNamespace(x=torch.zeros(1)),
        {"a", "b"},
        {"a", "c"},
        np.array(["a", {"x": 1}], object),
        np.array(3.0),
        torch.arange(2000.0),
        torch.arange(2000.0).index_fill(0, torch.tensor([1500]), 0.0),
    ]
    # another process has other addresses and another order of sets
    checksums = [checksum(copy.deepcopy(batch)) for batch in batches]
    assert len(set(checksums)) == len(batches)
    assert all(0 < number < 2**24 for number in checksums)
    assert checksums == [checksum(batch) for batch in batches]
    assert checksum(batches[-2], 1000) == checksum(batches[-1], 1000)
    assert checksum(lambda: None) == 0


def replaced(_allocator, data, _sampler):
    return DataLoader(data, sampler=DistributedSampler(data, 2, 0), batch_size=None)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("loader_of", "error"),
    [
        (replaced, "the DataLoader gives single samples, .*prepare_data_loader of Ray Train"),
        (lambda *_: [1, 2], r"not from \[1, 2\]: batches in a list are DataLoader"),
        (
            lambda allocator, data, _: TaskStream(allocator, replaced(allocator, data, None)),
            "add_dist_sampler=False",
        ),
        (
            lambda allocator, data, sampler: TaskStream(
                allocator, DataLoader(data, batch_sampler=sampler)
            ),
            "the loader has a TaskSampler",
        ),
        (
            lambda allocator, data, _: TaskStream(
                allocator, DataLoader(data, num_workers=1, in_order=False)
            ),
            "the same order of batches on every rank",
        ),
        (lambda allocator, *_: TaskStream(allocator, DataLoader([])), "has no batches"),
    ],
)
def test_a_loader_that_cannot_give_tasks_is_refused_by_name(loader_of, error):
    allocator = TorchAllocator(2, "uta")
    data = TensorDataset(torch.arange(8.0))
    sampler = TaskSampler(allocator, data)
    with pytest.raises(ValueError, match=error), allocator.round(NOTHING) as share:
        compute(share, loader_of(allocator, data, sampler))
    # the cures
    with allocator.round(NOTHING) as share:
        (first, _) = compute(share, DataLoader([1, 2], batch_size=None))
        share.reduce()
    assert first == 1


@pytest.mark.usefixtures("alone")
def test_what_ray_train_prepares_gives_tasks_with_the_option_that_the_error_names(monkeypatch):
    utils = pytest.importorskip(
        "ray.train.torch.train_loop_utils", reason="ray[train]", exc_type=ImportError
    )
    monkeypatch.setattr(utils.session, "get_world_size", lambda: 2)
    monkeypatch.setattr(utils.session, "get_world_rank", lambda: 0)
    accelerator = utils._TorchAccelerator()
    monkeypatch.setattr(utils, "get_device", lambda: torch.device("cpu"), raising=False)
    monkeypatch.setattr("ray.train.torch.get_device", lambda: torch.device("cpu"))
    allocator = TorchAllocator(4, "uta")
    data = torch.arange(8.0)
    sampler = TaskSampler(allocator, data, samples=2)
    loader = DataLoader(data, batch_sampler=sampler)
    with pytest.raises(ValueError, match="gives single samples"), allocator.round(NOTHING) as share:
        compute(share, accelerator.prepare_data_loader(loader))
    prepared = accelerator.prepare_data_loader(loader, add_dist_sampler=False)
    with allocator.round(NOTHING) as share:
        batches = compute(share, prepared)
        share.reduce()
    assert torch.cat(batches).tolist() == sampler.samples_from(0, 8)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("dataset", [Stream(), TensorDataset(torch.arange(8))])
def test_a_loader_of_accelerate_that_waits_for_other_ranks_is_refused(dataset):
    prepare = pytest.importorskip("accelerate.data_loader").prepare_data_loader
    allocator = TorchAllocator(2, "uta")
    loader = DataLoader(dataset)
    prepared = prepare(loader, num_processes=2, process_index=0, put_on_device=True)
    with (
        pytest.raises(ValueError, match="of accelerate splits batches by rank and waits"),
        allocator.round(NOTHING) as share,
    ):
        compute(share, prepared)
    with allocator.round(NOTHING) as share:
        assert len(compute(share, TaskStream(allocator, loader))) == 2
        share.reduce()


def with_datasets(rank, allocator, split, folder):
    import datasets
    from datasets.distributed import split_dataset_by_node

    shards = [f"{folder}/{shard}.jsonl" for shard in range(2)]
    stream = datasets.load_dataset(
        "json", data_files=shards, streaming=True, split="train", cache_dir=f"{folder}/{rank}"
    )
    stream = stream.shuffle(seed=3, buffer_size=4)
    if split:
        return DataLoader(split_dataset_by_node(stream, rank, 2), batch_size=2)
    return TaskStream(allocator, DataLoader(stream, batch_size=2))


def with_webdataset(rank, allocator, split, folder):
    import webdataset

    urls = [f"{folder}/{shard}.tar" for shard in range(2)]
    if split:
        splitter = rank_splitter(rank)
    else:
        splitter = None
    stream = webdataset.WebDataset(
        urls, nodesplitter=splitter, shardshuffle=False, empty_check=False
    )
    loader = webdataset.WebLoader(stream.decode().to_tuple("cls"), batch_size=2)
    return loader if split else TaskStream(allocator, loader)


def rank_splitter(rank):
    def split(urls):
        return list(urls)[rank::2]

    return split


def stream_of_library(library, split, folder):
    """The samples that this rank computed in two rounds."""
    make = {"datasets": with_datasets, "webdataset": with_webdataset}[library]

    def loader_of(rank, allocator):
        return make(rank, allocator, split, folder)

    batches = rounds_of(loader_of, (2, 3), 2)
    assert not isinstance(batches, str), batches
    return [int(number) for batch in batches for number in numbers_of(batch)]


def numbers_of(batch):
    if isinstance(batch, dict):
        return batch["x"].tolist()
    return batch[0]


def write_shard(library, folder, shard):
    """Half of the samples, in a file of its own."""
    numbers = range(shard * SAMPLES // 2, (shard + 1) * SAMPLES // 2)
    if library == "datasets":
        lines = [json.dumps({"x": number}) + "\n" for number in numbers]
        (folder / f"{shard}.jsonl").write_text("".join(lines), "utf-8")
        return
    import webdataset

    with webdataset.TarWriter(str(folder / f"{shard}.tar")) as sink:
        for number in numbers:
            sink.write({"__key__": f"{number:03}", "cls": number})


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("library", ["datasets", "webdataset"])
def test_streams_of_libraries_are_shared_out_or_split_and_no_sample_is_computed_twice(
    tmp_path,
    library,
    split,
):
    pytest.importorskip(library)
    for shard in range(2):
        write_shard(library, tmp_path, shard)
    ranks = on_ranks(2, stream_of_library, library, split, str(tmp_path))
    if split:
        # each rank goes through its part, and starts over at its end
        for rank, samples in enumerate(ranks):
            assert len(samples) == len(set(samples)) == 4 * (2 + rank) - (4 * (2 + rank) > 11)
        assert not set(ranks[0]) & set(ranks[1])
    else:
        computed = [number for samples in ranks for number in samples]
        assert len(set(computed)) == len(computed) == 20
