"""What Gymnasium's functions and vector envs do with the action spaces."""

import importlib
import math
import pkgutil

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.spaces import utils as space_utils
from gymnasium.vector import utils as vector_utils
from gymnasium.wrappers import utils as wrapper_utils
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.envs.spaces import Allocation, Dispatch, RaceAllocation

CLASSES = [Allocation, RaceAllocation]
SPACES = [*(c(3, 5) for c in CLASSES), Dispatch(3)]
counts = st.integers(1, 12)


def dispatching(*modules):
    """Find the public functions of some modules that dispatch on the class of a space."""
    names = [(name, f) for module in modules for name, f in vars(module).items()]
    return {name: f for name, f in names if hasattr(f, "dispatch") and not name.startswith("_")}


@pytest.mark.parametrize("space_class", [*CLASSES, Dispatch])
def test_every_dispatching_function_knows_the_space(space_class):
    names = [found.name for found in pkgutil.walk_packages(vector_utils.__path__, "gymnasium.vector.utils.")]
    functions = dispatching(space_utils, wrapper_utils, *map(importlib.import_module, names))
    assert set(dispatching(vector_utils)) < set(functions)
    assert len(functions) >= 14
    for name, function in functions.items():
        assert space_class in function.registry, f"{name} is not registered"


@settings(max_examples=25)
@given(st.sampled_from(CLASSES), counts, counts, st.integers(1, 5))
def test_batching_and_its_way_back(space_class, n, budget, size):
    space = space_class(n, budget, seed=1)
    batch = vector_utils.batch_space(space, size)
    assert type(batch) is space_class
    assert batch.shape == (size, *space.shape)
    assert batch == vector_utils.batch_differing_spaces([space] * size)
    sample = batch.sample()
    items = list(vector_utils.iterate(batch, sample))
    assert all(item in space for item in items)
    empty = vector_utils.create_empty_array(space, size)
    assert (empty.shape, empty.dtype) == (batch.shape, space.dtype)
    stacked = vector_utils.concatenate(space, items, empty)
    assert stacked is empty
    assert np.array_equal(stacked, sample)


def test_dispatch_batches_and_flattens_as_a_multi_discrete():
    space, plain = Dispatch(3), MultiDiscrete([2, 2, 2])
    assert vector_utils.batch_space(space, 4) == vector_utils.batch_space(plain, 4) == Box(0, 1, (4, 3), np.int64)
    assert vector_utils.batch_differing_spaces([space, space]) == Box(0, 1, (2, 3), np.int64)
    assert space_utils.flatten_space(space) == space_utils.flatten_space(plain)
    assert space_utils.flatten(space, np.array([0, 1, 1])).tolist() == [1, 0, 0, 1, 0, 1]


def test_a_batch_draws_nothing_from_the_generator_of_its_space():
    space, twin = Allocation(9, 20, seed=1), Allocation(9, 20, seed=1)
    for batch in (vector_utils.batch_space(space, 3), vector_utils.batch_differing_spaces([space, space])):
        batch.sample()
    assert np.array_equal(space.sample(), twin.sample())


def test_spaces_that_differ_form_no_batch():
    for spaces in ([Allocation(3, 5), Allocation(3, 7)], [Allocation(3, 5), RaceAllocation(3, 5)]):
        with pytest.raises(ValueError, match="spaces must be equal to form a batch"):
            vector_utils.batch_differing_spaces(spaces)
    with pytest.raises(ValueError, match="a batch cannot be batched again"):
        vector_utils.batch_space(Allocation(3, 5, rows=2), 3)


def test_spaces_are_equivalent_by_class_shape_and_dtype():
    equivalent = space_utils.is_space_dtype_shape_equiv
    assert equivalent(Allocation(3, 5), Allocation(3, 7))
    assert equivalent(Dispatch(3), Dispatch(3))
    assert not equivalent(Allocation(3, 5), Allocation(4, 5))
    assert not equivalent(Allocation(3, 5), RaceAllocation(3, 5))
    assert not equivalent(Allocation(3, 5), Box(0, 5, (3,), np.int64))


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_shared_memory(space):
    memory = vector_utils.create_shared_memory(space, n=3)
    batch = vector_utils.read_from_shared_memory(space, memory, n=3)
    samples = [space.sample() for _ in range(3)]
    for index, sample in enumerate(samples):
        vector_utils.write_to_shared_memory(space, index, sample, memory)
    assert np.array_equal(batch, np.stack(samples))
    assert batch in vector_utils.batch_space(space, 3)


@pytest.mark.parametrize("space", [*SPACES[:-1], Allocation(3, 5, rows=4)], ids=repr)
def test_flattening(space):
    flat_space, sample = space_utils.flatten_space(space), space.sample()
    flat = space_utils.flatten(space, sample)
    assert space.is_np_flattenable
    assert isinstance(flat_space, Box)
    assert flat_space.shape == (space_utils.flatdim(space),) == (math.prod(space.shape),)
    assert flat in flat_space
    assert flat.dtype == space.dtype
    assert np.array_equal(space_utils.unflatten(space, flat), sample)
    assert (flat_space.high == space.budget).all()


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_the_least_element(space):
    assert wrapper_utils.create_zero_array(space) in space
