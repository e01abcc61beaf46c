"""The contract of a policy."""

import inspect
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.simulation.keys import derive_keys, stream_keys, uniforms
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.ranges import Size, Wholes
from ata_gym.utils.trees import choose_rows
from ata_gym.utils.validation import short, whole_number
from ata_policies.beliefs.availability import Availability
from ata_policies.beliefs.belief import Belief, BeliefOfMeans, InitialBelief
from ata_policies.beliefs.moments import Totals
from ata_policies.explanation import Explanation, numbers_of
from ata_policies.facts import Described, UndeclaredError, granted, together, undeclared
from ata_policies.observations import Door, Observation, checked_conditions, checked_observation, checked_start
from ata_policies.setting import Setting

_OWN_RANDOMNESS = 1  # the stream of keys for policies; the task times have another


class State(NamedTuple):
    """What a policy carries from round to round: E rows of belief, plan, and of its own randomness."""

    belief: Any  # what was learned, a ``Belief`` of the type that the policy names
    plan: Any  # what was computed from it and is kept for some rounds: a named tuple of arrays, or an empty tuple
    round: Wholes  # (E,) the current round, from 1 on
    episode: Wholes  # (E,) episodes begun before; with the round, the counter of the row's own randomness
    key: Keys  # (E,) the key of the row's own randomness

    def round_keys(self) -> Keys:
        """A fresh key for the randomness of each row's round, shape (E,)."""
        return derive_keys(self.key, self.episode, self.round)

    def round_uniforms(self, size: int, purpose: int) -> Floats:
        """Fresh uniform numbers of each row's round, shape (E, size); others for each purpose."""
        return uniforms(derive_keys(self.round_keys(), 0, purpose), size)


class PolicyClass(ABCMeta):
    """The type of the classes of policies.

    Whoever makes a policy, it is told of the setting what its class says that it must know, before its own code runs.
    """

    def __call__(cls, setting: Setting, *args: Any, **hyperparameters: Any) -> Any:
        """Make a policy; UndeclaredError if it needs the conditions of each round, and does not say so."""
        if not isinstance(setting, Setting):
            raise ValueError(  # noqa: TRY004
                f"{cls.__name__} is made for a setting, such as Setting.of(env), not for {short(setting)}"
            )
        of: Any = cls
        knows = together(of.made_of(**hyperparameters), "knows")
        made = super().__call__(setting.told_to(cls.__name__, knows), *args, **hyperparameters)
        if getattr(made, "privileged", False) and "conditions" not in granted(knows):
            what = "what predict gets as privileged"
            raise UndeclaredError(undeclared(cls.__name__, knows, what, "conditions"))
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of the constructor."""
        own = inspect.signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=[*own.parameters.values()][1:])


class Policy(Described, metaclass=PolicyClass):
    """Hyperparameters and a seed; what is learned is in the state that ``predict`` takes and returns.

    Start from ``AllocationPolicy`` or ``DispatchPolicy``. Row e of a batch has the randomness of a policy with seed
    ``seed + e``, so it does not depend on its batch.
    """

    env_id: ClassVar[str] = "ata_gym/TaskAllocation-v0"  # the env that it plays
    learns: ClassVar[bool] = True  # whether it learns; those that do not are baselines
    priced: ClassVar[bool] = False  # whether its actions depend on the price of worker time
    tells_costs: ClassVar[bool] = False  # whether, if so, it knows that workers' unit costs may differ
    belief: ClassVar[type[InitialBelief]] = Totals  # what it remembers; ``explain`` shows a ``BeliefOfMeans``
    availability: bool | None = None  # whether workers that owe results are left out; None: no such hyperparameter
    only_size: ClassVar[tuple[int, int] | None] = None  # the n and B that it was made for; None: any
    kernels: ClassVar[tuple[str, ...]] = ()  # modules of kernels that it needs and that compile for long, these first
    trained_on: ClassVar[range] = range(0)  # seeds from which workers were drawn anew in its training
    privileged: ClassVar[bool] = False  # whether ``predict`` needs the conditions of the coming round: for oracles

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        if self.only_size is not None and self.only_size != setting[:2]:
            n, budget = self.only_size
            raise ValueError(
                f"{type(self).__name__} was made for {n} workers and a budget of {budget}, not for {setting.n} and "
                f"{setting.budget}"
            )
        if self.priced and not self.tells_costs and setting.price > 0.0 and setting.unit_costs is not None:
            raise ValueError(
                f"{type(self).__name__} takes every worker's time to cost the same, and here unit_costs are given: "
                "play distribution-learner, oracle or dynamic-oracle, or a policy that does not look at the price"
            )
        self.setting, self.seed = setting, whole_number("seed", seed, least=0)

    @classmethod
    def made_of(cls, **_: Any) -> Sequence[type[Described]]:
        """The parts of a policy with these hyperparameters; what they must know and their unit of time are its own."""
        return (cls,)

    def predict(
        self, observation: Observation, state: State | None = None, episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False, privileged: Conditions | None = None,
    ) -> tuple[Ints, State]:  # fmt: skip
        """Choose the next action, in the manner of Stable-Baselines3.

        The action has shape (n,) or (E, n). ValueError if the observation is not one of this setting, the state is not
        one of this policy with as many rows, or privileged information is missing.

        - ``observation``: the feedback of the last step, of one env or of a batch of E rows.
        - ``state``: what the last call returned; None to start.
        - ``episode_start``: (E,) rows whose episode has just begun; a row without feedback starts anew anyway.
        - ``deterministic``: ignored, since a policy's own randomness is part of its rule.
        - ``privileged``: what only oracles may see, ``env.unwrapped.conditions()``.
        """
        seen = checked_observation(observation, self.setting.n, self.setting.budget, self.env_id)
        anew = seen["worker"][:, 0] < 0
        rows = len(anew)
        if state is None:
            state = self.first_state(rows)
        elif not isinstance(state, State):
            raise ValueError(f"state must be what predict returned before, or None, not a {type(state).__name__}")
        elif state is not self._door.last or len(state.round) != rows:
            self.check_state(state, rows)
        if episode_start is not None:
            anew = anew | checked_start(episode_start, rows)
            seen["worker"] = np.where(anew[:, None], -1, seen["worker"])
            seen["elapsed"] = np.where(anew[:, None], 0.0, seen["elapsed"])
        belief, plan, round, episode = state.belief, state.plan, state.round, state.episode
        if anew.any():
            blank = self.first_state(rows)
            belief, plan, round = choose_rows(anew, (blank.belief, blank.plan, blank.round), (belief, plan, round))
            episode = episode + anew
        name = type(self).__name__
        conditions = checked_conditions(privileged, rows, self.setting.n, name) if self.privileged else None
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # squares and ratios of extreme times
            belief = belief.observe(seen["worker"], seen["duration"], seen["elapsed"])
            state = State(belief, plan, round + self.begins(seen), episode, state.key)
            action, state = self.act(state, seen) if conditions is None else self.act_knowing(state, seen, conditions)
        self._door.last = state
        return action if np.ndim(observation["worker"]) > 1 else action[0], state

    def check_state(self, state: State, rows: int) -> None:
        """ValueError unless the state is one of this policy; ``predict`` does not check the one it returned last."""
        self._door.check(state, rows)

    def explain(self, state: State, row: int = 0) -> Explanation:
        """Explain the decision in a row with which ``predict`` returned the state; ValueError without such a row.

        >>> import gymnasium, ata_gym, ata_policies
        >>> from ata_gym.pools import deterministic
        >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=deterministic([1.0, 2.0, 9.0]), budget=2)
        >>> policy, (observation, _), state = ata_policies.make("restarting-beta", env), env.reset(seed=0), None
        >>> for _ in range(3):
        ...     allocation, state = policy.predict(observation, state)
        ...     observation, *_ = env.step(allocation)
        >>> print(policy.explain(state))
        round 3: memory Restarts, estimate ThompsonGamma, rule Beta
        plan: workers that owe results get nothing but a probe at intervals
        worker  mean  evidence  tasks
             0     1     1.995      1
             1     2         1      1
             2     9         1      0
        """
        rows = len(state.round)
        if not -rows <= row < rows:
            raise ValueError(f"row must be one of the state's {rows} rows, counted from 0, not {row}")
        round, words = int(state.round[row]), self.plan_in_words(state, row)
        mean, evidence = (part[row] for part in self.estimated(state))
        action = self.last_action(state) if round > 0 else None
        tasks = None if action is None else action[row]
        away, untried = self.away(state)[row], self.untried(state)[row]
        return Explanation(self.about(), round, words, mean, evidence, tasks, away, untried)

    def about(self) -> str:
        """What the policy does, in a sentence, with what it was made with."""
        return self.summary()

    def estimated(self, state: State) -> tuple[Floats, Floats]:
        """Mean task times, NaN where unknown, and the results behind them, (E, n) each: by default as believed."""
        if isinstance(state.belief, BeliefOfMeans):
            return state.belief.mean(), np.asarray(state.belief.counts, np.float64)
        shape = len(state.round), self.setting.n
        return np.full(shape, np.nan), np.zeros(shape)

    def untried(self, state: State) -> Mask:
        """Workers of whom nothing is known, (E, n)."""
        return state.belief.untried() if isinstance(state.belief, BeliefOfMeans) else self.estimated(state)[1] == 0.0

    def away(self, state: State) -> Mask:
        """Workers that are thought to be away, (E, n): those that owe results, if the plan has an ``availability``."""
        watched = _watched(state)
        return watched.away if watched is not None else np.zeros((len(state.round), self.setting.n), np.bool_)

    def note_absences(self, state: State, absent: Mask, back: Mask) -> State:
        """The state after a loop reports which workers are ``absent``, and which have just come ``back``, (n,) each.

        In an ``availability`` of the plan absent workers owe results then, and those that are back are probed.
        """
        watched = _watched(state)
        if watched is None:
            return state
        return state._replace(plan=state.plan._replace(availability=watched.note_absences(absent, back)))

    def plan_in_words(self, state: State, row: int) -> str:
        """The plan of a row in words, for ``explain``: by default the numbers in it, by name."""
        return numbers_of(state.plan, row, len(state.round))

    def last_action(self, state: State) -> Ints | None:
        """The action that came with a state, shape (E, n), for ``explain``; None if the state does not hold it."""
        return None

    @cached_property
    def _door(self) -> Door:
        return Door(self.first_state(1), Size(*self.setting[:2]), type(self).__name__)

    def first_state(self, rows: int) -> State:
        """The state of ``rows`` rows that have seen nothing."""
        zeros = np.zeros(rows, np.int64)
        keys = stream_keys(self.seed, rows, _OWN_RANDOMNESS)
        return State(self.first_belief(rows), self.first_plan(rows), zeros, zeros, keys)

    def first_belief(self, rows: int) -> Belief:
        """The belief of rows that have seen nothing."""
        return self.belief.empty(rows, self.setting.n)

    def first_plan(self, rows: int) -> Any:
        """The plan of ``rows`` rows that have seen nothing: a named tuple of arrays, or an empty tuple."""
        return ()

    def begins(self, seen: Observation) -> Mask | bool:
        """Which rows begin a round with this step, shape (E,)."""
        return True

    @abstractmethod
    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Choose an action for each row of the batch, (E, n), and return it with the state, whose plan may be new."""

    def act_knowing(self, state: State, seen: Observation, conditions: Conditions) -> tuple[Ints, State]:
        """As ``act``, for policies with ``privileged``; ``conditions`` are those of each row's coming round."""
        return self.act(state, seen)


def _watched(state: State) -> Availability | None:
    availability = getattr(state.plan, "availability", None)
    return availability if isinstance(availability, Availability) else None


class AllocationPolicy(Policy):
    """A policy of ``ata_gym/TaskAllocation-v0`` or ``ata_gym/TaskRace-v0``, whose action follows from the state alone.

    A policy of your own:

    >>> import gymnasium, ata_gym
    >>> from ata_gym import allocate
    >>> class Optimist(AllocationPolicy):
    ...     def allocate(self, state):
    ...         fastest = np.where(state.belief.untried(), 0.0, 0.9 * np.nan_to_num(state.belief.mean()))
    ...         return allocate(fastest, self.setting.budget, state.round_keys(), state.belief.untried())
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    >>> allocation, state = Optimist(Setting.of(env)).predict(env.reset(seed=0)[0])
    >>> int(allocation.sum())
    5
    """

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        return self.allocate(state), state

    def last_action(self, state: State) -> Ints | None:
        return self.allocate(state)

    @abstractmethod
    def allocate(self, state: State) -> Ints:
        """Tasks for each worker in each row, shape (E, n)."""


class DispatchPolicy(Policy):
    """A policy of ``ata_gym/TaskDispatch-v0``: at each completion, 0 or 1 for each worker: who should be working."""

    env_id = "ata_gym/TaskDispatch-v0"

    def begins(self, seen: Observation) -> Mask:
        """A round begins when all B results are missing."""
        return np.asarray(seen["missing"][:, 0] == self.setting.budget)
