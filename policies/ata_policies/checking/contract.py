"""The contract of a policy: it is played in one scenario, and then observes the same again in other ways."""

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np

from ata_gym.changes import Change, Conditions
from ata_gym.pools import exponential
from ata_gym.scenarios import Published
from ata_gym.utils.errors import described
from ata_gym.utils.extras import MissingExtraError
from ata_gym.utils.trees import difference, map_leaves
from ata_policies.checking.predict_call import Answer, Array, FaultError, Step, checked_predict, rows_of
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.registry import PolicyMaker
from ata_policies.setting import Setting

Make = Callable[..., Policy]  # makes the policy for a setting and a ``seed``

_ROWS, _SEED = 3, 5
_ALL, _FIRST, _OTHERS = slice(None), slice(0, 1), slice(1, None)
_MIXED, _MIXED_ROWS = 20, 7  # batches of rows from different rounds, and the rows of each
_TIMES = ("duration", "elapsed", "age")
_PER_WORKER = ("elapsed", "started", "running", "age")


@dataclass
class ContractCheck:
    """The check of a policy, of this class or preset, in one scenario; ``rounds`` are played in two episodes."""

    make: Make
    kind: PolicyMaker
    setting: Setting
    changes: Sequence[Change]
    rounds: int
    faults: dict[str, None] = field(default_factory=dict)  # a sentence for each, once
    steps: list[Step] = field(default_factory=list)  # what was played

    def run(self, thorough: bool = True) -> tuple[str, ...]:
        """Return a sentence for each fault; a check whose failure would follow from another fault is left out."""
        if self._pass(self.plays) and thorough and self._pass(self.repeats):
            alone = self._pass(self.rows_are_alone, self.goes_on_when_saved)
            if alone and self._pass(self.single_is_a_row, self.starts_anew, self.heeds_episode_start):
                self._pass(self.rows_may_be_mixed)
            self._pass(self.knows_what_it_says, self.is_priced, self.notes_absences)
            if not self.faults:
                self._pass(self.accepts_durations_of_0, self.refuses_what_is_not_its_own)
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
        observation, _ = envs.reset(seed=_SEED)
        steps_a_round = self.setting.budget // observation["worker"].shape[1]
        state, illegal = None, False
        for k in range(self.rounds * steps_a_round):
            conditions = bare.conditions() if self.kind.privileged else None
            action, state = self.predict(policy, observation, state, conditions)
            step = Step(k // steps_a_round + 1, observation, conditions, Answer(np.array(action), state))
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
                self.made(seed=_SEED + e),
                "a row of a batch has another {what} in round {round} than the same row alone: compute along the last "
                "axis, and draw from keys such as state.round_keys(), of which each row has its own",
                slice(e, e + 1),
            )

    def rows_may_be_mixed(self) -> None:
        """A row does not depend on the number of rows beside it, nor on their rounds, episodes and seeds.

        Steps at which an episode begins are left out: a first state may depend on the row's place in its batch.
        """
        policy, rng = self.made(), np.random.default_rng(_SEED)
        within = [k for k, step in enumerate(self.steps) if (step.observation["worker"][:, 0] >= 0).all()]
        for _ in range(_MIXED):
            places = [(within[k], e) for k, e in rng.integers(0, (len(within), _ROWS), (_MIXED_ROWS, 2)).tolist()]
            steps = _stacked([rows_of(self.steps[k]._replace(round=0), e) for k, e in places])
            before = _stacked([rows_of(self.steps[k - 1].answer.state, e) for k, e in places])
            _agree(
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
            _agree(Answer(action[None], state), rows_of(step.answer, _FIRST), sentence, step.round)

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
        _agree(rows_of(answer, _FIRST), rows_of(expected, _FIRST), sentence)
        others = rows_of(self.steps[-1].answer, _OTHERS)
        _agree(rows_of(answer, _OTHERS), others, "where one row begins an episode, the {what} of another changes")

    def knows_what_it_says(self) -> None:
        """A policy that uses the pool does not say that it knows nothing."""
        if self.kind.knows == "nothing":
            sentence = 'it says knows = "nothing", but looks at the pool or the scenario: say what it must know of them'
            try:
                blind = self.made(pool=None, published=Published(), drawn=None)
            except FaultError:
                raise FaultError(sentence) from None
            self.does_the_same(blind, sentence)

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

    def accepts_durations_of_0(self) -> None:
        """Actions stay legal where tasks take no time, which the observation space allows."""
        policy, state = self.made(), None
        for step in self.steps:
            seen = {name: np.zeros_like(field) if name in _TIMES else field for name, field in step.observation.items()}
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

    def made(self, seed: int = _SEED, **changes: Any) -> Policy:
        """Make the policy, with some of the setting changed."""
        setting = self.setting._replace(**changes)
        try:
            return self.make(setting, seed=seed)
        except MissingExtraError:
            raise
        except Exception as error:
            where = f"{setting.n} workers and B = {setting.budget}"
            raise FaultError(f"it cannot be made for {where}: {described(error)}") from error

    @cached_property
    def envs(self) -> Any:
        """A batch of envs of the scenario, in which the rounds are two episodes."""
        n, budget, price, pool, *_ = self.setting
        return gym.make_vec(
            self.kind.env_id, num_envs=_ROWS, pool=exponential(np.ones(n)) if pool is None else pool, budget=budget,
            price=price, changes=list(self.changes), horizon=(self.rounds + 1) // 2, autoreset_mode="SameStep",
        )  # fmt: skip

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
            _agree(answer, rows_of(step.answer, rows), sentence, step.round)


def _agree(answer: Answer, expected: Answer, sentence: str, round: int = 0) -> None:
    what = difference(answer, expected)
    if what is not None:
        raise FaultError(sentence.format(what=what, round=round))


def _stacked(trees: list[Any]) -> Any:
    arrays = (np.ndarray, np.generic)
    return map_leaves(lambda *parts: np.stack(parts) if isinstance(parts[0], arrays) else parts[0], *trees)
