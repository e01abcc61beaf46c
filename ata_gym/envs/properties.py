"""The properties that all envs have, single and vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.envs.batch_state import BatchState
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats, Mask


class EnvProperties:
    """A mixin: the scenario of an env, its privileged information and its checkpoints."""

    scenario: Scenario
    """The pool, its changes, the budget, the horizon and the price; its name is "" if it has none."""
    _state_class: type[Any]
    """The ``BatchState`` of this id."""
    _state: BatchState
    _ended: Mask
    """(E,) rows that need a reset before their next step."""

    @property
    def pool(self) -> Pool:
        """The workers and the distributions of their task times."""
        return self.scenario.pool

    @property
    def n(self) -> int:
        """How many workers there are."""
        return self.scenario.pool.n

    @property
    def budget(self) -> int:
        """Results B that a round needs."""
        return self.scenario.budget

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode; None: no end."""
        return self.scenario.horizon

    @property
    def price(self) -> float:
        """What one unit of worker time costs in units of runtime."""
        return self.scenario.price

    def conditions(self) -> Conditions:
        """Privileged information: what the workers are like in the coming round, or in the one that has begun.

        The arrays have a leading row axis in a vector env only.
        """
        return self._state.conditions()

    def means(self) -> Floats:
        """Exact mean task times under these conditions, shape (n,), or (E, n) of a vector env.

        The mean is infinite for a worker that is away from the round's start. For a trace replayed by round it is the
        recorded time of the round. Without changes the other means are those of the pool.
        """
        return self._state.conditions().means(self.pool)

    def checkpoint(self) -> dict[str, NDArray[Any]]:
        """Everything that the env remembers, as arrays to save; after ``restore`` it goes on bit for bit."""
        return self._state.checkpoint(self._ended)

    def restore(self, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``checkpoint`` of an env of the same scenario and as many rows.

        Raises
        ------
        ValueError
            If it does not fit; the env stays as it was.
        """
        self._state.restore(checkpoint, self._ended)
