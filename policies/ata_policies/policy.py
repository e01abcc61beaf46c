"""The contract of a policy."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.simulation.keys import derive_keys, stream_keys, uniforms
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.ranges import Size, Wholes
from ata_gym.utils.trees import choose_rows
from ata_gym.utils.validation import whole_number
from ata_policies.beliefs.availability import Availability, PlanWithAvailability, counted
from ata_policies.beliefs.belief import BeliefOfMeans, BeliefT, InitialBelief, PlanT
from ata_policies.beliefs.moments import LatencyBelief, Totals
from ata_policies.explanation import Explanation, numbers_of
from ata_policies.facts import Described
from ata_policies.observations import (
    Observation,
    StateCheck,
    check_delay,
    checked_conditions,
    checked_observation,
    checked_start,
    paid_in_full,
    with_latency_spread,
)
from ata_policies.setting import PolicyClass, Setting

_POLICY_STREAM = 1  # the stream of keys for policies; the task times have another


class State(NamedTuple, Generic[BeliefT, PlanT]):
    """What a policy carries from round to round, in E rows."""

    belief: BeliefT
    """What was learned, a ``Belief`` of the type that the policy names."""
    plan: PlanT
    """What was computed from the belief and is kept for some rounds.

    A named tuple of arrays, or an empty tuple.
    """
    round: Wholes
    """(E,) the current round, from 1 on."""
    episode: Wholes
    """(E,) episodes begun before; with the round, the counter of the row's own randomness."""
    key: Keys
    """(E,) the key of the row's own randomness."""
    latency: LatencyBelief | tuple[()] = ()
    """What was learned of the workers' latencies, by a policy that ``uses_latency``."""

    def round_keys(self) -> Keys:
        """Return a fresh key for the randomness of each row's round, (E,)."""
        return derive_keys(self.key, self.episode, self.round)

    def round_uniforms(self, size: int, purpose: int) -> Floats:
        """Return fresh uniform numbers of each row's round, (E, size).

        Args:
            size: Numbers in a row.
            purpose: They are others for each purpose, a whole number.
        """
        return uniforms(derive_keys(self.round_keys(), 0, purpose), size)


class Policy(Described, Generic[BeliefT, PlanT], metaclass=PolicyClass):
    """A policy: hyperparameters and a seed, but no memory.

    What is learned is in the state that ``predict`` takes and returns. Start from
    ``AllocationPolicy`` or ``DispatchPolicy``. Row e of a batch has the randomness of a policy with
    seed ``seed + e``, so it does not depend on its batch.
    """

    env_id: ClassVar[str] = "ata_gym/TaskAllocation-v0"
    """The env that it plays."""
    learns: ClassVar[bool] = True
    """Whether it learns; policies that do not learn are baselines."""
    priced: ClassVar[bool] = False
    """Whether its actions depend on the price of worker time."""
    uses_unit_costs: ClassVar[bool] = False
    """Whether, if it is priced, it knows that workers' unit costs may differ."""
    uses_latency: bool = False
    """Whether it learns latencies apart from task times.

    Others learn from times that hold the latencies: the latencies of a worker are spread over its
    results of the round, as where whole shares are timed (``with_latency_spread``).
    """
    belief: ClassVar[type[InitialBelief]] = Totals
    """What it remembers; ``explain`` shows a ``BeliefOfMeans``."""
    availability: bool | None = None
    """Whether workers that owe results are left out; None: no such hyperparameter."""
    only_size: ClassVar[tuple[int, int] | None] = None
    """The n and B that it was made for; None: any."""
    kernels: ClassVar[tuple[str, ...]] = ()
    """Modules of kernels that it needs; the ones that compile for longest come first."""
    trained_on: ClassVar[range] = range(0)
    """Seeds from which workers were drawn anew in its training."""
    privileged: ClassVar[bool] = False
    """Whether ``predict`` needs the conditions of the coming round: for oracles."""

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        if self.only_size is not None and self.only_size != setting[:2]:
            n, budget = self.only_size
            raise ValueError(
                f"{type(self).__name__} was made for {n} workers and a budget of {budget}, not for"
                f" {setting.n} and {setting.budget}",
            )
        costs_differ = setting.price > 0.0 and setting.unit_costs is not None
        if self.priced and not self.uses_unit_costs and costs_differ:
            raise ValueError(
                f"{type(self).__name__} takes every worker's time to cost the same, and here"
                " unit_costs are given: play distribution-learner, oracle or dynamic-oracle, or a"
                " policy that does not look at the price",
            )
        self.setting = setting
        self.seed = whole_number("seed", seed, least=0)

    @classmethod
    def parts_for(cls, **_: Any) -> Sequence[type[Described]]:
        """Return the parts of a policy with these hyperparameters.

        What they must know, and their unit of time, apply to the policy.
        """
        return (cls,)

    def predict(
        self,
        observation: Observation,
        state: State[BeliefT, PlanT] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        privileged: Conditions | None = None,
    ) -> tuple[Ints, State[BeliefT, PlanT]]:
        """Choose the next action, in the manner of Stable-Baselines3.

        Args:
            observation: The feedback of the last step, of one env or of a batch of E rows. With the
                key ``warm_up``, no time of the workers in it is learned (``counted``). With the key
                ``allocation``, it is of an earlier round, in which these tasks were given.
            state: What the last call returned; None to start.
            episode_start: (E,) rows whose episode has just begun; a row without feedback starts
                anew anyway, unless its first feedback is still delayed.
            deterministic: Ignored, since a policy's own randomness is part of its rule.
            privileged: What only oracles may see, ``env.unwrapped.conditions()``.

        Returns:
            The action, of shape (n,) or (E, n), and the next state.

        Raises:
            ValueError: If the observation is not one of this setting, nor of its delay, the state
                is not one of this policy with as many rows, or privileged information is missing.
        """
        batch = checked_observation(observation, self.setting.n, self.setting.budget, self.env_id)
        check_delay(batch, self.setting.delay, type(self).__name__)
        anew = batch["worker"][:, 0] < 0
        rows = len(anew)
        if state is None:
            state = self.first_state(rows)
        elif not isinstance(state, State):
            raise ValueError(
                "state must be what predict returned before, or None, not a"
                f" {type(state).__name__}",
            )
        elif state is not self._state_check.last_state or len(state.round) != rows:
            self.check_state(state, rows)
        if self.setting.delay > 0:
            # the first results of an episode are yet to come
            anew = anew & ~((state.round > 0) & (state.round <= self.setting.delay))
        if episode_start is not None:
            anew = anew | checked_start(episode_start, rows)
            batch["worker"] = np.where(anew[:, None], -1, batch["worker"])
            batch["elapsed"] = np.where(anew[:, None], 0.0, batch["elapsed"])
            for name in {"latency", "allocation"} & batch.keys():
                batch[name] = np.where(anew[:, None], 0, batch[name])
        belief = state.belief
        plan = state.plan
        round = state.round
        episode = state.episode
        latency = state.latency
        if anew.any():
            blank = self.first_state(rows)
            belief, plan, round, latency = choose_rows(
                anew,
                (blank.belief, blank.plan, blank.round, blank.latency),
                (belief, plan, round, latency),
            )
            episode = episode + anew
        if "allocation" in batch:
            # what is compared with these results is the allocation that they are of
            noted = state._replace(belief=belief, plan=plan)
            belief, plan, *_ = self.note_tasks(noted, batch["allocation"])
        name = type(self).__name__
        if self.privileged:
            conditions = checked_conditions(privileged, rows, self.setting.n, name)
        else:
            conditions = None
        # squares and ratios of extreme times
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if not self.uses_latency:
                batch = with_latency_spread(batch)
            belief, latency = self._learn(belief, latency, batch)
            state = State(belief, plan, round + self.begins(batch), episode, state.key, latency)
            if conditions is None:
                action, state = self.act(state, batch)
            else:
                action, state = self.act_knowing(state, batch, conditions)
        self._state_check.last_state = state
        if np.ndim(observation["worker"]) > 1:
            return action, state
        return action[0], state

    def _learn(
        self, belief: BeliefT, latency: LatencyBelief | tuple[()], batch: Observation
    ) -> tuple[BeliefT, LatencyBelief | tuple[()]]:
        """Return what is known after the feedback of a step."""
        worker, duration, elapsed = (batch[name] for name in ("worker", "duration", "elapsed"))
        if "warm_up" in batch:
            worker, duration, elapsed = counted(batch)
        if "latency" in batch and isinstance(latency, LatencyBelief):
            paid = batch["latency"]
            if "warm_up" in batch:
                paid = np.where(batch["warm_up"], 0.0, paid)
            latency = latency.observe(paid, paid_in_full(worker, elapsed))
        return belief.observe(worker, duration, elapsed), latency

    def check_state(self, state: State[BeliefT, PlanT], rows: int) -> None:
        """Check a state; ``predict`` does not check the state that it returned last.

        Args:
            state: The state.
            rows: How many rows it must have.

        Raises:
            ValueError: Unless it is a state of this policy.
        """
        self._state_check.check(state, rows)

    def explain(self, state: State[BeliefT, PlanT], row: int = 0) -> Explanation:
        """Explain the decision with which ``predict`` returned a state.

        Args:
            state: The state.
            row: The row of the decision.

        Raises:
            ValueError: If there is no such row.

        Example:
            >>> import gymnasium, ata_gym, ata_policies
            >>> from ata_gym.pools import deterministic
            >>> pool = deterministic([1.0, 2.0, 9.0])
            >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, budget=2)
            >>> policy = ata_policies.make("restarting-beta", env)
            >>> observation, _ = env.reset(seed=0)
            >>> state = None
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
            raise ValueError(
                f"row must be one of the state's {rows} rows, counted from 0, not {row}",
            )
        round = int(state.round[row])
        plan_text = self.describe_plan(state, row)
        mean, evidence = (estimate[row] for estimate in self.estimated(state))
        if round > 0:
            action = self.last_action(state)
        else:
            action = None
        if action is None:
            tasks = None
        else:
            tasks = action[row]
        away = self.away(state)[row]
        untried = self.untried(state)[row]
        return Explanation(self.about(), round, plan_text, mean, evidence, tasks, away, untried)

    def about(self) -> str:
        """Return what the policy does, in a sentence, with what it was made with."""
        return self.summary()

    def estimated(self, state: State[BeliefT, PlanT]) -> tuple[Floats, Floats]:
        """Return mean task times, (E, n), and the number of results behind them, (E, n).

        By default they are what is believed; NaN where a mean is unknown.
        """
        if isinstance(state.belief, BeliefOfMeans):
            return state.belief.mean(), np.asarray(state.belief.counts, np.float64)
        shape = len(state.round), self.setting.n
        return np.full(shape, np.nan), np.zeros(shape)

    def untried(self, state: State[BeliefT, PlanT]) -> Mask:
        """Return the workers of whom nothing is known, (E, n)."""
        if isinstance(state.belief, BeliefOfMeans):
            return np.asarray(state.belief.untried())
        return np.asarray(self.estimated(state)[1] == 0.0)

    def away(self, state: State[BeliefT, PlanT]) -> Mask:
        """Return the workers that are thought to be away, (E, n).

        They are the workers that owe results, if the plan is a ``PlanWithAvailability``.
        """
        availability = _availability_of(state.plan)
        if availability is not None:
            return availability.away
        return np.zeros((len(state.round), self.setting.n), np.bool_)

    def note_absences(
        self, state: State[BeliefT, PlanT], absent: Mask, back: Mask
    ) -> State[BeliefT, PlanT]:
        """Return the state after a loop reports who is absent, and who is back.

        In the availability of a ``PlanWithAvailability`` absent workers owe results then, and
        workers that are back are probed.

        Args:
            state: The state before.
            absent: (n,) the workers that are absent.
            back: (n,) the workers that have just come back.
        """
        plan: Any = state.plan
        availability = _availability_of(plan)
        if availability is None:
            return state
        plan = plan._replace(availability=availability.note_absences(absent, back))
        return state._replace(plan=plan)

    def note_tasks(self, state: State[BeliefT, PlanT], tasks: Ints) -> State[BeliefT, PlanT]:
        """Return the state after a loop has handed out other tasks than were decided.

        No worker owes results of tasks that it was not given then.

        Args:
            state: The state with which ``predict`` returned the decision.
            tasks: (n,) or (E, n) the tasks that each worker was given.
        """
        plan: Any = state.plan
        availability = _availability_of(plan)
        if availability is None:
            return state
        allocation = np.broadcast_to(tasks, availability.allocation.shape).copy()
        plan = plan._replace(availability=availability._replace(allocation=allocation))
        return state._replace(plan=plan)

    def describe_plan(self, state: State[BeliefT, PlanT], row: int) -> str:
        """Return the plan of a row in words; by default the numbers in it, by name."""
        return numbers_of(state.plan, row, len(state.round))

    def last_action(self, state: State[BeliefT, PlanT]) -> Ints | None:
        """Return the action that came with a state, (E, n), for ``explain``.

        None if the state does not hold it.
        """
        return None

    @cached_property
    def _state_check(self) -> StateCheck:
        """Return the check of states."""
        return StateCheck(self.first_state(1), Size(*self.setting[:2]), type(self).__name__)

    def first_state(self, rows: int) -> State[BeliefT, PlanT]:
        """Return the state of ``rows`` rows that have seen nothing."""
        zeros = np.zeros(rows, np.int64)
        keys = stream_keys(self.seed, rows, _POLICY_STREAM)
        latency: LatencyBelief | tuple[()] = ()
        if self.uses_latency:
            latency = LatencyBelief.empty(rows, self.setting.n)
        return State(self.first_belief(rows), self.first_plan(rows), zeros, zeros, keys, latency)

    def first_belief(self, rows: int) -> BeliefT:
        """Return the belief of ``rows`` rows that have seen nothing."""
        empty: Any = self.belief.empty
        belief: BeliefT = empty(rows, self.setting.n)
        return belief

    def first_plan(self, rows: int) -> PlanT:
        """Return the plan of ``rows`` rows that have seen nothing.

        It is a named tuple of arrays, or an empty tuple.
        """
        no_plan: Any = ()
        plan: PlanT = no_plan
        return plan

    def begins(self, observation: Observation) -> Mask | bool:
        """Return which rows begin a round with this step, (E,)."""
        return True

    @abstractmethod
    def act(
        self, state: State[BeliefT, PlanT], observation: Observation
    ) -> tuple[Ints, State[BeliefT, PlanT]]:
        """Choose an action for each row of the batch.

        Args:
            state: What is known, with the belief after this observation.
            observation: The observation, with a row axis.

        Returns:
            The action, (E, n), and the state, whose plan may be new.
        """

    def act_knowing(
        self,
        state: State[BeliefT, PlanT],
        observation: Observation,
        conditions: Conditions,
    ) -> tuple[Ints, State[BeliefT, PlanT]]:
        """Choose an action as ``act`` does, for policies with ``privileged``.

        Args:
            state: What is known.
            observation: The observation.
            conditions: The conditions of each row's coming round.

        Returns:
            The action, (E, n), and the state.
        """
        return self.act(state, observation)


def _availability_of(plan: object) -> Availability | None:
    """Return who is away by a plan; None if the plan does not tell that."""
    if isinstance(plan, PlanWithAvailability) and isinstance(plan.availability, Availability):
        return plan.availability
    return None


class AllocationPolicy(Policy[BeliefT, PlanT]):
    """A policy whose action follows from the state alone.

    It plays ``ata_gym/TaskAllocation-v0`` or ``ata_gym/TaskRace-v0``. The example is a policy of
    your own.

    Example:
        >>> import gymnasium, ata_gym
        >>> from ata_gym import allocate
        >>> class Optimist(AllocationPolicy):
        ...     def allocate(self, state):
        ...         untried = state.belief.untried()
        ...         scores = 0.9 * np.nan_to_num(state.belief.mean())
        ...         return allocate(scores, self.setting.budget, state.round_keys(), untried)
        >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
        >>> allocation, state = Optimist(Setting.from_env(env)).predict(env.reset(seed=0)[0])
        >>> int(allocation.sum())
        5
    """

    def act(
        self, state: State[BeliefT, PlanT], observation: Observation
    ) -> tuple[Ints, State[BeliefT, PlanT]]:
        return self.allocate(state), state

    def last_action(self, state: State[BeliefT, PlanT]) -> Ints | None:
        return self.allocate(state)

    @abstractmethod
    def allocate(self, state: State[BeliefT, PlanT]) -> Ints:
        """Return the tasks for each worker in each row, (E, n)."""


class DispatchPolicy(Policy[BeliefT, PlanT]):
    """A policy of ``ata_gym/TaskDispatch-v0``.

    At each completion its action is 0 or 1 for each worker: who should be working.
    """

    env_id = "ata_gym/TaskDispatch-v0"

    def begins(self, observation: Observation) -> Mask:
        """A round begins when all B results are missing."""
        return np.asarray(observation["missing"][:, 0] == self.setting.budget)
