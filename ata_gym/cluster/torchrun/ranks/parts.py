"""What a rank sends about its part of a round."""

from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from ata_gym.typing import Floats

Number = TypeVar("Number", float, Floats)


class RankPart(NamedTuple, Generic[Number]):
    """What a rank sends about its part of a round.

    Each field is a number. In the parts of all ranks it has an axis of ranks, shape (n,).
    """

    elapsed: Number
    """The seconds from the round's start until the rank had computed its tasks."""
    latency: Number
    """The part of them before the rank's first task, and after its last one."""
    loss: Number
    """The part of the mean loss that its tasks have."""
    leaves: Number
    """1 if the rank takes no tasks from the next round on, else 0."""
    checksum: Number
    """A checksum, of 24 bits, of the allocation, and at times of the policy's state, too."""
    layout: Number
    """A checksum of the forms of the gradients, of 24 bits."""
    samples: Number
    """A checksum, of 24 bits, of the order of samples that it follows.

    It is 0 if the rank follows no order in this round."""
    weight: Number
    """The sum of the weights of its losses; 0 where they have none."""
    weights: Number
    """A fingerprint of the weights of the models in some rounds, 0 in the others."""
    fault: Number
    """What is wrong with its tasks.

    It is a ``Fault``, plus ``len(Fault)`` times the place of the parameter."""
    first_batch: Number
    """A checksum, of 24 bits, of the first batch of a loader that shares nothing out.

    It is 0 once it was compared with the checksums of the other ranks."""
    second_batch: Number
    """The same of its second batch; 0 if there was none yet."""
    passes: Number
    """The kind of its backward passes, a ``Passes``."""
    accumulated: Number
    """The sum of the weights of the earlier rounds to whose gradients this round's are added."""
    changed_buffers: Number
    """Whether its tasks changed buffers that are not sent with the gradient."""
    older_rounds: Number
    """The number of these rounds, plus 1.

    It is 0 if the rank's parts of all gradients are 0, so that they do not tell."""


class LayoutChange(NamedTuple):
    """Whether the layout of a rank's gradients is another one than all ranks had last."""

    has_changed: bool
    partners: frozenset[int]
    """The ranks of its replica with which it takes sums of parts of a gradient.

    They take them together only if the layouts of all of them have changed, or of none."""


NO_CHANGE = LayoutChange(has_changed=False, partners=frozenset())


class Passes(IntEnum):
    """The kind of the backward passes of a rank in a round."""

    NONE = 0
    SKIPPED = 1
    """It has none, since its tasks are said to have no gradient."""
    UNWEIGHTED = 2
    """Each loss is a mean."""
    WEIGHTED = 3
    """Each loss is a sum, and has a weight, maybe 0."""


class Fault(IntEnum):
    """What may be wrong with the tasks of a rank, so that no rank takes the step."""

    NONE = 0
    LOSS = 1
    MEAN_OF_NOTHING = 2
    GRADIENT = 3
    CHANGED = 4
    SECOND_PASS = 5
    FAILED = 6
    REPLICA = 7
    SPARSE = 8
