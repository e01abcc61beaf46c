"""Delayed feedback: what an agent is shown of a round some rounds later."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.states.batch_state import BatchState, Feedback, check_memory
from ata_gym.typing import Mask


class DelayedFeedback:
    """The feedback of the last d rounds of each row, which the agent does not know yet.

    Args:
        state: The state of the rows.
        delay: The number of rounds d, at least 1.

    Raises:
        ValueError: If a step of the state is not a round, or the rounds do not fit this machine's
            memory.
    """

    def __init__(self, state: BatchState, delay: int) -> None:
        if not state.step_is_round:
            raise ValueError(
                "TaskDispatch-v0 takes no delay, as a decision within a round needs to know who is"
                " running: play TaskAllocation-v0 or TaskRace-v0",
            )
        check_memory(state.rows, state.scenario.pool.n, state.results, delay)
        self.rounds: Feedback = {
            name: np.repeat(field[:, None], delay, axis=1)
            for name, field in no_feedback(state, slice(None)).items()
            if name != "present"
        }
        """The feedback of these rounds, the oldest first, each of shape (E, d, ...).

        The places that hold a worker are no feedback: they are known at all times.
        """

    def start_episode(self, first: Feedback, rows: Mask | slice) -> None:
        """Forget the rounds of some rows.

        Args:
            first: What is shown in these rows before the first feedback.
            rows: The rows.
        """
        for name, field in self.rounds.items():
            field[rows] = first[name][:, None]

    def exchange(self, feedback: Feedback, ready: Mask | None) -> Feedback:
        """Add the feedback of a round, and return the feedback that the agent is shown now.

        Args:
            feedback: The feedback of all rows, with their allocation.
            ready: The rows that have played a round, shape (E,); None means all.
        """
        shown = dict(feedback)
        rows: Any
        if ready is None:
            rows = slice(None)
        else:
            rows = ready
        for name, field in self.rounds.items():
            shown[name] = field[:, 0].copy()
            field[rows, :-1] = field[rows, 1:]
            field[rows, -1] = feedback[name][rows]
        return shown

    def checkpoint_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a checkpoint must hold, by name."""
        return {f"delayed_{name}": field for name, field in self.rounds.items()}


def no_feedback(state: BatchState, rows: Mask | slice) -> Feedback:
    """The feedback of some rows after their reset, with the key ``allocation``."""
    feedback = state.no_feedback(rows)
    feedback["allocation"] = np.zeros(feedback["elapsed"].shape, np.int64)
    return feedback
