from typing import Any, NamedTuple

import numpy as np
import pytest

from ata_gym.utils.trees import choose_rows, difference, finite, leaves, map_leaves, rebuild


class Pair(NamedTuple):
    count: Any
    rest: Any


TREE = Pair(np.arange(3), ({"key": [np.ones(2), 4.0], "none": None}, (), 5))


def test_a_tree_is_rebuilt_from_its_named_leaves_and_mapped() -> None:
    names, values = zip(*leaves(TREE, "state"), strict=True)
    assert names == ("state.count", "state.rest.0.key.0", "state.rest.0.key.1", "state.rest.2")
    assert [name for name, _ in leaves(TREE)] == [name.removeprefix("state.") for name in names]
    assert [*leaves(3, "alone"), *leaves(None, "nothing")] == [("alone", 3)]
    rebuilt = rebuild(TREE, values)
    assert type(rebuilt) is Pair
    assert type(rebuilt.rest[0]["key"]) is list
    assert rebuilt.rest[0]["none"] is None
    assert difference(TREE, rebuilt) is None
    doubled = map_leaves(lambda first, second: first + second, TREE, TREE)
    assert (doubled.count.tolist(), doubled.rest[0]["key"][1]) == ([0, 2, 4], 8.0)
    with pytest.raises(ValueError, match="argument 2"):
        map_leaves(lambda first, second: first + second, TREE, Pair(1, 2))
    for count, word in ((3, "fewer"), (5, "more")):
        with pytest.raises(ValueError, match=word):
            rebuild(TREE, range(count))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_found_anywhere(number: float) -> None:
    good = {
        "loss": 1.0,
        "rest": [np.arange(3), None, "nan", object(), np.ones(2, np.complex64), np.array([None])],
    }
    assert finite(good)
    for bad in (number, complex(0, number), np.float16(number), np.array([[0.0, number]])):
        assert not finite(bad)
        assert not finite(good | {"last": (TREE, Pair(3, [bad]))})


def test_tensors_are_looked_into() -> None:
    torch = pytest.importorskip("torch")
    for number, good in ((1.0, True), (np.inf, False)):
        tensor = torch.tensor([0.0, number], requires_grad=True)
        assert finite([tensor, torch.tensor([1, 2]), tensor.to(torch.bfloat16)]) is good
        assert finite(tensor.to_sparse()) is good


def test_rows_are_chosen_by_a_mask() -> None:
    zeros, ones = (Pair(np.full(2, v), np.full((2, 3, 1), v)) for v in (0, 1))
    chosen = choose_rows(np.array([False, True]), zeros, ones)
    assert type(chosen) is Pair
    assert (chosen.count.tolist(), chosen.rest[:, :, 0].tolist()) == ([1, 0], [[1] * 3, [0] * 3])


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (TREE._replace(count=np.array([0, 1, 3])), "count"),
        (TREE._replace(count=np.arange(3, dtype=np.int32)), "count"),
        (TREE._replace(count=np.arange(3)[None]), "count"),
        (TREE._replace(rest=None), "rest.0.key.0"),
    ],
)
def test_the_first_difference_is_named(other: Pair, name: str) -> None:
    assert difference(TREE, TREE) is None
    assert (difference(TREE, other), difference(other, TREE)) == (name, name)
    assert difference(np.array([np.nan]), np.array([np.nan])) is None
    assert difference([0.0], [-0.0]) == "0"
