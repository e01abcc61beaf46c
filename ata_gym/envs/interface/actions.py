"""The forms of an agent's actions: the actions of the env, shares, or one worker at a time."""

import math
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray

from ata_gym.envs.interface.shares import SCALE, checked_shares, race_of_shares, tasks_of_shares
from ata_gym.envs.spaces import RaceAllocation
from ata_gym.envs.spaces.allocation import integers
from ata_gym.envs.states.batch_state import BatchState
from ata_gym.envs.states.dispatch import DispatchState
from ata_gym.typing import Bits, Ints, Mask

Actions = NDArray[Any]


class ActionForm:
    """A form of actions: how E rows of actions of an agent become actions of the env.

    Here the agent's actions are the actions of the env.
    """

    picks: Ints | None = None
    """The tasks that were picked since the last step, shape (E, n).

    None means that an action is a whole decision.
    """

    def __init__(self, state: BatchState) -> None:
        self.state = state
        self.n = state.scenario.pool.n
        self.budget = state.scenario.budget

    @property
    def steps_of_round(self) -> float:
        """The steps of the agent in a round; inf where they differ from round to round."""
        return self.budget // self.state.results

    def space(self) -> Space[Any]:
        """The space of one row's actions."""
        return self.state.action_space()

    def check(self, actions: object, shape: tuple[int, ...]) -> Actions:
        """The actions as an array.

        Args:
            actions: The actions.
            shape: The shape that they must have, (...) for one row or (E, ...).

        Raises:
            ValueError: If they are not legal; the message says what is wrong.
        """
        return self.state.check_action(actions, shape)

    def decode(self, actions: Actions) -> tuple[Actions, Mask | None]:
        """The actions of the env, shape (E, n), and the rows in which the env takes its step.

        None means all rows.
        """
        return actions, None

    def mask(self) -> NDArray[np.int8] | None:
        """1 for each action that is of use in the next step, else 0, shape (E, k).

        None means that all actions are of use at all times.
        """
        return None


class Shares(ActionForm):
    """A real number from -1 to 1 for each worker, and in a race one more for the total.

    A number outside is played as the nearer bound. ``tasks_of_shares`` has the definition.
    """

    def __init__(self, state: BatchState) -> None:
        super().__init__(state)
        self._race = isinstance(state.action_space(), RaceAllocation)

    def space(self) -> Space[Any]:
        return Box(-1.0, 1.0, (self.n + self._race,), np.float32)

    def check(self, actions: object, shape: tuple[int, ...]) -> Actions:
        return checked_shares(actions, shape)

    def decode(self, actions: Actions) -> tuple[Actions, Mask | None]:
        if self._race:
            tasks_of = race_of_shares
        else:
            tasks_of = tasks_of_shares
        return tasks_of(actions, self.budget, SCALE, self.state.present()), None


class Picks(ActionForm):
    """One worker at a time; the env takes its step when the picks of a row are complete."""

    picks: Ints
    waits: ClassVar[bool] = False
    """Whether there is one more action, the last one, which lets time pass."""

    def __init__(self, state: BatchState) -> None:
        super().__init__(state)
        self.picks = np.zeros((state.rows, self.n), np.int64)

    def space(self) -> Space[Any]:
        return Discrete(self.n + self.waits)

    def check(self, actions: object, shape: tuple[int, ...]) -> Actions:
        array = integers(actions, shape)
        largest = self.n + self.waits - 1
        if ((array < 0) | (array > largest)).any():
            raise ValueError(
                f"the action must be a whole number from 0 to {largest}, not"
                f" {np.asarray(actions).tolist()}",
            )
        return array.astype(np.int64)

    def present(self) -> Mask:
        """The places that hold a worker, shape (E, n)."""
        return present_mask(self.state.present(), self.picks.shape)


class Assign(Picks):
    """Each pick gives a worker one more task; after B picks the round is played."""

    @property
    def steps_of_round(self) -> float:
        return self.budget

    def decode(self, actions: Actions) -> tuple[Actions, Mask | None]:
        self.picks[np.arange(self.state.rows), actions] += 1
        ready: Mask = self.picks.sum(axis=1) >= self.budget
        tasks = self.picks.copy()
        self.picks[ready] = 0
        # The other rows are not played, but their allocation must be legal.
        tasks[~ready] = self.budget * (np.arange(self.n) == 0)
        return tasks, ready

    def mask(self) -> NDArray[np.int8]:
        return self.present().astype(np.int8)


class Start(Picks):
    """Each pick lets an idle worker start a task, or lets time pass.

    The action n, or a worker that is not idle, lets time pass. Time passes, too, as soon as no
    worker is idle.
    """

    state: DispatchState
    waits = True
    steps_of_round = math.inf

    def decode(self, actions: Actions) -> tuple[Actions, Mask | None]:
        started = pick_idle(self._idle(), actions, self.picks)
        ready = ~started | ~self._idle().any(axis=1)
        working: Bits = (self.picks > 0).astype(np.int8)
        self.picks[ready] = 0
        return working, ready

    def _idle(self) -> Mask:
        return np.asarray(
            self.present() & (self.state.round_state.running == 0) & (self.picks == 0),
        )

    def mask(self) -> NDArray[np.int8]:
        return start_mask(self._idle(), self.present()).astype(np.int8)


def present_mask(present: Mask | None, shape: tuple[int, ...]) -> Mask:
    """The places that hold a worker, where None means all of this shape."""
    if present is None:
        return np.ones(shape, np.bool_)
    return present


def pick_idle(idle: Mask, actions: Ints, picks: Ints) -> Mask:
    """Add the idle workers that actions of "start" name to the picks.

    Args:
        idle: The idle workers, shape (E, n).
        actions: The worker that each row names, or n to let time pass, shape (E,).
        picks: The picks, shape (E, n), which are changed.

    Returns:
        Whether each row named an idle worker, shape (E,).
    """
    rows = np.arange(len(actions))
    # One more column without an idle worker is for the action n.
    none_idle = np.zeros((len(actions), 1), np.bool_)
    choices = np.append(idle, none_idle, axis=1)
    started: Mask = choices[rows, actions]
    picks[rows[started], actions[started]] = 1
    return started


def start_mask(idle: Mask, present: Mask) -> Mask:
    """The actions of "start" that are of use, shape (E, n + 1).

    They are to start an idle worker, and to wait where a worker is running a task.
    """
    return np.append(idle, np.any(present & ~idle, axis=1, keepdims=True), axis=1)


FORMS: dict[str, type[ActionForm]] = {
    "allocation": ActionForm,
    "dispatch": ActionForm,
    "shares": Shares,
    "assign": Assign,
    "start": Start,
}
"""The forms by the names that the argument ``action`` takes."""
