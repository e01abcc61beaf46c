"""What the rows of an env show to an agent, what they take from it, and how they reward it."""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.envs.interface.actions import FORMS, Actions
from ata_gym.envs.interface.worker_features import Features, RoundFeatures, WorkerMemory, features_of, flat, space_of
from ata_gym.envs.rendering.recorder import Recorder
from ata_gym.envs.states.batch_state import BatchState, Feedback
from ata_gym.typing import Floats, Mask
from ata_gym.utils.ranges import FINITE, Within, all_tasks, declared
from ata_gym.utils.trees import choose_rows
from ata_gym.utils.validation import unknown

Observation: TypeAlias = Feedback | Features
Info: TypeAlias = dict[str, Any]
OBSERVATIONS = ("feedback", "workers", "flat")
REWARD_UNITS = ("time", "even round")


class Played(NamedTuple):
    """What an agent gets of one step of E rows."""

    observation: Observation
    reward: Floats  # (E,) the rewards
    info: dict[str, NDArray[Any]]  # fresh arrays of shape (E,), or (E, k) for masks of actions
    ended: Mask  # (E,) whether the episode ended


class Interface:
    """The observations, actions and rewards of the rows of a state.

    ``observation``, ``action`` and ``reward_unit`` are those of the envs; ValueError for a name that this env does not
    have. With ``shows_again`` the method ``observation`` gives what rows saw last, also where they see the env's own
    feedback.
    """

    def __init__(
        self, state: BatchState, observation: str, action: str | None, reward_unit: str, *, shows_again: bool = False
    ) -> None:
        form = state.forms[0] if action is None else action
        for argument, name, known in (
            ("observation", observation, OBSERVATIONS),
            ("action of this env", form, state.forms),
            ("reward_unit", reward_unit, REWARD_UNITS),
        ):
            if name not in known:
                raise unknown(argument, str(name), known)
        if state.shows_signals and observation != "feedback":
            raise ValueError(f'signals=True shows the loads in observation="feedback", not in {observation!r}')
        self._state, self._kind = state, observation
        self.form = FORMS[form](state)
        self.own = observation == "feedback" and form == state.forms[0] and reward_unit == "time"
        """Whether policies of the zoo can play: observations, actions and rewards are the env's own."""
        self._in_unit = reward_unit != "time"
        self._unit = np.ones(state.rows)  # of the rewards of each row's episode
        self._memory = WorkerMemory.empty(state.rows, state.scenario.pool.n)
        self._keeps = shows_again or observation != "feedback" or self.form.picks is not None
        self._seen: Feedback = {}  # of all rows, if kept, from the first reset on
        self.recorder: Recorder | None = None
        """It keeps the last rounds where they are rendered; None where they are not."""

    @property
    def most_steps(self) -> float:
        """How many steps an episode has at most; inf where it has no end, or no largest number of steps."""
        horizon = self._state.scenario.horizon
        return math.inf if horizon is None else horizon * self.form.steps_of_round

    def observation_space(self) -> spaces.Space[Any]:
        """The space of one row's observations."""
        scenario = self._state.scenario
        n, budget = scenario.pool.n, scenario.budget
        if self._kind != "feedback":
            return space_of(n, in_one_row=self._kind == "flat")
        own = self._state.observation_space()
        if self.form.picks is not None and "missing" not in own.spaces:
            own["started"] = spaces.Box(0, budget, (n,), np.int64)
            own["missing"] = spaces.Box(0, budget, (1,), np.int64)
        return own

    def start_episode(self, rows: Mask | slice) -> None:
        """Start the next episode of some rows."""
        self._state.start_episode(rows)
        if self._in_unit:
            self._unit[rows] = self._even_round()[rows]
        if self.form.picks is not None:
            self.form.picks[rows] = 0
        if self.recorder is not None:
            self.recorder.start_episode(rows)
        if self._keeps:
            self._memory.workers[rows] = 0.0
            seen = self._kept()
            for name, field in self._state.no_feedback(rows).items():
                seen[name][rows] = field

    def _kept(self) -> Feedback:
        if not self._seen:
            self._seen = self._state.no_feedback(slice(None))
        return self._seen

    def observation(self, rows: Mask | slice = slice(None)) -> Observation:
        """What some rows see after their reset, or see again before their next step."""
        if not self._keeps:
            return self._state.no_feedback(rows)
        return chosen(self._shown(self._seen), rows)

    def step(self, actions: Actions) -> Played:
        """Act in every row with actions, (E, ...), that the form has checked."""
        state, price = self._state, self._state.prices
        decided, ready = self.form.decode(actions)
        if ready is not None and ready.all():
            ready = None
        if self.recorder is not None:
            self.recorder.begin_step(decided)
        result = state.step(decided) if ready is None else state.step_some(decided, ready)
        seen = result.observation
        if self.recorder is not None:
            self.recorder.end_step(decided, ready, seen, result.info)
        cost = result.time + price * result.worker_time
        shown = self._shown(self._remember(seen, decided, ready)) if self._keeps else seen
        return Played(shown, -cost / self._unit, result.info | self._masks(), result.ended)

    def _remember(self, seen: Feedback, decided: Actions, ready: Mask | None) -> Feedback:
        """Keep the feedback of a step for the rows that are ready (None: all), and return what all rows saw last."""
        if self._kind != "feedback":
            memory = self._memory.asked(decided).observe(seen["worker"], seen["duration"], seen["elapsed"])
            if ready is not None:
                memory = choose_rows(ready, memory, self._memory)
            self._memory = memory
        if ready is not None:
            seen = choose_rows(ready, seen, self._seen)
        self._seen = seen
        return seen

    def _shown(self, seen: Feedback) -> Observation:  # what the agent sees of the feedback, in fresh arrays
        picks, scenario = self.form.picks, self._state.scenario
        if self._kind == "feedback":
            seen = {name: field.copy() for name, field in seen.items()}
            if "running" in seen and picks is not None:
                seen["running"] += picks.astype(np.int8)
                seen["started"] += picks
            elif picks is not None:
                seen["started"], seen["missing"] = picks.copy(), scenario.budget - picks.sum(axis=1, keepdims=True)
            return seen
        of_round = RoundFeatures(scenario.budget, self._state.prices, scenario.horizon)
        features = features_of(self._memory, of_round, self._state.round, seen, picks)
        return features if self._kind == "workers" else flat(features)

    def _even_round(self) -> Floats:
        means, present = self._state.conditions().means(self._state.scenario.catalogue), self._state.present()
        there = np.isfinite(means) & (True if present is None else present)
        n = np.maximum(there.sum(axis=1), 1)
        speed = np.where(there, 1 / means, 0.0).sum(axis=1) / n
        budget = self._state.scenario.budget
        return np.asarray((np.ceil(budget / n) + self._state.prices * budget) / np.where(speed > 0, speed, 1.0))

    def info(self) -> dict[str, NDArray[Any]]:
        """The info of rows after their reset, with the keys that the info of a step has; fresh arrays."""
        return self._state.info_so_far() | self._masks()

    def _masks(self) -> dict[str, NDArray[Any]]:
        mask = self.form.mask()
        return {} if mask is None else {"action_mask": mask}

    def ranges(self) -> dict[str, Within]:
        """What the numbers of ``remembered`` may be, by name."""
        ranges = {"picks": Within(0, all_tasks), "reward_unit": Within(float(np.finfo(np.float64).tiny), FINITE)}
        ranges |= {name: within for name, _, within in declared(self._memory) if within}
        boxes: Any = self._state.observation_space().spaces.items()
        return ranges | {f"seen_{name}": Within(box.low, box.high) for name, box in boxes}

    def remembered(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint must hold beside the state of the rows."""
        memory: dict[str, NDArray[Any]] = {}
        if self.form.picks is not None:
            memory["picks"] = self.form.picks
        if self._in_unit:
            memory["reward_unit"] = self._unit
        if self._keeps:
            memory |= {f"seen_{name}": part for name, part in self._kept().items()}
        if self._kind != "feedback":
            memory["workers"] = self._memory.workers
        return memory


def chosen(observation: Observation, rows: Any) -> Observation:
    """Some rows of an observation, or one."""
    if isinstance(observation, dict):
        return {name: field[rows] for name, field in observation.items()}
    return np.asarray(observation[rows])
