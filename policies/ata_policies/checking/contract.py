"""The contract of a policy: it is played in one scenario, and then observes the same again in other ways."""

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
from ata_policies.checking.predict_call import Answer, Array, FaultError, Step, checked_predict, rows_of, sentence_on
from ata_policies.observations import Observation
from ata_policies.policy import DispatchPolicy, Policy, State
from ata_policies.registry import PolicyMaker
from ata_policies.setting import Setting

Make = Callable[..., Policy]  # makes the policy for a setting and a ``seed``

SEED = 5  # of the envs, and of the policy in the first row of a batch
_ROWS = 3
_ALL, _FIRST, _OTHERS = slice(None), slice(0, 1), slice(1, None)
_MIXED, _MIXED_ROWS = 20, 7  # batches of rows from different rounds, and the rows of each
TIMES = ("duration", "elapsed", "age")  # the fields of an observation that are times
_PER_WORKER = ("elapsed", "started", "running", "age")


@dataclass
class ContractCheck:
    """The check of a policy, of this class or preset, in one scenario; ``rounds`` are played in two episodes."""

    make: Make
    kind: PolicyMaker
    scenario: Scenario
    rounds: int
    faults: dict[str, None] = field(default_factory=dict)  # a sentence for each, once
    advice: dict[str, None] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)  # what was played

    def run(self, *more: Callable[["ContractCheck"], None], thorough: bool = True) -> tuple[str, ...]:
        """Return a sentence for each fault; a check whose failure would follow from another fault is left out.

        With ``thorough``, ``more`` checks are made of a policy without a fault.
        """
        if self._pass(self.plays) and thorough and self._pass(self.repeats):
            alone = self._pass(self.rows_are_alone, self.goes_on_when_saved)
            if alone and self._pass(self.single_is_a_row, self.starts_anew, self.heeds_episode_start):
                self._pass(self.rows_may_be_mixed)
            self._pass(self.is_priced, self.notes_absences)
            if not self.faults:
                self._pass(self.explains, self.accepts_durations_of_0, self.refuses_what_is_not_its_own)
            for check in more:
                if not self.faults:
                    self._pass(partial(check, self))
        return tuple(self.faults)

    def _pass(self, *checks: Callable[[], None]) -> bool:
        passed = True
        for check in checks:
            try:
                check()
            except FaultError as fault:
                self.faults[str(fault)] = None
                passed = False
        return passed

    def plays(self) -> None:
        """Two episodes are played; where the policy's action is illegal, another one is played in its place."""
        policy, envs = self.made(), self.envs
        bare, space = envs.unwrapped, envs.action_space
        stand_in = np.zeros(space.shape, np.int64)
        stand_in[:, 0] = getattr(space, "budget", 1)
        observation, _ = envs.reset(seed=SEED)
        state, illegal = None, False
        for k in range(self.rounds * self.steps_a_round):
            conditions = bare.conditions() if self.kind.privileged else None
            action, state = self.predict(policy, observation, state, conditions)
            step = Step(k // self.steps_a_round + 1, observation, conditions, Answer(np.array(action), state))
            self.steps.append(step)
            try:
                played = bare.checked(action)
            except ValueError as error:
                sentence = f"its action is illegal in round {step.round}: {error}"
                if np.shape(action) != space.shape:
                    raise FaultError(sentence) from error
                if not illegal:
                    self.faults[sentence] = None
                played, illegal = stand_in, True
            observation = envs.step(played)[0]

    def repeats(self) -> None:
        """Two policies with the same seed do the same."""
        self.does_the_same(
            self.made(),
            "made again with the same seed, it has another {what} in round {round}: draw only from keys such as "
            "state.round_keys(), and keep nothing outside the state",
        )

    def rows_are_alone(self) -> None:
        """A row of a batch does what it does alone, with its own seed."""
        for e in range(_ROWS):
            self.does_the_same(
                self.made(seed=SEED + e),
                "a row of a batch has another {what} in round {round} than the same row alone: compute along the last "
                "axis, and draw from keys such as state.round_keys(), of which each row has its own",
                slice(e, e + 1),
            )

    def rows_may_be_mixed(self) -> None:
        """A row does not depend on the number of rows beside it, nor on their rounds, episodes and seeds.

        Steps at which an episode begins are left out: a first state may depend on the row's place in its batch.
        """
        policy, rng = self.made(), np.random.default_rng(SEED)
        within = [k for k, step in enumerate(self.steps) if (step.observation["worker"][:, 0] >= 0).all()]
        for _ in range(_MIXED):
            places = [(within[k], e) for k, e in rng.integers(0, (len(within), _ROWS), (_MIXED_ROWS, 2)).tolist()]
            steps = _stacked([rows_of(self.steps[k]._replace(round=0), e) for k, e in places])
            before = _stacked([rows_of(self.steps[k - 1].answer.state, e) for k, e in places])
            agree(
                self.predict(policy, steps.observation, before, steps.conditions),
                steps.answer,
                "a row of a batch has another {what} beside rows that are at other rounds: compute along the last "
                "axis, and decide nothing for all rows at once",
            )

    def single_is_a_row(self) -> None:
        """An observation without a row axis gets an action without one."""
        shape = self.envs.action_space.shape[1:]
        for step, (action, state) in self.replay(self.made(), 0):
            if np.shape(action) != shape:
                raise FaultError(
                    f"for a single env its action must have shape {shape}, not {np.shape(action)}: an observation "
                    "without a row axis gets an action without one"
                )
            sentence = "in a single env it has another {what} in round {round} than as a batch of one row"
            agree(Answer(action[None], state), rows_of(step.answer, _FIRST), sentence, step.round)

    def goes_on_when_saved(self) -> None:
        """The state is all that a policy remembers."""
        later = 3 * len(self.steps) // 4  # in the second episode
        try:
            saved = pickle.loads(pickle.dumps(self.steps[later - 1].answer.state))
        except Exception as error:
            raise FaultError(
                f"its state cannot be pickled ({error}): define the classes of belief and plan at the top of a module"
            ) from error
        self.does_the_same(
            self.made(),
            "going on from a saved state, it has another {what} in round {round}: what it has learned or worked out "
            "must be in state.belief and state.plan",
            start=later, state=saved,
        )  # fmt: skip

    def starts_anew(self) -> None:
        """Without feedback a row begins an episode, and the others go on."""
        policy, state, last = self.made(), self.steps[-2].answer.state, self.steps[-1]
        blank = self.steps[0].observation
        fresh = policy.first_state(_ROWS)._replace(episode=state.episode, key=state.key)
        mixed = {name: np.concatenate([blank[name][:1], field[1:]]) for name, field in last.observation.items()}
        self._first_begins(
            self.predict(policy, mixed, state, last.conditions),
            self.predict(policy, blank, fresh, last.conditions),
            "where the worker is -1 an episode begins, but the {what} is not that of a new one: override act or "
            "allocate and leave predict as it is, or begin with first_state there",
        )

    def heeds_episode_start(self) -> None:
        """Where ``episode_start`` is True an episode begins, whatever the feedback."""
        policy, state, last = self.made(), self.steps[-2].answer.state, self.steps[-1]
        seen, first = last.observation, np.arange(_ROWS)[:, None] == 0
        silent = seen | {
            name: np.where(first, nothing, seen[name]) for name, nothing in (("worker", -1), ("elapsed", 0))
        }
        self._first_begins(
            self.predict(policy, seen, state, last.conditions, first[:, 0]),
            self.predict(policy, silent, state, last.conditions),
            "where episode_start is True an episode begins, but the {what} is not that of a new one",
        )

    def _first_begins(self, answer: Answer, expected: Answer, sentence: str) -> None:
        agree(rows_of(answer, _FIRST), rows_of(expected, _FIRST), sentence)
        others = rows_of(self.steps[-1].answer, _OTHERS)
        agree(rows_of(answer, _OTHERS), others, "where one row begins an episode, the {what} of another changes")

    def is_priced(self) -> None:
        """A policy that uses the price does not say that it is not priced."""
        if not self.kind.priced:
            dear = self.made(price=self.setting.price + 1.0)
            self.does_the_same(dear, "what it does depends on the price: set priced = True")

    def notes_absences(self) -> None:
        """``note_absences`` gives a state that the policy can have, and leaves the state before as it was."""
        policy, before = self.made(), self.steps[-1].answer.state
        given, absent = copy.deepcopy(before), np.arange(self.setting.n) == self.setting.n - 1
        try:
            policy.check_state(policy.note_absences(given, absent, np.zeros_like(absent)), _ROWS)
        except Exception as error:
            raise FaultError(f"note_absences gives no state that it can have: {error}") from error
        if (what := difference(before, given)) is not None:
            raise FaultError(f"note_absences changes {what} of the state in place: make new arrays")

    def explains(self) -> None:
        """``explain`` leaves the state as it was; it had better show the action that came with it."""
        policy, step = self.made(), self.steps[-1]
        given = copy.deepcopy(step.answer.state)
        for row in range(_ROWS):
            try:
                shown = policy.explain(given, row).tasks
            except Exception as error:
                raise FaultError(sentence_on("explain raises ", error)) from error
            if (what := difference({"state": step.answer.state}, {"state": given})) is not None:
                raise FaultError(f"explain changes {what} in place, and so what is learned from it: make new arrays")
            if shown is not None and not np.array_equal(shown, step.answer.action[row]):
                self.advice["override last_action: explain shows other tasks than predict gave"] = None

    def accepts_durations_of_0(self) -> None:
        """Actions stay legal where tasks take no time, which the observation space allows."""
        policy, state = self.made(), None
        for step in self.steps:
            seen = {name: np.zeros_like(field) if name in TIMES else field for name, field in step.observation.items()}
            try:
                action, state = self.predict(policy, seen, state, step.conditions)
                self.envs.unwrapped.checked(action)
            except (FaultError, ValueError) as error:
                raise FaultError(f"where all durations are 0, in round {step.round}: {error}") from error

    def refuses_what_is_not_its_own(self) -> None:
        """An observation or a state that is not of this setting is refused."""
        policy, last, state = self.made(), self.steps[-1], self.steps[-2].answer.state
        seen, n = last.observation, self.setting.n
        wider = {name: seen[name][:, [*range(n), 0]] for name in _PER_WORKER if name in seen}
        privileged: dict[str, Any] = {"privileged": last.conditions} if self.kind.privileged else {}
        for what, observation in (
            (f"an observation of {n + 1} workers", seen | wider),
            ("durations that are NaN", seen | {"duration": np.full_like(seen["duration"], np.nan)}),
            ("results of a worker that is not there", seen | {"worker": np.full_like(seen["worker"], n)}),
            (f"a state of {_ROWS} rows with an observation of {_ROWS - 1}", rows_of(seen, _OTHERS)),
        ):
            try:
                policy.predict(observation, state, **privileged)
            except ValueError:
                continue
            except Exception as error:
                raised = f"raises {described(error)}"
            else:
                raised = "says nothing"
            raise FaultError(f"given {what}, predict {raised}: raise ValueError, as Policy.predict does")

    def made(self, seed: int = SEED, **changes: Any) -> Policy:
        """Make the policy, with some of the setting changed."""
        setting = self.setting._replace(**changes)
        try:
            return self.make(setting, seed=seed)
        except MissingExtraError:
            raise
        except Exception as error:
            where = f"{setting.n} workers and B = {setting.budget}"
            raise FaultError(sentence_on(f"it cannot be made for {where}: ", error)) from error

    @cached_property
    def setting(self) -> Setting:
        """The setting of the scenario."""
        return Setting.in_scenario(self.scenario)

    @cached_property
    def envs(self) -> Any:
        """A batch of envs of the scenario, in which the rounds are two episodes."""
        return self.envs_of(_ROWS, (self.rounds + 1) // 2)

    @property
    def steps_a_round(self) -> int:
        """How many decisions a round has."""
        return self.setting.budget if self.kind.env_id == DispatchPolicy.env_id else 1

    def envs_of(self, rows: int, horizon: int) -> Any:
        """A batch of envs of the scenario with episodes of so many rounds, which follow each other."""
        return gym.make_vec(
            self.kind.env_id, num_envs=rows, scenario=self.scenario, horizon=horizon, autoreset_mode="SameStep"
        )

    def predict(
        self, policy: Policy, observation: Observation, state: State | None, conditions: Conditions | None,
        start: Array | None = None,
    ) -> Answer:  # fmt: skip
        """Call ``predict``, with privileged information where the policy needs it, and note its side effects."""
        privileged = {"privileged": conditions} if self.kind.privileged else {}
        return checked_predict(self.faults, policy, observation, state, start, **privileged)

    def replay(
        self, policy: Policy, rows: slice | int = _ALL, start: int = 0, state: State | None = None
    ) -> Iterator[tuple[Step, Answer]]:
        """Give a policy the recorded observations again: as long as its actions are the same, an env would, too."""
        for step in self.steps[start:]:
            answer = self.predict(policy, rows_of(step.observation, rows), state, rows_of(step.conditions, rows))
            state = answer.state
            yield step, answer

    def does_the_same(self, policy: Policy, sentence: str, rows: slice = _ALL, **start: Any) -> None:
        """Raise the sentence at the first answer of a replay that is not, bit for bit, what these rows did before."""
        for step, answer in self.replay(policy, rows, **start):
            agree(answer, rows_of(step.answer, rows), sentence, step.round)


def agree(answer: Answer, expected: Answer, sentence: str, round: int = 0) -> None:
    """Raise the sentence, filled in, unless two answers are the same bit for bit."""
    what = difference(answer, expected)
    if what is not None:
        raise FaultError(sentence.format(what=what, round=round))


def _stacked(trees: list[Any]) -> Any:
    arrays = (np.ndarray, np.generic)
    return map_leaves(lambda *parts: np.stack(parts) if isinstance(parts[0], arrays) else parts[0], *trees)
