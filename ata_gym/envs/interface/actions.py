"""The forms in which an agent may act: the env's own, shares, or one worker at a time."""

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
    """How E rows of actions of an agent become actions of the env: here they are the env's own."""

    picks: Ints | None = None
    """(E, n) tasks that were picked since the last step; None where an action is a whole decision."""

    def __init__(self, state: BatchState) -> None:
        self.state, self.n, self.budget = state, state.scenario.pool.n, state.scenario.budget

    @property
    def steps_of_round(self) -> float:
        """How many steps of the agent a round takes; inf where they differ from round to round."""
        return self.budget // self.state.results

    def space(self) -> Space[Any]:
        """The space of one row's actions."""
        return self.state.action_space()

    def check(self, actions: object, shape: tuple[int, ...]) -> Actions:
        """Actions of this shape, (...) of one row or (E, ...); ValueError that says what is wrong with them."""
        return self.state.check_action(actions, shape)

    def decode(self, actions: Actions) -> tuple[Actions, Mask | None]:
        """The env's actions, (E, n), and in which rows the env takes its step; None: in all."""
        return actions, None

    def mask(self) -> NDArray[np.int8] | None:
        """Which actions are of use in the next step, (E, k), 1 or 0; None where all are at all times."""
        return None


class Shares(ActionForm):
    """A real number from -1 to 1 for each worker, and in a race one more for the total; see ``tasks_of_shares``.

    A number outside is played as the nearer of the two.
    """

    def __init__(self, state: BatchState) -> None:
        super().__init__(state)
        self._race = isinstance(state.action_space(), RaceAllocation)

    def space(self) -> Space[Any]:
        return Box(-1.0, 1.0, (self.n + self._race,), np.float32)

    def check(self, actions: object, shape: tuple[int, ...]) -> Actions:
        return checked_shares(actions, shape)

    def decode(self, actions: Actions) -> tuple[Actions, Mask | None]:
        tasks_of = race_of_shares if self._race else tasks_of_shares
        return tasks_of(actions, self.budget, SCALE, self.state.present()), None


class Picks(ActionForm):
    """One worker at a time; the env takes its step when the picks of a row are complete."""

    picks: Ints
    waits: ClassVar[bool] = False  # whether the last action is to let time pass

    def __init__(self, state: BatchState) -> None:
        super().__init__(state)
        self.picks = np.zeros((state.rows, self.n), np.int64)

    def space(self) -> Space[Any]:
        return Discrete(self.n + self.waits)

    def check(self, actions: object, shape: tuple[int, ...]) -> Actions:
        given, most = integers(actions, shape), self.n + self.waits - 1
        if ((given < 0) | (given > most)).any():
            raise ValueError(f"the action must be a whole number from 0 to {most}, not {np.asarray(actions).tolist()}")
        return given.astype(np.int64)

    def present(self) -> Mask:
        """Places that hold a worker, (E, n)."""
        return all_or(self.state.present(), self.picks.shape)


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
        tasks[~ready] = self.budget * (np.arange(self.n) == 0)  # not played
        return tasks, ready

    def mask(self) -> NDArray[np.int8]:
        return self.present().astype(np.int8)


class Start(Picks):
    """Each pick lets an idle worker start a task; n, or a worker that is not idle, lets time pass.

    Time passes, too, as soon as no worker is idle.
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
        return np.asarray(self.present() & (self.state.round_state.running == 0) & (self.picks == 0))

    def mask(self) -> NDArray[np.int8]:
        return start_mask(self._idle(), self.present()).astype(np.int8)


def all_or(present: Mask | None, shape: tuple[int, ...]) -> Mask:
    """Places that hold a worker, where None stands for all."""
    return np.ones(shape, np.bool_) if present is None else present


def pick_idle(idle: Mask, actions: Ints, picks: Ints) -> Mask:
    """Add the idle workers that actions of "start", (E,), name to the picks, (E, n); which rows named one, (E,)."""
    every = np.arange(len(actions))
    started: Mask = np.append(idle, np.zeros((len(actions), 1), np.bool_), axis=1)[every, actions]
    picks[every[started], actions[started]] = 1
    return started


def start_mask(idle: Mask, present: Mask) -> Mask:
    """Actions of "start" that are of use, (E, n + 1): idle workers, and waiting where somebody works."""
    return np.append(idle, np.any(present & ~idle, axis=1, keepdims=True), axis=1)


FORMS: dict[str, type[ActionForm]] = {
    "allocation": ActionForm, "dispatch": ActionForm, "shares": Shares, "assign": Assign, "start": Start,
}  # fmt: skip
"""The forms by the names that the argument ``action`` takes."""
