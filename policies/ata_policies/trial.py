"""A policy on trial in one world: it is played once, and then shown again what it saw, in other ways."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.pools import exponential
from ata_policies.policy import Observation, Policy, Setting, State
from ata_policies.watching import Array, Arrays, FaultError, difference, leaves, watched_predict

Make = Callable[[Setting, int], Policy]
"""Makes the policy on trial for a setting and a seed."""

_ROWS, _SEED = 3, 5
_ALL = slice(None)


class Step(NamedTuple):
    """What a batch saw, did, and remembered."""

    round: int
    """Counted from 1 over all episodes."""
    observation: Observation
    action: Array
    state: State


Answers = Iterable[tuple[Step, Array, State]]
"""What a policy did, and remembered, when it was shown a step again."""


class Trial:
    """A policy in one world, and the faults that come to light.

    Parameters
    ----------
    make
        Makes the policy.
    kind
        Its class.
    setting
        The world.
    rounds
        How many rounds are played, in two episodes.
    """

    def __init__(self, make: Make, kind: type[Policy], setting: Setting, rounds: int) -> None:
        self.make, self.kind, self.rounds = make, kind, rounds
        self.setting = setting._replace(now=None)  # it is played elsewhere
        self.faults: dict[str, None] = {}
        self.steps: list[Step] = []

    def run(self, thorough: bool = True) -> tuple[str, ...]:
        """Give a sentence for each fault; what only follows from a fault is not looked for."""
        if self._pass(self.plays) and thorough and self._pass(self.repeats):
            if self._pass(self.rows_are_alone, self.goes_on_when_saved):
                self._pass(self.starts_anew, self.heeds_episode_start)
            self._pass(self.single_is_a_row, self.knows_what_it_says, self.is_priced)
        return tuple(self.faults)

    def _pass(self, *checks: Callable[[], None]) -> bool:
        passed = True
        for check in checks:
            try:
                check()
            except FaultError as fault:
                self.note(str(fault))
                passed = False
        return passed

    def note(self, fault: str) -> None:
        """Remember a fault, once."""
        self.faults[fault] = None

    def plays(self) -> None:
        """Play two episodes; where the policy's action is illegal, another is played."""
        policy, envs = self.made(), self.envs()
        space: Any = envs.action_space
        stand_in = np.zeros(space.shape, np.int64)
        stand_in[:, 0] = getattr(space, "budget", 1)
        observation, _ = envs.reset(seed=_SEED)
        steps_a_round = self.setting.budget // observation["worker"].shape[1]
        state, illegal = None, False
        for k in range(self.rounds * steps_a_round):
            action, state = self.predict(policy, observation, state)
            step = Step(k // steps_a_round + 1, observation, np.array(action), state)
            self.steps.append(step)
            try:
                played = space.check(action)
            except ValueError as error:
                sentence = f"its action is illegal in round {step.round}: {error}"
                if np.shape(action) != space.shape:
                    raise FaultError(sentence) from error
                if not illegal:
                    self.note(sentence)
                played, illegal = stand_in, True
            observation = envs.step(played)[0]
        envs.close()

    def repeats(self) -> None:
        """A seed says it all."""
        self.compare(
            self.replay(self.made()),
            "made again with the same seed, it has another {what} in round {round}: draw only from keys such as "
            "state.round_keys(), and keep nothing outside the state",
        )

    def rows_are_alone(self) -> None:
        """A row does not depend on its batch."""
        for e in range(_ROWS):
            own = slice(e, e + 1)
            self.compare(
                self.replay(self.made(seed=_SEED + e), own),
                "a row of a batch has another {what} in round {round} than the same row alone: compute along the last "
                "axis, and draw from keys such as state.round_keys(), of which each row has its own",
                own,
            )

    def single_is_a_row(self) -> None:
        """An observation without a row axis gets an action without one."""
        envs = self.envs()
        shape = envs.single_action_space.shape
        envs.close()
        single, batch = self.replay(self.made(), 0), self.replay(self.made(), slice(0, 1))
        for (step, action, state), (_, row, row_state) in zip(single, batch, strict=True):
            if np.shape(action) != shape:
                raise FaultError(
                    f"for a single env its action must have shape {shape}, not {np.shape(action)}: an observation "
                    "without a row axis gets an action without one"
                )
            what = difference(_rows(action[None], state), _rows(row, row_state))
            if what is not None:
                raise FaultError(
                    f"in a single env it has another {what} in round {step.round} than as a batch of one row"
                )

    def goes_on_when_saved(self) -> None:
        """The state is all that a policy remembers."""
        later = 3 * len(self.steps) // 4  # in the second episode
        try:
            saved = pickle.loads(pickle.dumps(self.steps[later - 1].state))
        except Exception as error:
            raise FaultError(
                f"its state cannot be pickled ({error}): define the classes of belief and plan at the top of a module"
            ) from error
        self.compare(
            self.replay(self.made(), start=later, state=saved),
            "going on from a saved state, it has another {what} in round {round}: what it has learned or worked out "
            "must be in state.belief and state.plan",
        )

    def starts_anew(self) -> None:
        """Without feedback a row begins an episode, and the others go on."""
        policy, state, last = self.made(), self.steps[-2].state, self.steps[-1].observation
        blank = self.steps[0].observation
        fresh = policy.first_state(_ROWS)._replace(episode=state.episode, key=state.key)
        self._compare_start(
            self.predict(policy, {name: _with_first(blank[name], field) for name, field in last.items()}, state),
            self.predict(policy, blank, fresh),
            "where the worker is -1 an episode begins, but the {what} is not that of a new one: override act or "
            "allocate and leave predict as it is, or begin with first_state there",
        )

    def heeds_episode_start(self) -> None:
        """Where ``episode_start`` says so an episode begins, whatever the feedback."""
        policy, state, last = self.made(), self.steps[-2].state, self.steps[-1].observation
        nothing = {"worker": np.full_like(last["worker"], -1), "elapsed": np.zeros_like(last["elapsed"])}
        silent = last | {name: _with_first(field, last[name]) for name, field in nothing.items()}
        self._compare_start(
            self.predict(policy, last, state, np.arange(_ROWS) == 0),
            self.predict(policy, silent, state),
            "where episode_start is True an episode begins, but the {what} is not that of a new one",
        )

    def _compare_start(self, answer: tuple[Array, State], expected: tuple[Array, State], sentence: str) -> None:
        """The first row is as expected, the others as if nothing had happened to it."""
        first, others, last = slice(0, 1), slice(1, None), self.steps[-1]
        what = difference(_rows(*answer, first), _rows(*expected, first))
        if what is not None:
            raise FaultError(sentence.format(what=what))
        what = difference(_rows(*answer, others), _rows(last.action, last.state, others))
        if what is not None:
            raise FaultError(f"where one row begins an episode, the {what} of another changes")

    def knows_what_it_says(self) -> None:
        """``knows`` is "nothing" only where the pool is not looked at."""
        if self.kind.knows == "nothing":
            sentence = 'it says knows = "nothing", but looks at the pool or the scenario: say what it must know of them'
            try:
                blind = self.made(pool=None, scenario=None)
            except FaultError:
                raise FaultError(sentence) from None
            self.compare(self.replay(blind), sentence)

    def is_priced(self) -> None:
        """``priced`` is False only where the price is not looked at."""
        if not self.kind.priced:
            dear = self.made(price=self.setting.price + 1.0)
            self.compare(self.replay(dear), "what it does depends on the price: set priced = True")

    def made(self, seed: int = _SEED, **changes: Any) -> Policy:
        """Make the policy, with some of the setting changed."""
        setting = self.setting._replace(**changes)
        try:
            return self.make(setting, seed)
        except Exception as error:
            where = f"{setting.n} workers and B = {setting.budget}"
            raise FaultError(f"it cannot be made for {where}: {type(error).__name__}: {error}") from error

    def envs(self) -> gym.vector.VectorEnv[Any, Any, Any]:
        """A batch of the world, in which the rounds are two episodes."""
        n, budget, pool, scenario, price, _ = self.setting
        world: dict[str, Any] = {"scenario": scenario}
        if scenario is None:
            world = {"pool": exponential(np.ones(n)) if pool is None else pool}
        return gym.make_vec(
            self.kind.env_id,
            num_envs=_ROWS,
            budget=budget,
            price=price,
            horizon=(self.rounds + 1) // 2,
            autoreset_mode="SameStep",
            **world,
        )

    def predict(
        self, policy: Policy, observation: Observation, state: State | None, start: Array | None = None
    ) -> tuple[Array, State]:
        """Predict, and note what should not have happened meanwhile."""
        return watched_predict(self.note, policy, observation, state, start)

    def replay(
        self, policy: Policy, rows: slice | int = _ALL, start: int = 0, state: State | None = None
    ) -> Iterator[tuple[Step, Array, State]]:
        """Show a policy again what was seen: as long as it does the same, an env would do the same too."""
        for step in self.steps[start:]:
            action, state = self.predict(policy, {name: f[rows] for name, f in step.observation.items()}, state)
            yield step, action, state

    def compare(self, answers: Answers, sentence: str, rows: slice = _ALL) -> None:
        """Raise the sentence at the first answer that is not, bit for bit, what these rows did before."""
        for step, action, state in answers:
            what = difference(_rows(action, state), _rows(step.action, step.state, rows))
            if what is not None:
                raise FaultError(sentence.format(what=what, round=step.round))


def _rows(action: Array, state: State, rows: slice = _ALL) -> Arrays:
    return {"action": np.asarray(action)[rows], **{name: leaf[rows] for name, leaf in leaves(state)}}


def _with_first(first: Array, others: Array) -> Array:
    """The first row of one array, and the other rows of another."""
    mixed: Array = np.concatenate([first[:1], others[1:]])
    return mixed
