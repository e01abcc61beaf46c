"""The action space of dispatch: what it accepts, and what Gymnasium does with it."""

import copy
import json
import pickle

import numpy as np
import pytest
from gymnasium.spaces import MultiBinary
from gymnasium.spaces import utils as space_utils
from gymnasium.vector import utils as vector_utils
from gymnasium.wrappers.utils import create_zero_array
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ata_gym.envs.spaces.allocation import Allocation
from ata_gym.envs.spaces.dispatch import Dispatch

SPACES = [Dispatch(3), Dispatch(3, 4), Dispatch(3, (2, 4))]


@given(
    hnp.arrays(
        hnp.integer_dtypes() | hnp.unsigned_integer_dtypes() | hnp.boolean_dtypes() | hnp.floating_dtypes(),
        st.integers(1, 4),
    )
)
def test_check_accepts_exactly_zeros_and_ones(action):
    space = Dispatch(len(action))
    legal = set(action.tolist()) <= {0, 1}
    assert (action in space) == legal
    if legal:
        checked = space.check(action)
        assert checked.dtype == np.int8
        assert checked.tolist() == action.tolist()


def test_an_int8_action_is_not_copied():
    action = np.array([1, 0, 1], np.int8)
    action.setflags(write=False)
    assert Dispatch(3).check(action) is action
    assert Dispatch(3).check([1, 0, 1]).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("space", "action", "sentence"),
    [
        (Dispatch(3), [1, 0], r"must have shape \(3,\), not \(2,\)"),
        (Dispatch(3), [0.5, 0.0, 0.0], "integer dtype such as int64, not float64"),
        (Dispatch(3), ["1", "0", "0"], "integer dtype such as int64, not <U1"),
        (Dispatch(3), [[1], [0, 0]], r"must be an array of shape \(3,\): "),
        (Dispatch(3), [0, -1, 0], "worker 1 must have 0 or 1, not -1"),
        (Dispatch(3), [0, 0, 256], "worker 2 must have 0 or 1, not 256"),
        (Dispatch(2, 2), [[0, 0], [3, 0]], "worker 0 of row 1 must have 0 or 1, not 3"),
        (Dispatch(2, (2, 1)), [[[0, 0]], [[0, 3]]], r"worker 1 of row \(1, 0\) must have 0 or 1, not 3"),
    ],
)
def test_check_says_what_is_wrong(space, action, sentence):
    with pytest.raises(ValueError, match=sentence):
        space.check(action)
    assert np.array(action, object) not in space


@pytest.mark.parametrize("arguments", [(0,), (2.0,), (True,), (3, 0), (3, (2, -1))])
def test_bad_arguments(arguments):
    with pytest.raises(ValueError, match="must be a whole number"):
        Dispatch(*arguments)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_repr_copy_pickle_json_and_seeds(space):
    assert isinstance(space, MultiBinary)
    assert eval(repr(space)) == space
    space.seed(3)
    twins = copy.deepcopy(space), pickle.loads(pickle.dumps(space))
    sample = space.sample()
    assert sample in space
    assert sample.dtype == space.dtype == np.int8
    for twin in twins:
        assert twin == space
        assert np.array_equal(twin.sample(), sample)
    (again,) = space.from_jsonable(json.loads(json.dumps(space.to_jsonable([sample]))))
    assert np.array_equal(again, sample)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_gymnasiums_functions(space):
    batch = vector_utils.batch_space(space, 5)
    assert type(batch) is Dispatch
    assert batch.shape == (5, *space.shape)
    assert batch == vector_utils.batch_differing_spaces([space] * 5)
    sample = batch.sample()
    items = list(vector_utils.iterate(batch, sample))
    assert all(item in space for item in items)
    stacked = vector_utils.concatenate(space, items, vector_utils.create_empty_array(space, 5))
    assert np.array_equal(stacked, sample)
    assert stacked.dtype == np.int8
    flat_space, flat = space_utils.flatten_space(space), space_utils.flatten(space, items[0])
    assert flat in flat_space
    assert flat_space.shape == (space_utils.flatdim(space),)
    assert np.array_equal(space_utils.unflatten(space, flat), items[0])
    assert create_zero_array(space) in space
    memory = vector_utils.create_shared_memory(space, n=5)
    for index, item in enumerate(items):
        vector_utils.write_to_shared_memory(space, index, item, memory)
    assert np.array_equal(vector_utils.read_from_shared_memory(space, memory, n=5), sample)
    assert space_utils.is_space_dtype_shape_equiv(space, copy.copy(space))


@pytest.mark.parametrize("others", [[Dispatch(4)], [Dispatch(3, 1)]])
def test_other_spaces_form_no_batch_with_it(others):
    with pytest.raises(ValueError, match="one class and one shape"):
        vector_utils.batch_differing_spaces([Dispatch(3), *others])


def test_every_function_that_knows_allocations_knows_it():
    functions = [f for module in (vector_utils, space_utils) for f in vars(module).values() if hasattr(f, "registry")]
    assert len(functions) >= 12
    for function in functions:
        assert (Allocation in function.registry) == (Dispatch in function.registry)
