"""The observations that the rows of an env show to an agent, its actions and its rewards."""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.envs.interface.actions import FORMS, Actions
from ata_gym.envs.interface.delay import DelayedFeedback, no_feedback
from ata_gym.envs.interface.worker_features import (
    Features,
    RoundFeatures,
    WorkerMemory,
    features_of,
    flat,
    space_of,
)
from ata_gym.envs.rendering.recorder import Recorder
from ata_gym.envs.states.batch_state import BatchState, Feedback
from ata_gym.typing import Floats, Mask
from ata_gym.utils.ranges import FINITE, Within, all_tasks, declared
from ata_gym.utils.trees import choose_rows
from ata_gym.utils.validation import unknown

Observation: TypeAlias = Feedback | Features
Info: TypeAlias = dict[str, Any]
OBSERVATIONS = ("feedback", "workers", "flat")
"""The names that the argument ``observation`` takes."""
REWARD_UNITS = ("time", "even round")
"""The names that the argument ``reward_unit`` takes."""


class AgentStep(NamedTuple):
    """The result of one step of E rows for an agent."""

    observation: Observation
    """The observations, with a leading row axis."""
    reward: Floats
    """The rewards, shape (E,)."""
    info: dict[str, NDArray[Any]]
    """Fresh arrays of shape (E,), or (E, k) for masks of actions."""
    ended: Mask
    """Whether the episode ended, shape (E,)."""


class Interface:
    """The observations, actions and rewards of the rows of a state.

    Args:
        state: The state of the rows.
        observation: The argument of the envs.
        action: The argument of the envs; None means the first form of the state.
        reward_unit: The argument of the envs.
        shows_again: Whether the method ``observation`` gives what rows saw last, also where they
            see the feedback of the env.
        delay: The rounds after which the feedback of a round is shown.

    Raises:
        ValueError: For a name that this env does not have, and for a delay where a step is not a
            round.
    """

    def __init__(
        self,
        state: BatchState,
        observation: str,
        action: str | None,
        reward_unit: str,
        *,
        shows_again: bool = False,
        delay: int = 0,
    ) -> None:
        if action is None:
            form = state.forms[0]
        else:
            form = action
        for argument, name, options in (
            ("observation", observation, OBSERVATIONS),
            ("action of this env", form, state.forms),
            ("reward_unit", reward_unit, REWARD_UNITS),
        ):
            if name not in options:
                raise unknown(argument, str(name), options)
        if state.shows_signals and observation != "feedback":
            raise ValueError(
                f'signals=True shows the loads in observation="feedback", not in {observation!r}',
            )
        self._state = state
        self._kind = observation
        self.form = FORMS[form](state)
        self.is_default = (
            observation == "feedback" and form == state.forms[0] and reward_unit == "time"
        )
        """Whether policies of the zoo can play, as everything has the default form."""
        self._divides_rewards = reward_unit != "time"
        self._unit = np.ones(state.rows)
        """The unit of the rewards in each row's episode, shape (E,)."""
        self._memory = WorkerMemory.empty(state.rows, state.scenario.pool.n)
        self._delayed: DelayedFeedback | None = None
        """The feedback that is not shown yet; None where it is shown after its round."""
        if delay > 0:
            self._delayed = DelayedFeedback(state, delay)
        self._keeps_feedback = (
            shows_again or observation != "feedback" or self.form.picks is not None
        )
        self._last_feedback: Feedback = {}
        """The last feedback of all rows from the first reset on, where it is kept."""
        self.recorder: Recorder | None = None
        """The recorder of the last rounds; None where they are not rendered."""

    @property
    def most_steps(self) -> float:
        """The largest number of steps of an episode.

        It is inf where an episode has no end, or rounds have no largest number of steps.
        """
        horizon = self._state.scenario.horizon
        if horizon is None:
            return math.inf
        return horizon * self.form.steps_of_round

    def observation_space(self) -> spaces.Space[Any]:
        """The space of one row's observations."""
        scenario = self._state.scenario
        n = scenario.pool.n
        budget = scenario.budget
        if self._kind != "feedback":
            return space_of(n, self._kind == "flat", scenario.pool.latency is not None)
        space = self._feedback_space()
        if self.form.picks is not None and "missing" not in space.spaces:
            space["started"] = spaces.Box(0, budget, (n,), np.int64)
            space["missing"] = spaces.Box(0, budget, (1,), np.int64)
        return space

    def _feedback_space(self) -> spaces.Dict:
        """The space of one row's feedback as it is shown."""
        space = self._state.observation_space()
        if self._delayed is not None:
            scenario = self._state.scenario
            space["allocation"] = spaces.Box(0, scenario.budget, (scenario.pool.n,), np.int64)
        return space

    def _no_feedback(self, rows: Mask | slice) -> Feedback:
        """The feedback that is shown in some rows after their reset."""
        if self._delayed is None:
            return self._state.no_feedback(rows)
        return no_feedback(self._state, rows)

    def start_episode(self, rows: Mask | slice) -> None:
        """Start the next episode of some rows."""
        self._state.start_episode(rows)
        if self._divides_rewards:
            self._unit[rows] = self._even_round()[rows]
        if self.form.picks is not None:
            self.form.picks[rows] = 0
        if self.recorder is not None:
            self.recorder.start_episode(rows)
        if self._delayed is not None:
            self._delayed.start_episode(self._no_feedback(rows), rows)
        if self._keeps_feedback:
            self._memory.workers[rows] = 0.0
            feedback = self._kept_feedback()
            for name, field in self._no_feedback(rows).items():
                feedback[name][rows] = field

    def _kept_feedback(self) -> Feedback:
        if not self._last_feedback:
            self._last_feedback = self._no_feedback(slice(None))
        return self._last_feedback

    def observation(self, rows: Mask | slice = slice(None)) -> Observation:
        """The observations of some rows after their reset, or again before their next step."""
        if not self._keeps_feedback:
            return self._no_feedback(rows)
        return select_rows(self._agent_observation(self._last_feedback), rows)

    def step(self, actions: Actions) -> AgentStep:
        """Take a step of the agent in every row.

        Args:
            actions: Actions of shape (E, ...) that the form has checked.
        """
        state = self._state
        price = self._state.prices
        state_actions, ready = self.form.decode(actions)
        if ready is not None and ready.all():
            ready = None
        if self.recorder is not None:
            self.recorder.begin_step(state_actions)
        if ready is None:
            result = state.step(state_actions)
        else:
            result = state.step_some(state_actions, ready)
        feedback = result.observation
        if self.recorder is not None:
            self.recorder.end_step(state_actions, ready, feedback, result.info)
        if self._delayed is not None:
            feedback = self._delayed.exchange(feedback | {"allocation": state_actions}, ready)
        cost = result.time + price * result.worker_time
        if self._keeps_feedback:
            observation = self._agent_observation(self._remember(feedback, state_actions, ready))
        else:
            observation = feedback
        return AgentStep(observation, -cost / self._unit, result.info | self._masks(), result.ended)

    def _remember(self, feedback: Feedback, state_actions: Actions, ready: Mask | None) -> Feedback:
        """Keep the feedback of a step for the rows that are ready (None: all).

        Return the last feedback of all rows.
        """
        if self._kind != "feedback":
            assigned = feedback.get("allocation", state_actions)
            memory = self._memory.with_assigned(assigned).observe(
                feedback["worker"],
                feedback["duration"],
                feedback["elapsed"],
            )
            memory = memory.with_latencies(feedback)
            if ready is not None:
                memory = choose_rows(ready, memory, self._memory)
            self._memory = memory
        if ready is not None:
            feedback = choose_rows(ready, feedback, self._last_feedback)
        self._last_feedback = feedback
        return feedback

    def _agent_observation(self, feedback: Feedback) -> Observation:
        """The observation that the agent gets for the feedback, in fresh arrays."""
        picks = self.form.picks
        scenario = self._state.scenario
        if self._kind == "feedback":
            feedback = {name: field.copy() for name, field in feedback.items()}
            # Workers that were picked count as started before the env takes its step.
            if "running" in feedback and picks is not None:
                feedback["running"] += picks.astype(np.int8)
                feedback["started"] += picks
            elif picks is not None:
                feedback["started"] = picks.copy()
                feedback["missing"] = scenario.budget - picks.sum(axis=1, keepdims=True)
            return feedback
        late = scenario.pool.latency is not None
        round_features = RoundFeatures(scenario.budget, self._state.prices, scenario.horizon, late)
        features = features_of(self._memory, round_features, self._state.round, feedback, picks)
        if self._kind == "workers":
            return features
        return flat(features)

    def _even_round(self) -> Floats:
        """The cost of a round of equal workers that share the budget evenly, shape (E,).

        Each worker has the harmonic mean of the mean task times of the workers that are there, and
        pays the mean of their mean latencies.
        """
        conditions = self._state.conditions()
        catalogue = self._state.scenario.catalogue
        means = conditions.means(catalogue)
        present = self._state.present()
        working = np.isfinite(means)
        if present is not None:
            working = working & present
        n = np.maximum(working.sum(axis=1), 1)
        speed = np.where(working, 1 / means, 0.0).sum(axis=1) / n
        budget = self._state.scenario.budget
        # In units of one task time: the largest share of a worker, and the price of B tasks.
        cost = np.ceil(budget / n) + self._state.prices * budget
        even_round: Floats = np.asarray(cost / np.where(speed > 0, speed, 1.0))
        if catalogue.latency is None:
            return even_round
        late = np.where(working, conditions.mean_latency(catalogue), 0.0).sum(axis=1) / n
        # Every worker with a task pays it once.
        return np.asarray(even_round + late * (1.0 + self._state.prices * np.minimum(n, budget)))

    def info(self) -> dict[str, NDArray[Any]]:
        """The info of rows after their reset, in fresh arrays.

        It has the same keys as the info of a step.
        """
        return self._state.info_so_far() | self._masks()

    def _masks(self) -> dict[str, NDArray[Any]]:
        mask = self.form.mask()
        if mask is None:
            return {}
        return {"action_mask": mask}

    def ranges(self) -> dict[str, Within]:
        """The ranges of the numbers of ``checkpoint_arrays``, by name."""
        ranges = {
            "picks": Within(0, all_tasks),
            "reward_unit": Within(float(np.finfo(np.float64).tiny), FINITE),
        }
        ranges |= {name: within for name, _, within in declared(self._memory) if within}
        boxes: Any = self._feedback_space().spaces.items()
        return ranges | {
            f"{kind}_{name}": Within(box.low, box.high)
            for name, box in boxes
            for kind in ("feedback", "delayed")
        }

    def checkpoint_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a checkpoint must hold beside the state of the rows, by name."""
        memory: dict[str, NDArray[Any]] = {}
        if self.form.picks is not None:
            memory["picks"] = self.form.picks
        if self._divides_rewards:
            memory["reward_unit"] = self._unit
        if self._keeps_feedback:
            memory |= {f"feedback_{name}": part for name, part in self._kept_feedback().items()}
        if self._kind != "feedback":
            memory["workers"] = self._memory.workers
        if self._delayed is not None:
            memory |= self._delayed.checkpoint_arrays()
        return memory


def select_rows(observation: Observation, rows: Any) -> Observation:
    """Some rows of an observation, or one row, by an index of the row axis."""
    if isinstance(observation, dict):
        return {name: field[rows] for name, field in observation.items()}
    return np.asarray(observation[rows])
