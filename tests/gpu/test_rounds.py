"""Rounds of ``TorchAllocator`` on CUDA, on ranks of which several may have one GPU."""

import gc
from contextlib import contextmanager, nullcontext
from functools import partial
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun.gradients import buckets  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.test_faults import what_is_let_through  # noqa: E402
from tests.cluster.torchrun.test_shares import BUDGET, DATA, alike, net, train  # noqa: E402

pytestmark = pytest.mark.gpu
MIB = 2**20
on_cuda = partial(train, device="cuda")


@contextmanager
def side_stream():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


def in_side_stream(work, *arguments):
    with side_stream():
        return work(*arguments)


WORK = {"plain": on_cuda, "split": partial(on_cuda, split=True)}
SIDE = {
    "side": partial(in_side_stream, on_cuda),
    "side forward": partial(on_cuda, within=side_stream),
}


@pytest.mark.parametrize("tasks_per_pass", [1, None])
@pytest.mark.parametrize("work", [*WORK.values(), *SIDE.values()], ids=[*WORK, *SIDE])
def test_the_gradient_is_that_of_one_process_and_a_part_is_sent_in_the_last_pass(
    work, tasks_per_pass
):
    ranks = on_ranks(3, work, tasks_per_pass)
    (expected,) = on_ranks(1, on_cuda, tasks_per_pass)
    alike(ranks, expected)
    assert any(early for rank in ranks for *_, early in rank[1:])


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.gpu(2))])
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_a_group_of_gloo_and_nccl_sums_what_is_on_either_device(size, work):
    alike(on_ranks(size, work, 1, backend="cpu:gloo,cuda:nccl"), *on_ranks(1, on_cuda, 1))


def test_keyed_noise_of_dropout_is_that_of_one_process():
    keyed = [partial(on_cuda, 1, dropout=0.5, keyed_noise=True, seed=seed) for seed in (3, 4)]
    (expected,), (other,) = (on_ranks(1, work) for work in keyed)
    alike(on_ranks(3, keyed[0]), expected)
    assert not np.allclose(other[0][0], expected[0][0])


def test_an_overflow_on_one_rank_lowers_the_scale_of_all_and_moves_no_weights():
    first, second = on_ranks(2, what_is_let_through, "cuda")
    assert first == second != 0.0


def layers(device, width, count):
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(count))).to(device)
    return model, torch.ones(width, width, device=device)


def one_round(allocator, model, x, within=nullcontext):
    """A round whose tasks are passes of one input; how many parts were sent in them, and the
    share.
    """
    with allocator.round(model) as share:
        for _ in range(share.tasks):
            with share.timed():
                with within():
                    loss = model(x).mean()
                share.backward(loss)
        early = allocator._gradients._buckets.sent
        torch.cuda.set_sync_debug_mode("default")
        share.reduce()
    model.zero_grad()
    return early, share


def order_of_events(device, width, within=nullcontext):
    """What each of three rounds sent in its passes; when the last pass began to send, when it
    ended, and a plain one.

    In the last two rounds torch raises an error where the host waits for CUDA in a pass.
    """
    (model, x), marks, results, real = layers(device, width, 8), [], [], dist.all_reduce
    allocator = TorchAllocator(2, "uta", keyed_noise=True)

    def noted(*arguments, **options):
        marks.append(allocator.share.watch.mark())  # in the stream of autograd's thread
        return real(*arguments, **options)

    with (
        mock.patch.object(buckets.dist, "all_reduce", noted),
        mock.patch.object(buckets, "_SIZE", 8 * width**2),
    ):
        for mode in ("default", "error", "error"):
            marks.clear()
            torch.cuda.set_sync_debug_mode(mode)
            early, share = one_round(allocator, model, x, within)
            results.append(early)
    watch = share.watch
    batch = share._timed[-1]
    plain = watch.mark()
    model(x).mean().backward()
    alone = watch.seconds(plain, watch.mark())
    return (
        results,
        watch.seconds(batch.start, marks[0]),
        watch.seconds(batch.start, batch.end),
        alone,
    )


ASIDE = {
    "side": partial(in_side_stream, order_of_events),
    "side forward": partial(order_of_events, within=side_stream),
}


@pytest.mark.parametrize("work", [order_of_events, *ASIDE.values()], ids=["plain", *ASIDE])
def test_a_part_is_sent_before_the_device_ends_the_task_and_the_host_waits_for_nothing_before(work):
    (((unknown, *sent), first, end, alone),) = on_ranks(1, work, "cuda", 4096, backend="nccl")
    assert unknown == 0 < min(sent)
    assert first < end
    assert end > 0.2 * alone  # launching takes microseconds, the products milliseconds


def peaks(passes):
    """The peak memory of plain passes and of two rounds, above what is held before, and the size of
    the gradient.
    """
    (model, x), results, allocator = layers("cuda", 1024, 16), [], TorchAllocator(passes, "uta")
    model(x).mean().backward()  # libraries reserve memory of their own
    model.zero_grad()
    gc.collect()  # what earlier tests in this process have left
    held = torch.cuda.memory_allocated()
    with mock.patch.object(buckets, "_SIZE", 4 * MIB):
        for plain in (True, False, False):
            torch.cuda.reset_peak_memory_stats()
            if plain:
                _ = [model(x).mean().backward() for _ in range(passes)]
            else:
                _ = one_round(allocator, model, x)
            results.append(torch.cuda.max_memory_allocated() - held)
            model.zero_grad()
    return results, sum(4 * parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("passes", [1, 3])
def test_a_round_needs_the_memory_of_plain_passes_and_of_one_more_gradient_if_it_has_one_pass(
    passes,
):
    (((plain, *rounds), gradient),) = on_ranks(1, peaks, passes, backend="nccl")
    # plain passes keep the gradient, too, while the next one runs
    if passes == 1:
        more = gradient
    else:
        more = 0
    assert max(rounds) <= plain + more + 8 * MIB  # of 64 MiB, in buckets of 4 MiB


def where_memory_lacks(limit):
    """The sizes of the passes in two rounds, and how much the memory that is held before each pass
    differs.
    """
    model = net(device="cuda")
    allocator = TorchAllocator(BUDGET, "uta")
    samples = []
    loader = DataLoader(DATA, batch_sampler=TaskSampler(allocator, DATA, tasks_per_pass=None))

    def loss_of(batch):
        samples.append((len(batch[2]), torch.cuda.memory_allocated()))
        # 64 MiB a sample, and backward as much
        return model(batch[2].cuda()).float().expand(-1, 2**24).exp().sum()

    loss_of(DATA[:1]).backward()
    model.zero_grad()
    gc.collect()
    torch.cuda.empty_cache()
    memory_limit = torch.cuda.memory_reserved() + limit * MIB
    torch.cuda.set_per_process_memory_fraction(memory_limit / torch.cuda.mem_get_info()[1])
    for _ in range(2):
        with allocator.round(model) as share:
            share.compute(loader, loss_of)
            share.reduce()
        model.zero_grad()
    torch.cuda.set_per_process_memory_fraction(1.0)
    tried, held = zip(*samples[1:], strict=True)
    return list(tried), max(held) - min(held)


@pytest.mark.parametrize(("limit", "expected"), [(500, [6, 3, 3, 3, 3]), (300, [6, 3, *[1] * 12])])
def test_a_share_that_lacks_memory_gives_it_back_and_goes_on_with_less(limit, expected):
    ((tried, differs),) = on_ranks(1, where_memory_lacks, limit)
    assert tried == expected
    assert differs < MIB
