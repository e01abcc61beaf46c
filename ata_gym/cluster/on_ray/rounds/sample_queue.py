"""The samples of the next tasks: each index once, in nearly the given order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

from ata_gym.utils.validation import whole_number


class SampleQueue:
    """The indices 0, 1, ... of a run's samples, of which each task takes one when it starts.

    An index whose task was cancelled or lost is given back, and taken again before all larger ones. So over a run each
    index is used once at most, and no index is left out.

    >>> queue = SampleQueue()
    >>> [queue.take() for _ in range(4)]
    [0, 1, 2, 3]
    >>> queue.give_back([2, 1])
    >>> [queue.take() for _ in range(3)], queue.state_dict()
    ([1, 2, 4], {'next_sample': 5, 'returned_samples': []})
    """

    def __init__(self) -> None:
        self._next, self._returned = 0, list[int]()  # the second is a heap

    def take(self) -> int:
        """The smallest index that is free."""
        if self._returned:
            return heapq.heappop(self._returned)
        self._next += 1
        return self._next - 1

    def give_back(self, indices: Iterable[int]) -> None:
        """Make indices free that were taken and not used."""
        for index in indices:
            heapq.heappush(self._returned, index)

    def copy(self) -> SampleQueue:
        """A copy that goes on from here."""
        other = SampleQueue()
        other._next, other._returned = self._next, self._returned.copy()
        return other

    def state_dict(self) -> dict[str, Any]:
        """Everything that the queue remembers, as numbers."""
        return {"next_sample": self._next, "returned_samples": sorted(self._returned)}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> SampleQueue:
        """Make a queue from a ``state_dict``; ValueError if the state is none."""
        queue = cls()
        try:
            queue._next = whole_number("next_sample", state["next_sample"], least=0)
            queue._returned = sorted({whole_number("a sample", index, least=0) for index in state["returned_samples"]})
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no state of a queue of samples: {error}") from None
        if queue._returned and queue._returned[-1] >= queue._next:
            raise ValueError("this is no state of a queue of samples: one was returned that was never taken")
        return queue
