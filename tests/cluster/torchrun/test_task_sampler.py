"""Every sample once in an epoch and never twice in a round, whatever the allocations."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from ata_gym.cluster import TaskSampler


def played(size, budget, rounds, splits, **arguments):
    """The samples of each round, in the order of the ranks, where each rank has a sampler of its own."""
    allocator = SimpleNamespace(budget=budget)
    samplers = [TaskSampler(allocator, size, **arguments) for _ in range(5)]
    for number in range(rounds):
        allocator.rounds, first, found = number, 0, []
        for sampler, tasks in zip(samplers, splits(number), strict=False):
            allocator.share = SimpleNamespace(tasks=tasks, first=first, done=0, orders=[])
            first += tasks
            found += [sample for batch in sampler for sample in batch]
        yield found


def random_splits(budget, seed):
    """Other shares and another number of ranks in each round."""

    def split(number):
        rng = np.random.default_rng([seed, number])
        return rng.multinomial(budget, rng.dirichlet(np.ones(rng.integers(1, 6)))).tolist()

    return split


@settings(max_examples=25)
@given(
    st.integers(1, 7), st.integers(1, 3), st.integers(1, 4), st.integers(0, 60), st.booleans(), st.integers(0, 2**32)
)
def test_an_epoch_has_each_sample_once_and_a_round_none_twice(budget, samples, together, more, shuffle, seed):
    size = 2 * budget * samples + more
    rounds = -(-3 * size // (budget * samples))
    arguments = {"samples": samples, "together": together, "shuffle": shuffle, "seed": seed}
    computed = list(played(size, budget, rounds, random_splits(budget, seed), **arguments))
    for found in computed:
        assert len(set(found)) == len(found) == budget * samples
    stream = [sample for found in computed for sample in found]
    for epoch in range(3):
        assert sorted(stream[epoch * size : (epoch + 1) * size]) == list(range(size))
    assert computed == list(played(size, budget, rounds, lambda _: [budget], **arguments))


def test_epochs_have_other_orders_and_so_have_seeds():
    orders = [TaskSampler(SimpleNamespace(budget=4), 64, seed=seed).samples_from(0, 192) for seed in (0, 1)]
    parts = [tuple(order[start : start + 64]) for order in orders for start in (0, 64, 128)]
    assert len(set(parts)) == 6


def test_bad_arguments_are_named():
    for wrong in ({"samples": 0}, {"together": 1.5}, {"seed": -1}, {"shuffle": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TaskSampler(SimpleNamespace(budget=4), 10, **wrong)
    with pytest.raises(ValueError, match="number of samples"):
        TaskSampler(SimpleNamespace(budget=4), [])
