"""The warm-up of workers: their first rounds after a start, from whose times nothing is learned."""

from dataclasses import dataclass

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.validation import whole_number


@dataclass(frozen=True)
class WarmUp:
    """How long workers warm up, and what follows for each.

    After each start of a worker its first rounds, those in which it gives a result, are its
    warm-up. The policy knows that it answered, and learns nothing from its times. A start is its
    first round, its return after it had left or was lost, and every other one that a loop tells.
    Rounds are counted and not tasks, since tasks that were computed or timed together share the
    time of the first. Ours.

    The state of a worker is ``until_known``: in how many rounds it has to give results until it is
    known: the rounds of its warm-up and one more, whose results count. It is 0 once the worker is
    known, and always where there is no warm-up.

    Args:
        rounds: The rounds of a warm-up; 0 for none.

    Raises:
        ValueError: If ``rounds`` is no whole number of at least 0.

    Example:
        >>> warm_up = WarmUp(1)
        >>> until_known = np.full(2, warm_up.at_start)
        >>> for answered in ([True, False], [True, True]):
        ...     until_known = warm_up.after_round(until_known, np.array(answered), np.zeros(2))
        ...     print(until_known, warm_up.active(until_known), warm_up.begun(until_known))
        [1 2] [False  True] [ True False]
        [0 1] [False False] [False  True]
    """

    rounds: int = 0

    def __post_init__(self) -> None:
        whole_number("warm_up", self.rounds, 0)

    @property
    def at_start(self) -> int:
        """The state of a worker that has started."""
        if self.rounds:
            return self.rounds + 1
        return 0

    def active(self, until_known: Ints) -> Mask:
        """Return which workers are in their warm-up, (n,): their next results do not count."""
        return until_known > 1

    def begun(self, until_known: Ints) -> Mask:
        """Return which workers have answered since their start, and only in their warm-up, (n,)."""
        return (until_known > 0) & (until_known < self.at_start)

    def after_round(self, until_known: Ints, answered: Mask, elapsed: Floats) -> Ints:
        """Return the states after a round, (n,).

        Args:
            until_known: (n,) the states before.
            answered: (n,) the workers with a result in the round.
            elapsed: (n,) how long each worker's cancelled task had run. It ends no warm-up, since
                the time in which code is compiled may be cancelled again and again; after the
                warm-up it tells something of the worker.
        """
        learned = answered | ((until_known == 1) & (elapsed > 0.0))
        left: Ints = np.maximum(until_known - learned, 0)
        return left
