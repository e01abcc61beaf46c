"""Recorded calls of a policy's ``predict`` on a batch, and rows of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ata_gym.changes import Conditions
from ata_gym.utils.trees import map_leaves
from ata_policies.checking.predict_call import Array
from ata_policies.observations import Observation
from ata_policies.policy import State


class Answer(NamedTuple):
    """What ``predict`` returns."""

    action: Array
    state: State


class Step(NamedTuple):
    """One call of ``predict``: what it was given besides the last state, and its answer."""

    round: int
    """Counted from 1 over all episodes."""
    observation: Observation
    conditions: Conditions | None
    """The privileged information; None for policies without."""
    answer: Answer


def rows_of(tree: Any, rows: slice | int) -> Any:
    """Some rows of all arrays of a tree; with an int, one row without the row axis."""
    return map_leaves(lambda leaf: leaf[rows] if isinstance(leaf, np.ndarray) else leaf, tree)


def stacked(trees: list[Any]) -> Any:
    """A batch of single rows."""
    arrays = (np.ndarray, np.generic)
    return map_leaves(lambda *parts: np.stack(parts) if isinstance(parts[0], arrays) else parts[0], *trees)


def with_first(first: Array, others: Array) -> Array:
    """The first row of one array, and the other rows of another."""
    mixed: Array = np.concatenate([first[:1], others[1:]])
    return mixed
