"""The contract of an estimate, a score for each worker from what counts; and the plain mean."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self

from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.validation import real
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.belief import CountedT
from ata_policies.beliefs.moments import Moments, Totals, learn_shapes, mean_times
from ata_policies.facts import Described
from ata_policies.setting import Setting


class Estimate(Described, ABC, Generic[CountedT]):
    """Hyperparameters of an estimate; subclasses are frozen dataclasses.

    Most estimates score a belief with counts and totals, of any memory. An estimate with statistics
    of its own makes its belief itself (``start``), and has no other memory than everything.
    """

    deviations: ClassVar[bool] = False
    """Whether it needs the deviations of the task times from their mean."""
    gives_shape: ClassVar[bool] = False
    """Whether its scores tell the shapes of the task times."""
    own_statistics: ClassVar[str] = ""
    """What its own belief keeps, where counts, totals and deviations are not enough."""
    memory_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """Hyperparameters of a memory, by its name, in place of the memory's own defaults."""

    def fit(self, setting: Setting) -> Self:
        """Return the estimate with the hyperparameters that follow from the setting filled in."""
        return self

    def describe_fit(self, setting: Setting) -> str:
        """Return the hyperparameters that follow from the setting as text for ``explain``.

        By default there are none, and the text is empty.
        """
        return ""

    def start(self, rows: int, n: int) -> CountedT:
        """Return the first belief of an estimate with statistics of its own.

        Args:
            rows: Rows E of the batch.
            n: Workers.
        """
        raise NotImplementedError

    def updated(self, belief: CountedT) -> CountedT:
        """Return the belief with what the estimate keeps in it for the rounds to come.

        By default the estimate keeps nothing.
        """
        return belief

    def mean(self, belief: CountedT) -> Floats:
        """Return the mean task times that it goes by, (E, n).

        The values of workers never tried mean nothing.
        """
        return mean_times(belief.counts, belief.totals)

    @abstractmethod
    def scores(self, belief: CountedT, rounds: Ints | Floats, keys: Keys) -> Scores:
        """Return the scores of all rows.

        Args:
            belief: What counts, for E rows of n workers.
            rounds: (E,) the current round, from 1 on, or the number of rounds that count.
            keys: (E,) the keys of each row's randomness in the round.
        """


class GammaTimes(Estimate[CountedT]):
    """An estimate for gamma times."""

    gives_shape = True

    @abstractmethod
    def shapes(self, belief: CountedT) -> float | Floats:
        """Return the shapes of the task times: a number, or (E, n)."""


@dataclass(frozen=True)
class KnownShape(GammaTimes[Totals | Moments]):
    """All workers' times have one shape, which is given.

    Args:
        shape: 1 / (standard deviation / mean)^2 of the times, above 0.
    """

    shape: float = 1.0

    knows = "nothing; or the shape"
    assumes = "gamma times of the shape given"

    def __post_init__(self) -> None:
        real("shape", self.shape)

    def shapes(self, belief: Totals | Moments) -> float:
        return float(self.shape)


@dataclass(frozen=True)
class LearnedShapes(GammaTimes[Moments]):
    """Each worker's shape is learned from its own moments, shrunk to the shape of all workers.

    Args:
        weight: Tasks that the other workers' shapes count for, above 0.
    """

    weight: float = 5.0

    deviations = True
    assumes = "gamma times, of similar shapes"

    def __post_init__(self) -> None:
        real("weight", self.weight)

    def shapes(self, belief: Moments) -> Floats:
        return learn_shapes(belief, float(self.weight))


@dataclass(frozen=True)
class Mean(Estimate[Totals]):
    """The mean of the times that count: certainty equivalence, where nothing else explores.

    A worker that looks slow is never tried again. Long times of a fast worker's first tasks are
    therefore never corrected.
    """

    source = "the textbook rule"
    constants = "none"
    assumes = "finite means"

    def scores(self, belief: Totals, rounds: Ints | Floats, keys: Keys) -> Scores:
        return Scores(mean_times(belief.counts, belief.totals, unknown=0.0))
