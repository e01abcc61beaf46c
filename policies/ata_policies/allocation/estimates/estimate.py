"""The contract of an estimate, a score for each worker from what counts; and the plain mean."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.validation import real
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.moments import Moments, Totals, learn_shapes, mean_times
from ata_policies.facts import Described
from ata_policies.setting import Setting


class Estimate(Described, ABC):
    """Hyperparameters of an estimate; subclasses are frozen dataclasses.

    Most score a belief with counts and totals, of any memory. An estimate with statistics of its own makes its belief
    itself (``start``), and has no other memory than everything.
    """

    deviations: ClassVar[bool] = False  # whether it needs the deviations of the task times from their mean
    gives_shape: ClassVar[bool] = False  # whether its scores tell the shapes of the task times
    own_statistics: ClassVar[str] = ""  # what its own belief keeps, where counts, totals and deviations do not do
    memory_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """Hyperparameters of a memory, by its name, that suit this estimate better than the memory's own."""

    def fit(self, setting: Setting) -> Self:
        """The estimate with the hyperparameters that follow from the setting filled in."""
        return self

    def in_words(self, setting: Setting) -> str:
        """The hyperparameters that follow from the setting, for ``explain``; by default there are none."""
        return ""

    def start(self, rows: int, n: int) -> Any:
        """The belief of an estimate with statistics of its own."""
        raise NotImplementedError

    def updated(self, belief: Any) -> Any:
        """The belief with what the estimate keeps in it for the rounds to come; by default that is nothing."""
        return belief

    def mean(self, belief: Any) -> Floats:
        """The mean task times that it goes by, (E, n); of workers never tried they mean nothing."""
        return mean_times(belief.counts, belief.totals)

    @abstractmethod
    def scores(self, belief: Any, rounds: Ints | Floats, keys: Keys) -> Scores:
        """The scores of all rows.

        ``rounds`` (E,) is the current round, or the number of rounds that count; ``keys`` (E,) are the keys of each
        row's randomness in the round.
        """


class GammaTimes(Estimate):
    """An estimate for gamma times."""

    gives_shape = True

    @abstractmethod
    def shapes(self, belief: Any) -> Any:
        """Their shapes: a number, or (E, n)."""


@dataclass(frozen=True)
class KnownShape(GammaTimes):
    """All workers' times have one shape, which is given."""

    shape: float = 1.0

    knows = "nothing; or the shape"
    assumes = "gamma times of the shape given"

    def __post_init__(self) -> None:
        real("shape", self.shape)

    def shapes(self, belief: Totals | Moments) -> float:
        return float(self.shape)


@dataclass(frozen=True)
class LearnedShapes(GammaTimes):
    """Each worker's shape is learned from its own moments, shrunk to what all workers have in common."""

    weight: float = 5.0

    deviations = True
    assumes = "gamma times, of similar shapes"

    def __post_init__(self) -> None:
        real("weight", self.weight)

    def shapes(self, belief: Moments) -> Floats:
        return learn_shapes(belief, float(self.weight))


@dataclass(frozen=True)
class Mean(Estimate):
    """The mean of the times that count: certainty equivalence, where nothing else explores.

    A worker that looks slow is never tried again, so that bad luck in the first tasks of a fast one is never repaired.
    """

    source = "the textbook rule"
    constants = "none"
    assumes = "finite means"

    def scores(self, belief: Totals, rounds: Ints | Floats, keys: Keys) -> Scores:
        return Scores(mean_times(belief.counts, belief.totals, unknown=0.0))
