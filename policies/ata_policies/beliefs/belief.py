"""The contract of a belief: what a policy has learned of the workers, as arrays of E rows."""

from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from ata_gym.typing import Floats, Ints, Mask


class Belief(Protocol):
    """A named tuple of arrays of E rows; what is observed gives a new one."""

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> Self:
        """Return the belief after a step.

        Args:
            worker: (E, R) whose result each one is; -1 means no result.
            duration: (E, R) the task time of each result.
            elapsed: (E, n) how long each worker's cancelled task had run; 0 where none was
                cancelled.
        """


class InitialBelief(Belief, Protocol):
    """A belief that can be made for any number of workers, as a policy names it in ``belief``."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        """Return the belief of rows that have seen nothing of n workers."""


class CountedBelief(Belief, Protocol):
    """A belief that counts the results of each worker, and adds up their times."""

    @property
    def counts(self) -> Floats:
        """(E, n) results that count."""

    @property
    def totals(self) -> Floats:
        """(E, n) their times added up."""


@runtime_checkable
class BeliefOfMeans(Belief, Protocol):
    """A belief that estimates the mean task time of each worker, which ``Policy.explain`` shows."""

    @property
    def counts(self) -> Floats:
        """(E, n) results that count."""

    def mean(self) -> Floats:
        """Return the mean task times, (E, n); NaN where unknown."""

    def untried(self) -> Mask:
        """Return of which workers nothing is known, (E, n)."""


NoPlan: TypeAlias = tuple[()]
"""The plan of a policy that keeps none."""

if TYPE_CHECKING:
    # a policy without types in brackets has any; ``typing`` has such defaults from Python 3.13 on
    from typing_extensions import TypeVar as DefaultTypeVar

    BeliefT = DefaultTypeVar("BeliefT", bound=Belief, default=Any)
    CountedT = DefaultTypeVar("CountedT", bound=CountedBelief, default=Any)
    PlanT = DefaultTypeVar("PlanT", bound=tuple[Any, ...], default=Any)
else:
    BeliefT = TypeVar("BeliefT")
    CountedT = TypeVar("CountedT")
    PlanT = TypeVar("PlanT")
