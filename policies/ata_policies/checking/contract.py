"""The contract of a policy: it is played, and then observes the same in other ways."""

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import gymnasium as gym
import numpy as np

from ata_gym.changes import Conditions
from ata_gym.scenarios import Scenario
from ata_gym.utils.errors import described
from ata_gym.utils.extras import MissingExtraError
from ata_gym.utils.trees import difference, map_leaves
from ata_policies.checking.predict_call import (
    Answer,
    Array,
    FaultError,
    PredictCall,
    checked_predict,
    rows_of,
    sentence_on,
)
from ata_policies.observations import Observation
from ata_policies.policy import DispatchPolicy, Policy, State
from ata_policies.registry import PolicyMaker
from ata_policies.setting import Setting

Make = Callable[..., Policy]  # makes the policy for a setting and a ``seed``

SEED = 5  # of the envs, and of the policy in the first row of a batch
_ROWS = 3  # rows of the batch that is played
_ALL_ROWS = slice(None)
_FIRST_ROW = slice(0, 1)
_OTHER_ROWS = slice(1, None)
# rows of batches from different rounds; a study plays hundreds of rows in one
_MIXED_ROWS = (*(7,) * 20, 130)
TIMES = ("duration", "elapsed", "age")  # the fields of an observation that are times
# the fields that have a value for each worker
_PER_WORKER = ("elapsed", "started", "running", "age")


@dataclass
class ContractCheck:
    """The check of a policy in one scenario."""

    make: Make
    """Makes the policy."""
    kind: PolicyMaker
    """Its class or preset."""
    scenario: Scenario
    """Where it is played."""
    rounds: int
    """How many rounds are played, in two episodes."""
    faults: dict[str, None] = field(default_factory=dict)
    """A sentence for each fault, once."""
    advice: dict[str, None] = field(default_factory=dict)
    """A sentence for each piece of advice, once."""
    steps: list[PredictCall] = field(default_factory=list)
    """What was played."""

    def run(
        self, *further_checks: Callable[["ContractCheck"], None], thorough: bool = True
    ) -> tuple[str, ...]:
        """Run the checks, and return a sentence for each fault.

        A check whose failure would follow from another fault is left out.

        Args:
            further_checks: Further checks, made of a policy without a fault.
            thorough: Whether all checks are made, or only whether its actions are legal.
        """
        if self._pass(self.plays) and thorough and self._pass(self.repeats):
            independent = self._pass(self.rows_are_alone, self.goes_on_when_saved)
            begins = [self.single_is_a_row, self.starts_anew, self.heeds_episode_start]
            if independent and self._pass(*begins):
                self._pass(self.rows_may_be_mixed)
            self._pass(self.is_priced, self.notes_absences)
            if not self.faults:
                self._pass(
                    self.explains,
                    self.accepts_durations_of_0,
                    self.refuses_foreign_input,
                )
            for check in further_checks:
                if not self.faults:
                    self._pass(partial(check, self))
        return tuple(self.faults)

    def _pass(self, *checks: Callable[[], None]) -> bool:
        """Run checks, and note their faults; return whether there are none."""
        passed = True
        for check in checks:
            try:
                check()
            except FaultError as fault:
                self.faults[str(fault)] = None
                passed = False
        return passed

    def plays(self) -> None:
        """Play two episodes.

        Where the policy's action is illegal, another one is played in its place.
        """
        policy = self.new_policy()
        envs = self.envs
        bare = envs.unwrapped
        space = envs.action_space
        stand_in = np.zeros(space.shape, np.int64)
        stand_in[:, 0] = getattr(space, "budget", 1)
        observation, _ = envs.reset(seed=SEED)
        state = None
        illegal = False
        for k in range(self.rounds * self.steps_a_round):
            if self.kind.privileged:
                conditions = bare.conditions()
            else:
                conditions = None
            action, state = self.predict(policy, observation, state, conditions)
            answer = Answer(np.array(action), state)
            step = PredictCall(k // self.steps_a_round + 1, observation, conditions, answer)
            self.steps.append(step)
            try:
                played = bare.check_actions(action)
            except ValueError as error:
                sentence = f"its action is illegal in round {step.round}: {error}"
                if np.shape(action) != space.shape:
                    raise FaultError(sentence) from error
                if not illegal:
                    self.faults[sentence] = None
                played = stand_in
                illegal = True
            observation = envs.step(played)[0]

    def repeats(self) -> None:
        """Two policies with the same seed do the same."""
        self.does_the_same(
            self.new_policy(),
            "made again with the same seed, it has another {part} in round {round}: draw only from"
            " keys such as state.round_keys(), and keep nothing outside the state",
        )

    def rows_are_alone(self) -> None:
        """A row of a batch does what it does alone, with its own seed."""
        for e in range(_ROWS):
            self.does_the_same(
                self.new_policy(seed=SEED + e),
                "a row of a batch has another {part} in round {round} than the same row alone:"
                " compute along the last axis, draw from keys such as state.round_keys(), of which"
                " each row has its own, and round what a network answers, such as to 4 digits",
                slice(e, e + 1),
            )

    def rows_may_be_mixed(self) -> None:
        """A row does not depend on other rows: their number, rounds, episodes and seeds.

        Steps at which an episode begins are left out: a first state may depend on the row's place
        in its batch.
        """
        policy = self.new_policy()
        rng = np.random.default_rng(SEED)
        inner_steps = [
            k for k, step in enumerate(self.steps) if (step.observation["worker"][:, 0] >= 0).all()
        ]
        for rows in _MIXED_ROWS:
            places = [
                (inner_steps[k], e)
                for k, e in rng.integers(0, (len(inner_steps), _ROWS), (rows, 2)).tolist()
            ]
            steps_of_rows = [rows_of(self.steps[k]._replace(round=0), e) for k, e in places]
            steps = _stacked(steps_of_rows)
            states = _stacked([rows_of(self.steps[k - 1].answer.state, e) for k, e in places])
            agree(
                self.predict(policy, steps.observation, states, steps.conditions),
                steps.answer,
                "a row of a batch has another {part} beside rows that are at other rounds: compute"
                " along the last axis, and decide nothing for all rows at once",
            )

    def single_is_a_row(self) -> None:
        """An observation without a row axis gets an action without one."""
        shape = self.envs.action_space.shape[1:]
        for step, (action, state) in self.replay(self.new_policy(), 0):
            if np.shape(action) != shape:
                raise FaultError(
                    f"for a single env its action must have shape {shape}, not {np.shape(action)}:"
                    " an observation without a row axis gets an action without one",
                )
            sentence = (
                "in a single env it has another {part} in round {round} than as a batch of one row"
            )
            agree(
                Answer(action[None], state), rows_of(step.answer, _FIRST_ROW), sentence, step.round
            )

    def goes_on_when_saved(self) -> None:
        """The state is all that a policy remembers."""
        # in the second episode, after a reset
        later = 3 * len(self.steps) // 4
        try:
            saved = pickle.loads(pickle.dumps(self.steps[later - 1].answer.state))
        except (Exception, SystemExit) as error:
            raise FaultError(
                f"its state cannot be pickled ({error}): define the classes of belief and plan at"
                " the top of a module",
            ) from error
        self.does_the_same(
            self.new_policy(),
            "going on from a saved state, it has another {part} in round {round}: what it has"
            " learned or worked out must be in state.belief and state.plan",
            start=later,
            state=saved,
        )

    def starts_anew(self) -> None:
        """Without feedback a row begins an episode, and the others go on."""
        policy = self.new_policy()
        state = self.steps[-2].answer.state
        step = self.steps[-1]
        blank = self.steps[0].observation
        fresh = policy.first_state(_ROWS)._replace(episode=state.episode, key=state.key)
        mixed = {
            name: np.concatenate([blank[name][:1], field[1:]])
            for name, field in step.observation.items()
        }
        self._first_begins(
            self.predict(policy, mixed, state, step.conditions),
            self.predict(policy, blank, fresh, step.conditions),
            "where the worker is -1 an episode begins, but the {part} is not a new one's:"
            " override act or allocate and leave predict as it is, or begin with first_state there",
        )

    def heeds_episode_start(self) -> None:
        """Where ``episode_start`` is True an episode begins, whatever the feedback."""
        policy = self.new_policy()
        state = self.steps[-2].answer.state
        step = self.steps[-1]
        observation = step.observation
        first_row = np.arange(_ROWS)[:, None] == 0
        silent = observation | {
            name: np.where(first_row, nothing, observation[name])
            for name, nothing in (("worker", -1), ("elapsed", 0))
        }
        self._first_begins(
            self.predict(policy, observation, state, step.conditions, first_row[:, 0]),
            self.predict(policy, silent, state, step.conditions),
            "where episode_start is True an episode begins, but the {part} is not a new one's",
        )

    def _first_begins(self, answer: Answer, expected: Answer, sentence: str) -> None:
        """Raise a fault unless the first row is as expected, and the others are as played."""
        agree(rows_of(answer, _FIRST_ROW), rows_of(expected, _FIRST_ROW), sentence)
        played = rows_of(self.steps[-1].answer, _OTHER_ROWS)
        changes = "where one row begins an episode, the {part} of another changes"
        agree(rows_of(answer, _OTHER_ROWS), played, changes)

    def is_priced(self) -> None:
        """A policy that uses the price does not say that it is not priced."""
        if not self.kind.priced:
            dear = self.new_policy(price=self.setting.price + 1.0)
            self.does_the_same(dear, "what it does depends on the price: set priced = True")

    def notes_absences(self) -> None:
        """``note_absences`` gives a state that the policy can have.

        It leaves the state before as it was.
        """
        policy = self.new_policy()
        state = self.steps[-1].answer.state
        state_copy = copy.deepcopy(state)
        absent = np.arange(self.setting.n) == self.setting.n - 1
        try:
            policy.check_state(
                policy.note_absences(state_copy, absent, np.zeros_like(absent)), _ROWS
            )
        except (Exception, SystemExit) as error:
            raise FaultError(f"note_absences gives no state that it can have: {error}") from error
        if (leaf_name := difference(state, state_copy)) is not None:
            raise FaultError(
                f"note_absences changes {leaf_name} of the state in place: make new arrays"
            )

    def explains(self) -> None:
        """``explain`` leaves the state as it was.

        It is advice that it should show the action that came with the state.
        """
        policy = self.new_policy()
        step = self.steps[-1]
        state_copy = copy.deepcopy(step.answer.state)
        for row in range(_ROWS):
            try:
                shown = policy.explain(state_copy, row).tasks
            except (Exception, SystemExit) as error:
                raise FaultError(sentence_on("explain raises ", error)) from error
            leaf_name = difference({"state": step.answer.state}, {"state": state_copy})
            if leaf_name is not None:
                raise FaultError(
                    f"explain changes {leaf_name} in place, and so what is learned from it: make"
                    " new arrays",
                )
            if shown is not None and not np.array_equal(shown, step.answer.action[row]):
                advice = "override last_action: explain shows other tasks than predict gave"
                self.advice[advice] = None

    def accepts_durations_of_0(self) -> None:
        """Actions stay legal where tasks take no time, which the observation space allows."""
        policy = self.new_policy()
        state = None
        for step in self.steps:
            observation = {
                name: np.zeros_like(field) if name in TIMES else field
                for name, field in step.observation.items()
            }
            try:
                action, state = self.predict(policy, observation, state, step.conditions)
                self.envs.unwrapped.check_actions(action)
            except (FaultError, ValueError) as error:
                raise FaultError(
                    f"where all durations are 0, in round {step.round}: {error}",
                ) from error

    def refuses_foreign_input(self) -> None:
        """An observation or a state that is not of this setting is refused."""
        policy = self.new_policy()
        step = self.steps[-1]
        state = self.steps[-2].answer.state
        observation = step.observation
        n = self.setting.n
        wider = {
            name: observation[name][:, [*range(n), 0]]
            for name in _PER_WORKER
            if name in observation
        }
        privileged: dict[str, Any]
        if self.kind.privileged:
            privileged = {"privileged": step.conditions}
        else:
            privileged = {}
        no_number = observation | {"duration": np.full_like(observation["duration"], np.nan)}
        nobody = observation | {"worker": np.full_like(observation["worker"], n)}
        fewer = rows_of(observation, _OTHER_ROWS)
        faulty_observations = {
            f"an observation of {n + 1} workers": observation | wider,
            "durations that are NaN": no_number,
            "results of a worker that is not there": nobody,
            f"a state of {_ROWS} rows with an observation of {_ROWS - 1}": fewer,
        }
        for description, faulty_observation in faulty_observations.items():
            try:
                policy.predict(faulty_observation, state, **privileged)
            except ValueError:
                continue
            except (Exception, SystemExit) as error:
                raised = f"raises {described(error)}"
            else:
                raised = "says nothing"
            raise FaultError(
                f"given {description}, predict {raised}: raise ValueError, as Policy.predict does",
            )

    def new_policy(self, seed: int = SEED, **changes: Any) -> Policy:
        """Make the policy with this seed, and with some of the setting changed."""
        setting = self.setting._replace(**changes)
        try:
            return self.make(setting, seed=seed)
        except MissingExtraError:
            raise
        except (Exception, SystemExit) as error:
            setting_text = f"{setting.n} workers and B = {setting.budget}"
            raise FaultError(
                sentence_on(f"it cannot be made for {setting_text}: ", error)
            ) from error

    @cached_property
    def setting(self) -> Setting:
        """The setting of the scenario."""
        return Setting.from_scenario(self.scenario)

    @cached_property
    def envs(self) -> Any:
        """A batch of envs of the scenario, in which the rounds are two episodes."""
        return self.envs_of(_ROWS, (self.rounds + 1) // 2)

    @property
    def steps_a_round(self) -> int:
        """How many decisions a round has."""
        if self.kind.env_id == DispatchPolicy.env_id:
            return self.setting.budget
        return 1

    def envs_of(self, rows: int, horizon: int) -> Any:
        """Make a batch of envs of the scenario, whose episodes follow each other.

        Args:
            rows: The number of envs.
            horizon: Rounds of an episode.
        """
        return gym.make_vec(
            self.kind.env_id,
            num_envs=rows,
            scenario=self.scenario,
            horizon=horizon,
            autoreset_mode="SameStep",
        )

    def predict(
        self,
        policy: Policy,
        observation: Observation,
        state: State | None,
        conditions: Conditions | None,
        start: Array | None = None,
    ) -> Answer:
        """Call ``predict``, and note its side effects.

        Args:
            policy: The policy to call.
            observation: What it observes.
            state: Its last state; None at first.
            conditions: The privileged information, given only if the policy needs it.
            start: The argument ``episode_start``.
        """
        if self.kind.privileged:
            privileged = {"privileged": conditions}
        else:
            privileged = {}
        return checked_predict(self.faults, policy, observation, state, start, **privileged)

    def replay(
        self,
        policy: Policy,
        rows: slice | int = _ALL_ROWS,
        start: int = 0,
        state: State | None = None,
    ) -> Iterator[tuple[PredictCall, Answer]]:
        """Give a policy the recorded observations again; yield each step and the new answer.

        As long as its actions are the same, an env would give these observations, too.

        Args:
            policy: Whom they are given to.
            rows: Which rows it observes.
            start: The first step.
            state: The state with which it starts.
        """
        for step in self.steps[start:]:
            observation = rows_of(step.observation, rows)
            answer = self.predict(policy, observation, state, rows_of(step.conditions, rows))
            state = answer.state
            yield step, answer

    def does_the_same(
        self,
        policy: Policy,
        sentence: str,
        rows: slice = _ALL_ROWS,
        **start: Any,
    ) -> None:
        """Raise a fault unless a replay gives the recorded answers, bit for bit.

        Args:
            policy: Whose answers are compared; see ``replay`` for ``rows`` and ``start``.
            sentence: The fault; ``{part}`` and ``{round}`` are filled in.

        Raises:
            FaultError: At the first answer that differs.
        """
        for step, answer in self.replay(policy, rows, **start):
            agree(answer, rows_of(step.answer, rows), sentence, step.round)


def agree(answer: Answer, expected: Answer, sentence: str, round: int = 0) -> None:
    """Raise a fault unless two answers are the same bit for bit.

    Args:
        answer: The answer of the policy.
        expected: What it should be.
        sentence: The fault; ``{part}`` and ``{round}`` are filled in.
        round: The round of the answer.

    Raises:
        FaultError: If they differ.
    """
    leaf_name = difference(answer, expected)
    if leaf_name is not None:
        raise FaultError(sentence.format(part=leaf_name, round=round))


def _stacked(trees: list[Any]) -> Any:
    """Stack the arrays of trees of one form along a new first axis."""
    arrays = (np.ndarray, np.generic)
    return map_leaves(
        lambda *leaves: np.stack(leaves) if isinstance(leaves[0], arrays) else leaves[0],
        *trees,
    )
