"""The action spaces: their rule, their samples, the Python objects they are, and what Gymnasium
does with them.
"""

import copy
import importlib
import itertools
import json
import math
import pickle
import pkgutil

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, utils as space_utils
from gymnasium.vector import utils as vector_utils
from gymnasium.wrappers import utils as wrapper_utils
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import chisquare

from ata_gym.envs.spaces import Allocation, Dispatch, RaceAllocation

CLASSES = [Allocation, RaceAllocation]
counts = st.integers(1, 12)


def legal(space_class, tasks, budget):
    total = sum(int(t) for t in tasks)
    in_range = all(0 <= int(t) <= budget for t in tasks)
    return in_range and (total >= budget if space_class is RaceAllocation else total == budget)


def elements(space_class, n, budget):
    return [
        v for v in itertools.product(range(budget + 1), repeat=n) if legal(space_class, v, budget)
    ]


INTEGERS = hnp.integer_dtypes() | hnp.unsigned_integer_dtypes()


@settings(max_examples=100)
@given(
    st.sampled_from(CLASSES),
    st.integers(1, 4),
    hnp.arrays(
        np.int64,
        st.integers(1, 4),
        elements=st.integers(-1, 5) | st.integers(-(2**63), 2**63 - 1),
    )
    | hnp.arrays(INTEGERS, st.integers(1, 4), elements=st.integers(0, 3)),
)
def test_check_accepts_exactly_the_elements_of_every_integer_dtype(space_class, budget, action):
    space = space_class(len(action), budget)
    assert (action in space) == legal(space_class, action, budget)
    if action in space:
        checked = space.check(action)
        assert (checked.dtype, checked.tolist()) == (np.int64, action.tolist())


def test_check_takes_lists_views_and_its_own_array_uncopied():
    assert Allocation(3, 5).check([5, 0, 0]).tolist() == [5, 0, 0]
    assert Allocation(3, 5).check(np.array([5, 9, 0, 9, 0, 9])[::2]).tolist() == [5, 0, 0]
    assert Dispatch(3).check([1, 0, 1]).tolist() == [1, 0, 1]
    for space, action in (
        (Allocation(3, 5), np.array([1, 2, 2])),
        (Dispatch(3), np.array([1, 0, 1], np.int8)),
    ):
        action.setflags(write=False)
        assert space.check(action) is action


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no numbers here")


INT64 = 2**63 - 1
WRONG = [
    ([5, 0], r"must have shape \(3,\), not \(2,\)"),
    (5, r"must have shape \(3,\), not \(\)"),
    (None, r"must have shape \(3,\), not \(\)"),
    ([[5], [0, 0]], r"must be an array of shape \(3,\): "),
    (Unreadable(), r"must be an array of shape \(3,\): no numbers here"),
    (np.array([5.0, 0.0, 0.0]), "integer dtype such as int64, not float64"),
    (np.array([True, False, False]), "integer dtype such as int64, not bool"),
    (np.array([5, 0, 0], dtype=object), "integer dtype such as int64, not object"),
    (["5", "0", "0"], "integer dtype such as int64, not <U1"),
    ([2**70, 0, 0], "integer dtype such as int64, not object"),
    ([5, -1, 1], "worker 1 must have 0 or more tasks, not -1"),
    ([0, -(2**63), 0], f"worker 1 must have 0 or more tasks, not -{2**63}"),
    ([0, 0, 6], "worker 2 must have at most 5 tasks, the budget, not 6"),
    (
        np.array([2**64 - 1, 6, 0], dtype=np.uint64),
        f"worker 0 must have at most 5 tasks.* {2**64 - 1}",
    ),
    ([INT64, INT64, 7], f"worker 0 must have at most 5 tasks, the budget, not {INT64}"),
    ([2, 2, 0], r"the tasks must sum to (at least )?the budget of 5, not to 4"),
]
WRONG_DISPATCH = [
    ([1, 0], r"must have shape \(3,\), not \(2,\)"),
    ([0.5, 0.0, 0.0], "integer dtype such as int64, not float64"),
    (["1", "0", "0"], "integer dtype such as int64, not <U1"),
    ([[1], [0, 0]], r"must be an array of shape \(3,\): "),
    ([0, -1, 0], "worker 1 must have 0 or 1, not -1"),
    ([0, 0, 256], "worker 2 must have 0 or 1, not 256"),
]


@pytest.mark.parametrize(
    ("space", "action", "sentence"),
    [
        *((space_class(3, 5), *wrong) for space_class in CLASSES for wrong in WRONG),
        *((Dispatch(3), *wrong) for wrong in WRONG_DISPATCH),
    ],
)
def test_check_says_what_is_wrong(space, action, sentence):
    with pytest.raises(ValueError, match=sentence):
        space.check(action)
    assert action not in space


@pytest.mark.parametrize("space_class", CLASSES)
def test_sums_do_not_overflow(space_class):
    budget = 2**50  # the largest
    n = 2**14 + 1
    space = space_class(n, budget)
    assert [budget] + [0] * (n - 1) in space
    for wrapped, busy in ((0, 2**14), (budget, n)):  # int64 sums of so many budgets wrap around
        action = np.where(np.arange(n) < busy, budget, 0)
        assert (action.sum(), action in space) == (wrapped, space_class is RaceAllocation)


def test_check_names_the_row():
    space = Allocation(2, 3, rows=4)
    action = np.array([[3, 0], [0, 3], [2, 2], [1, 2]])
    with pytest.raises(
        ValueError,
        match="the tasks of row 2 must sum to the budget of 3, not to 4",
    ):
        space.check(action)
    assert action in RaceAllocation(2, 3, rows=4)
    with pytest.raises(ValueError, match=r"must have shape \(4, 2\), not \(2,\)"):
        space.check([3, 0])
    action[1] = [-1, 4]
    with pytest.raises(ValueError, match="worker 0 of row 1 must have 0 or more tasks, not -1"):
        space.check(action)


@pytest.mark.parametrize("space_class", CLASSES)
@pytest.mark.parametrize("wrong", [0, 1.0])
def test_the_constructor_refuses_what_is_no_count(space_class, wrong):
    with pytest.raises(ValueError, match="n_workers must be a whole number from 1 to"):
        space_class(wrong, 3)
    with pytest.raises(ValueError, match="budget must be a"):
        space_class(3, wrong)
    with pytest.raises(ValueError, match="rows must be a whole number from 1 to"):
        space_class(3, 3, rows=wrong)


@pytest.mark.parametrize(
    ("n", "budget", "rows"),
    [(1, 3, None), (2, 5, 50), (3, 4, None), (6, 2, 50)],
)
@pytest.mark.parametrize("space_class", CLASSES)
def test_samples_are_uniform(space_class, n, budget, rows):
    space = space_class(n, budget, rows=rows, seed=7)
    all_elements = elements(space_class, n, budget)
    draws = 40 * len(all_elements) // (rows or 1) + 1
    sample = np.stack([space.sample() for _ in range(draws)]).reshape(-1, n)
    distinct, observed = np.unique(sample, axis=0, return_counts=True)
    assert {tuple(v) for v in distinct.tolist()} <= set(all_elements)
    observed = np.append(observed, np.zeros(len(all_elements) - len(observed)))
    if len(all_elements) > 1:
        assert chisquare(observed).pvalue > 1e-3


@pytest.mark.parametrize("argument", ["mask", "probability"])
def test_sample_refuses_masks(argument):
    with pytest.raises(gym.error.Error, match=f"Allocation.sample cannot be provided a {argument}"):
        Allocation(3, 5).sample(**{argument: np.ones(3, dtype=np.int8)})
    with pytest.raises(gym.error.Error, match=argument):
        Dict(a=Allocation(3, 5)).sample(**{argument: {"a": np.ones(3, dtype=np.int8)}})


@settings(max_examples=30)
@given(hnp.arrays(INTEGERS | hnp.boolean_dtypes() | hnp.floating_dtypes(), st.integers(1, 4)))
def test_dispatch_accepts_exactly_zeros_and_ones(action):
    space = Dispatch(len(action))
    legal = set(action.tolist()) <= {0, 1}
    assert (action in space) == legal
    if legal:
        checked = space.check(action)
        assert (checked.dtype, checked.tolist()) == (np.int8, action.tolist())


ALLOCATIONS = [c(*a) for c in CLASSES for a in ((3, 5), (3, 5, 4), (3, 6))]
SPACES = [*ALLOCATIONS, Dispatch(3), Dispatch(4)]


def test_equality_tells_all_spaces_apart():
    other_spaces = [None, Discrete(3), Box(0, 5, (3,), np.int64)]
    other_spaces += [Allocation(4, 5), Allocation(3, 4), Allocation(3, 5, 1)]
    for (i, a), (j, b) in itertools.product(
        enumerate(ALLOCATIONS), enumerate(SPACES + other_spaces)
    ):
        assert (a == b, a != b) == (i == j, i != j)
    assert len(set(ALLOCATIONS)) == len(ALLOCATIONS)
    assert hash(Allocation(3, 5, seed=1)) == hash(Allocation(3, 5, seed=2))
    assert Allocation(3, 5, seed=1) == Allocation(3, 5, seed=2)
    assert Allocation(np.int32(3), np.uint8(5), np.int64(2)) == Allocation(3, 5, 2)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_repr_copy_pickle_and_json(space):
    assert eval(repr(space)) == space
    assert len(repr(space)) < 32
    space.seed(3)
    twins = [copy.deepcopy(space), pickle.loads(pickle.dumps(space))]
    assert all(twin == space and type(twin) is type(space) for twin in (*twins, copy.copy(space)))
    sample = space.sample()
    assert all(np.array_equal(twin.sample(), sample) for twin in twins)
    samples = [sample, space.sample()]
    again = space.from_jsonable(json.loads(json.dumps(space.to_jsonable(samples))))
    assert all(
        a.dtype == space.dtype == b.dtype and np.array_equal(a, b)
        for a, b in zip(again, samples, strict=True)
    )
    assert all(sample in space for sample in samples)
    if space in ALLOCATIONS:
        with pytest.raises(ValueError, match="integer dtype"):
            space.from_jsonable([(space.sample() / 1).tolist()])


OF_THREE = [*(c(3, 5) for c in CLASSES), Dispatch(3)]


def dispatching(*modules):
    names = [(name, f) for module in modules for name, f in vars(module).items()]
    return {name: f for name, f in names if hasattr(f, "dispatch") and not name.startswith("_")}


@pytest.mark.parametrize("space_class", [*CLASSES, Dispatch])
def test_every_dispatching_function_knows_the_space(space_class):
    names = [
        module.name
        for module in pkgutil.walk_packages(vector_utils.__path__, "gymnasium.vector.utils.")
    ]
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
    assert (batch.shape, batch) == (
        (size, *space.shape),
        vector_utils.batch_differing_spaces([space] * size),
    )
    assert all(wrapper_utils.create_zero_array(one) in one for one in (space, batch))
    sample = batch.sample()
    items = list(vector_utils.iterate(batch, sample))
    assert all(item in space for item in items)
    empty = vector_utils.create_empty_array(space, size)
    assert (empty.shape, empty.dtype) == (batch.shape, space.dtype)
    stacked = vector_utils.concatenate(space, items, empty)
    assert stacked is empty
    assert np.array_equal(stacked, sample)


def test_dispatch_batches_and_flattens_as_a_multi_discrete():
    space = Dispatch(3)
    plain = MultiDiscrete([2, 2, 2])
    assert (
        vector_utils.batch_space(space, 4)
        == vector_utils.batch_space(plain, 4)
        == Box(0, 1, (4, 3), np.int64)
    )
    assert vector_utils.batch_differing_spaces([space, space]) == Box(0, 1, (2, 3), np.int64)
    assert space_utils.flatten_space(space) == space_utils.flatten_space(plain)
    assert space_utils.flatten(space, np.array([0, 1, 1])).tolist() == [1, 0, 0, 1, 0, 1]


def test_a_batch_draws_nothing_from_the_generator_of_its_space():
    space = Allocation(9, 20, seed=1)
    twin = Allocation(9, 20, seed=1)
    for batch in (
        vector_utils.batch_space(space, 3),
        vector_utils.batch_differing_spaces([space, space]),
    ):
        batch.sample()
    assert np.array_equal(space.sample(), twin.sample())


def test_spaces_that_differ_form_no_batch():
    for spaces in ([Allocation(3, 5), Allocation(3, 7)], [Allocation(3, 5), RaceAllocation(3, 5)]):
        with pytest.raises(ValueError, match="spaces must be equal to form a batch"):
            vector_utils.batch_differing_spaces(spaces)
    with pytest.raises(ValueError, match="a batch cannot be batched again"):
        vector_utils.batch_space(Allocation(3, 5, rows=2), 3)


@pytest.mark.parametrize("space", [*OF_THREE[:-1], Allocation(3, 5, rows=4)], ids=repr)
def test_flattening(space):
    flat_space = space_utils.flatten_space(space)
    sample = space.sample()
    flat = space_utils.flatten(space, sample)
    assert space.is_np_flattenable
    assert flat_space == Box(0, space.budget, (math.prod(space.shape),), np.int64)
    assert flat in flat_space
    assert len(flat) == space_utils.flatdim(space)
    assert np.array_equal(space_utils.unflatten(space, flat), sample)


@pytest.mark.parametrize("space", [*OF_THREE, Allocation(3, 5, rows=4)], ids=repr)
def test_a_space_is_not_taken_for_a_discrete_one(space):
    """Libraries that do not look at the class of a space look for ``n``, how many choices there
    are.
    """
    assert not hasattr(space, "n")
    assert space.n_workers == 3
