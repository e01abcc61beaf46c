"""Policies of rounds for loops that do real work: each worker's tasks in the next round."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ata_gym.envs.spaces import Allocation, RaceAllocation
from ata_gym.typing import Floats, Ints, Mask, Worker
from ata_gym.utils.ranges import Tasks, Times, Wholes, WorkerOrNone
from ata_gym.utils.validation import flag, short, whole_number
from ata_policies.allocator.limits import Limits, within
from ata_policies.allocator.named_workers import NamedWorkers, Prior, checked_seconds
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.propensities import Propensities, redrawn


class AllocatedRound(NamedTuple):
    """The memory between ``allocate`` and ``observe``, and the last round's results."""

    present: Mask
    """(n,) which places have a worker that is there."""
    action: Tasks
    """(n,) the policy's decision for the round."""
    decided: Mask
    """Whether there is a decision."""
    shares: Tasks
    """(n,) tasks that were handed out; all 0 where there is nothing to observe."""
    worker: WorkerOrNone
    """(B,) whose results the last round had; -1 where fewer came."""
    duration: Times
    """(B,) the times of these results."""
    elapsed: Times
    """(n,) how long each worker's cancelled task had run."""
    has_latency: Mask
    """Whether the latencies of the last round are known."""
    latency: Times
    """(n,) what each worker spent before its first task; all 0 where they are not known."""
    warm_up: Mask
    """(n,) workers whose times in that round do not count."""
    until_known: Wholes
    """(n,) the state of each worker's warm-up, see ``WarmUp``."""


class Allocator(NamedWorkers):
    """An allocator decides before each round how many tasks each worker computes.

    It learns from the times of these tasks. It drives the policies of the envs: played over an
    env's times, it gives the same allocations as in the env.

    Times have any unit, the same for all workers. What a worker spends once in a round, before its
    first task, is its latency: tell it apart, or time whole shares (see ``observe``). Policies such
    as "ata" and "thompson" do not know who is away. When a worker leaves, they are made again with
    ``availability=True`` if they take it. If not, the tasks of workers that have left are handed
    on, one by one, to the worker that would be the first to finish one task more, as far as the
    policy knows their mean times.

    Args:
        workers: The number of workers (their names are then 0, 1, ...), or their names: texts or
            whole numbers.
        budget: The results B that a round needs.
        policy: The name of a policy (see ``ata_policies.names``), which hyperparameters may follow
            (``"ata:alpha=2.0"``); or a policy that is made already, whose number of workers, price,
            unit costs, seed and horizon are then fixed.
        start_more: Whether more tasks may be started than are needed, as in
            ``ata_gym/TaskRace-v0``.
        price: The cost of one unit of worker time in units of runtime, at least 0.
        seed: The seed of the policy's own randomness.
        horizon: The rounds to come, if their number is known.
        deadline: The time of a round from which your loop hands the tasks of silent workers on, if
            it is always the same. The later it is, the more seldom a worker is tried that owes
            results. By default it counts as two rounds.
        unit_costs: By name, what a unit of the worker's time counts for in worker time, such as its
            dollars an hour; 1 for workers that are not named. A unit of the worker's time costs
            the price times this number.
        limits: By name, the least and the most tasks that a worker has in a round, as its memory
            wants, or so that each has one; from 0 to B for workers that are not named. They
            are applied to the policy's decision; the policy learns what happened.
        prior: What is known of the workers from an earlier run with the same budget and policy: a
            ``state_dict()``, or a JSON file that holds one, such as ``ata-gym what-if`` writes.
            Workers that only the prior names have left, and workers that it does not name are not
            known yet. All begin their warm-up.
        warm_up: The rounds with results of a worker, after each of its starts, from whose times
            nothing is learned, as where code is compiled, tuned or loaded first. By default none:
            all times count, as in an env. In a race a worker whose tasks are always cancelled
            stays in its warm-up.
        hyperparameters: What else the policy takes.

    Raises:
        ValueError: For bad arguments, limits within which there is no allocation, a policy of
            another env, or one that needs to know the coming round.

    Example:
        >>> allocator = Allocator(["fast", "slow"], budget=4, policy="certainty-equivalence")
        >>> allocator.allocate()
        {'fast': 2, 'slow': 2}
        >>> allocator.observe({"fast": [1.0, 1.1], "slow": [3.0, 3.3]})
        >>> allocator.allocate()
        {'fast': 3, 'slow': 1}
    """

    _round: AllocatedRound

    def __init__(
        self,
        workers: int | Iterable[Worker],
        budget: int,
        policy: str | Policy = "default",
        *,
        start_more: bool = False,
        price: float = 0.0,
        seed: int = 0,
        horizon: int | None = None,
        deadline: float | None = None,
        unit_costs: Mapping[Worker, float] | None = None,
        limits: Limits | None = None,
        prior: Prior | None = None,
        warm_up: int = 0,
        **hyperparameters: Any,
    ) -> None:
        self._start_more = flag("start_more", start_more)
        if start_more:
            self._env_id = "ata_gym/TaskRace-v0"
        else:
            self._env_id = "ata_gym/TaskAllocation-v0"
        options = {
            "horizon": horizon,
            "deadline": deadline,
            "unit_costs": unit_costs,
            "limits": limits,
            "prior": prior,
            "warm_up": warm_up,
            **hyperparameters,
        }
        super().__init__(workers, budget, policy, price=price, seed=seed, **options)

    def allocate(self) -> dict[Worker, int]:
        """Return the tasks of each worker that is there, by name.

        A worker computes its tasks one after the other. They sum to B over all workers, or to more
        with ``start_more``. Until the round is observed the answer stays, unless workers join or
        leave.

        Raises:
            ValueError: If no worker is there, or no allocation among the workers that are there is
                within the limits.
        """
        current_round = self._round
        if not current_round.present.any():
            raise ValueError("no worker is there: let one join")
        least, most = self._least_and_most(allow_more=self._start_more)
        if not current_round.decided:
            observation: Observation = {
                "worker": current_round.worker,
                "duration": current_round.duration,
                "elapsed": current_round.elapsed,
            }
            if current_round.has_latency:
                observation["latency"] = current_round.latency
            if current_round.warm_up.any():
                observation["warm_up"] = current_round.warm_up
            current_round = current_round._replace(
                action=self._checked(self._decide(observation)),
                decided=np.array(True),
            )
        shares, changed = self._handed_out(current_round.action, least, most)
        if changed:
            self._state = self.policy.note_tasks(self._state, shares)
        self._round = current_round._replace(shares=shares)
        tasks = zip(self._names, shares.tolist(), current_round.present, strict=True)
        return {name: count for name, count, present in tasks if present}

    def propensities(self, draws: int = 999) -> Propensities:
        """Return how likely the decision of ``allocate`` was, for the log of a ``TraceRecorder``.

        The policy decides again from the same state, under other random numbers, and nothing is
        changed. A policy without randomness of its own has 0 or 1. ``what-if`` needs them for
        doubly robust estimates.

        Args:
            draws: How often it decides again, M. A probability p has a standard error of
                sqrt(p (1 - p) / (M + 1)), at most 0.016 for 999 draws.

        Raises:
            ValueError: Without a decision of ``allocate`` that is not observed yet, such as in a
                state that was loaded; and for ``draws`` that are no whole number above 0.

        Example:
            >>> allocator = Allocator(["a", "b", "c"], budget=4, policy="uta")
            >>> tasks = allocator.allocate()
            >>> propensities = allocator.propensities(draws=2999)
            >>> propensities.workers, round(propensities.allocation, 1)
            ({'a': 1.0, 'b': 1.0, 'c': 1.0}, 0.3)
        """
        draws = whole_number("draws", draws)
        shares = self._round.shares
        if self._decided_on is None or not shares.any():
            raise ValueError(
                "there is no decision to draw again: call propensities() between allocate() and"
                " observe(), in the process that called allocate()",
            )
        least, most = self._least_and_most(allow_more=self._start_more)
        actions = redrawn(self.policy, *self._decided_on, draws)
        kinds, counts = np.unique(actions, axis=0, return_counts=True)
        others = np.array([self._handed_out(kind, least, most)[0] for kind in kinds])
        # The decision itself is one of the draws, so that no probability that counts is 0.
        gets_task = ((others > 0) * counts[:, None]).sum(axis=0) + (shares > 0)
        same = counts[(others == shares).all(axis=1)].sum() + 1
        frequencies = zip(
            self._names, (gets_task / (draws + 1)).tolist(), self._round.present, strict=True
        )
        workers = {name: frequency for name, frequency, present in frequencies if present}
        return Propensities(workers, float(same / (draws + 1)))

    def observe(
        self,
        seconds: Mapping[Worker, Iterable[float]],
        cancelled: Mapping[Worker, float] | None = None,
        lost: Collection[Worker] = (),
        latency: Mapping[Worker, float] | None = None,
    ) -> None:
        """Learn from the round that ``allocate`` began.

        Fewer than B results are right only if a worker was lost, has left, or, without
        ``start_more``, had a task cancelled; others may have done its tasks. If no result came at
        all, nothing is learned, and ``allocate`` gives the round again.

        Args:
            seconds: The times of each worker's results, in the order in which it began them.
            cancelled: How long each cancelled task had run. In a race, a worker that gave fewer
                results than it had tasks and has no time here counts as away.
            lost: Workers that died or did not answer. The policy may give them tasks in the next
                round: let them ``leave`` if it must not. They begin their warm-up again, and with a
                ``warm_up`` none of their results counts, since some may be from after a restart.
            latency: What each worker spent in the round before its first task began, such as a
                transfer of the model, a queue, or data that is loaded once; no part of
                ``seconds`` and ``cancelled``. It is given for each worker that began a task, or for
                none. In a race, a worker that was cancelled before its first task began has what it
                had spent by then. If it cannot be measured apart, time the whole share of a worker,
                from the round's start, and give this time divided by its tasks for each of them.
                Without both, workers with a latency are taken to be faster than they are.

        Raises:
            ValueError: If there is no round to observe, a name or a time is wrong, workers
                cannot have so many results, or some latencies are given and others are missing.
                Nothing has changed then.
        """
        current_round = self._round
        if not current_round.shares.any():
            raise ValueError(
                "there is no round to observe: call allocate() first, and observe() once after"
                " each",
            )
        times = {
            self._place(name): _times(name, results) for name, results in _items("seconds", seconds)
        }
        ages = {
            self._place(name): checked_seconds(name, age)
            for name, age in _items("cancelled", cancelled or {})
        }
        # Workers that have left since the decision count as lost, too.
        lost_mask = ~current_round.present & (current_round.shares > 0)
        cancelled_mask = np.zeros_like(current_round.present)
        counts = np.zeros_like(current_round.shares)
        died = np.zeros_like(current_round.present)
        died[[self._place(name) for name in _collection("lost", lost)]] = True
        lost_mask |= died
        cancelled_mask[list(ages)] = True
        for place, results in times.items():
            counts[place] = len(results)
        self._check_counts(counts, current_round.shares, lost_mask, cancelled_mask)
        elapsed = np.zeros(len(counts))
        elapsed[list(ages)] = list(ages.values())
        latencies = np.zeros(len(counts))
        if latency is not None:
            begun = (counts > 0) | (elapsed > 0.0)
            worked = begun | (current_round.shares > 0)
            latencies = self._checked_latencies(latency, worked, begun)
        unfinished = elapsed + latencies
        # From here on nothing is refused, and ``self._round`` is set once, as the last step.
        next_round = current_round._replace(shares=np.zeros_like(current_round.shares))
        until_known = current_round.until_known
        next_round = next_round._replace(
            until_known=self._warm_up.after_round(until_known, counts > 0, unfinished)
        )
        next_round = self._after_start(next_round, died)
        if not counts.any():
            self._round = next_round
            return
        worker = np.full(self.budget, -1)
        duration = np.zeros(self.budget)
        results_in_order: list[float] = []
        for place in sorted(times):
            results_in_order += times[place]
        worker[: counts.sum()] = np.repeat(np.arange(len(counts)), counts)
        duration[: counts.sum()] = results_in_order
        warming = self._warm_up.active(until_known)
        if self._warm_up.rounds:
            warming = warming | died
        self._round = next_round._replace(
            decided=np.array(False),
            worker=worker,
            duration=duration,
            elapsed=elapsed,
            has_latency=np.array(latency is not None),
            latency=latencies,
            warm_up=warming & ((counts > 0) | (unfinished > 0.0)),
        )

    def _handed_out(self, action: Ints, least: Ints, most: Ints) -> tuple[Ints, bool]:
        """Return the tasks of a decision among those who are there, and whether they are others."""
        shares = np.where(self._round.present, action, 0)
        if shares.sum() >= self.budget and (shares >= least).all() and (shares <= most).all():
            return shares, False
        mean = self.policy.estimated(self._state)[0][0]
        return within(shares, least, most, mean, self.budget, allow_more=self._start_more), True

    def _go_on_after(self, action: Ints, observation: Observation, state: State) -> None:
        """Go on after a round of an env: the decision, what came of it, and the policy's state."""
        worker, duration, elapsed = (
            observation[name].copy() for name in ("worker", "duration", "elapsed")
        )
        self._round = self._round._replace(
            action=action.copy(), worker=worker, duration=duration, elapsed=elapsed
        )
        if "latency" in observation:
            self._round = self._round._replace(
                has_latency=np.array(True), latency=observation["latency"].copy()
            )
        self._state = state

    def _first_round(self, n: int) -> AllocatedRound:
        no_tasks = np.zeros(n, np.int64)
        no_worker = np.full(self.budget, -1)
        return AllocatedRound(
            no_tasks == 0,
            no_tasks,
            np.array(False),
            no_tasks,
            no_worker,
            np.zeros(self.budget),
            np.zeros(n),
            np.array(False),
            np.zeros(n),
            no_tasks > 0,
            np.full(n, self._warm_up.at_start),
        )

    def _checked(self, action: Ints) -> Ints:
        """Return the policy's decision, or raise a ValueError if it is illegal."""
        space: Allocation | RaceAllocation
        if self._start_more:
            space = RaceAllocation(len(action), self.budget)
        else:
            space = Allocation(len(action), self.budget)
        checked: Ints = space.check(action)
        return checked

    def _check_round(self, round: AllocatedRound) -> None:
        super()._check_round(round)
        if round.decided:
            self._checked(round.action)

    def _checked_latencies(
        self, latency: Mapping[Worker, float], worked: Mask, begun: Mask
    ) -> Floats:
        """Return the latencies, (n,).

        Args:
            latency: They, by name.
            worked: (n,) the workers with tasks, which can have a latency.
            begun: (n,) the workers that began a task, which must have one.

        Raises:
            ValueError: If one is no time, missing, or of a worker without tasks.
        """
        latencies = np.full(len(worked), np.nan)
        for name, seconds in _items("latency", latency):
            latencies[self._place(name)] = checked_seconds(name, seconds, "the latency")
        idle = ~worked & (latencies > 0.0)
        if idle.any():
            raise ValueError(
                f"worker {self._names[int(np.argmax(idle))]!r} has a latency, and was given no"
                " tasks: leave it out of latency",
            )
        missing = begun & np.isnan(latencies)
        if missing.any():
            raise ValueError(
                f"worker {self._names[int(np.argmax(missing))]!r} has times, and no latency: give"
                " the latency of each worker that began a task, or of none, and time whole shares",
            )
        return np.where(np.isnan(latencies), 0.0, latencies)

    def _check_counts(self, counts: Ints, shares: Ints, lost: Mask, cancelled: Mask) -> None:
        """Raise a ValueError unless each worker can have so many results, (n,)."""
        needed = self.budget
        total = int(counts.sum())
        owing = counts < shares
        if self._start_more:
            explained = lost
        else:
            explained = lost | cancelled
        surplus = counts > shares
        if total > needed or (surplus.any() and not (owing & explained).any()):
            if surplus.any():
                faulty = surplus
            else:
                faulty = np.cumsum(counts) > needed
            cure = "whose tasks others did"
        else:
            unanswered = not self._start_more or (total < needed and not lost.any())
            faulty = owing & ~explained & unanswered
            cure = "who did not answer"
        if faulty.any():
            place = int(np.argmax(faulty))
            if total <= needed:
                advice = f": say in lost {cure}"
            else:
                advice = ""
            raise ValueError(
                f"worker {self._names[place]!r} has {counts[place]} results and was given"
                f" {shares[place]} tasks; the round needs {needed} results, and has"
                f" {total}{advice}",
            )
        idle = cancelled & ~owing
        if idle.any() and not lost.any():
            place = int(np.argmax(idle))
            raise ValueError(
                f"worker {self._names[place]!r} has results of all its {shares[place]} tasks: none"
                " can be cancelled",
            )


def _items(name: str, by_worker: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(by_worker, Mapping):
        raise ValueError(f"{name} must be a dict by worker, not {short(by_worker)}")  # noqa: TRY004
    return by_worker.items()


def _collection(name: str, workers: Any) -> Collection[Any]:
    if isinstance(workers, str) or not isinstance(workers, Collection):
        raise ValueError(f"{name} must be a list of workers, not {short(workers)}")  # noqa: TRY004
    return workers


def _times(worker: Worker, seconds: Any) -> list[float]:
    try:
        times = list(seconds)
    except TypeError:
        raise ValueError(
            f"the times of worker {worker!r} must be a list of numbers, not {short(seconds)}",
        ) from None
    return [checked_seconds(worker, time) for time in times]
