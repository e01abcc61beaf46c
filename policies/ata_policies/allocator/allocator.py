"""Policies of rounds for loops that do real work: how many tasks each worker computes in the next round."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ata_gym.envs.spaces import Allocation, RaceAllocation
from ata_gym.typing import Ints, Mask, Worker
from ata_gym.utils.ranges import Tasks, Times, Whose
from ata_gym.utils.validation import flag, short
from ata_policies.allocator.limits import Limits, bounds, within
from ata_policies.allocator.named_workers import NamedWorkers, Prior, checked_seconds
from ata_policies.policy import Policy


class AllocatedRound(NamedTuple):
    """The memory between ``allocate`` and ``observe``, and of the last round for the next decision."""

    there: Mask  # (n,) which places have a worker that is there
    action: Tasks  # (n,) the policy's decision for the round
    decided: Mask  # whether there is a decision
    shares: Tasks  # (n,) tasks that were handed out; all 0 where there is nothing to observe
    worker: Whose  # (B,) whose results the last round had; -1 where fewer came
    duration: Times  # (B,) the times of these results
    elapsed: Times  # (n,) how long each worker's cancelled task had run


class Allocator(NamedWorkers):
    """An allocator says before each round how many tasks each worker computes, and learns from their times.

    It drives the policies of the envs: played over an env's times, it gives the same allocations as in the env.

    - ``workers``: their number (their names are then 0, 1, ...), or their names: texts or whole numbers.
    - ``budget``: the results B that a round needs.
    - ``policy``: the name of a policy (see ``ata_policies.names``), which hyperparameters may follow
      (``"ata:alpha=2.0"``); or a policy that is made already, whose number of workers, price, unit costs, seed and
      horizon are then fixed.
    - ``start_more``: whether more tasks may be started than are needed, as in ``ata_gym/TaskRace-v0``.
    - ``price``, ``seed``, ``horizon``, ``hyperparameters``: the cost of one unit of worker time in units of runtime,
      the seed of the policy's own randomness, the rounds to come, if that is known, and what else the policy takes.
    - ``limits``: by name, the least and the most tasks that a worker has in a round, as its memory wants, or so that
      everybody has one; from 0 to B for those that are not named. They are applied to the policy's decision, which
      learns what happened.
    - ``prior``: what is known of the workers from an earlier run with the same budget and policy: a ``state_dict()``,
      or a JSON file that holds one, such as ``ata-gym what-if`` writes. Other workers of it have left, and new ones
      are not known yet.
    - ``unit_costs``: by name, what a unit of the worker's time counts for in worker time, such as its dollars an hour;
      1 for those that are not named. A unit of the worker's time costs the price times that.

    ValueError is raised for bad arguments, limits within which there is no allocation, a policy of another env, or one
    that needs to know the coming round.

    Times have any unit, the same for all workers. Policies such as "ata" and "thompson" do not know who is away. When a
    worker leaves, they are made again with ``availability=True`` if they take that. If not, the tasks of workers that
    have left are handed on, one by one, to the worker that would be the first to finish one task more, as far as the
    policy knows their mean times.

    >>> allocator = Allocator(["fast", "slow"], budget=4, policy="certainty-equivalence")
    >>> allocator.allocate()
    {'fast': 2, 'slow': 2}
    >>> allocator.observe({"fast": [1.0, 1.1], "slow": [3.0, 3.3]})
    >>> allocator.allocate()
    {'fast': 3, 'slow': 1}
    """

    _round: AllocatedRound

    def __init__(
        self, workers: int | Iterable[Worker], budget: int, policy: str | Policy = "default", *,
        start_more: bool = False, price: float = 0.0, seed: int = 0, horizon: int | None = None,
        unit_costs: Mapping[Worker, float] | None = None, limits: Limits | None = None, prior: Prior | None = None,
        **hyperparameters: Any,
    ) -> None:  # fmt: skip
        self._start_more = flag("start_more", start_more)
        self._env_id = "ata_gym/TaskRace-v0" if start_more else "ata_gym/TaskAllocation-v0"
        more = {"horizon": horizon, "unit_costs": unit_costs, "limits": limits, "prior": prior, **hyperparameters}
        super().__init__(workers, budget, policy, price=price, seed=seed, **more)

    def allocate(self) -> dict[Worker, int]:
        """The tasks of each worker that is there, one after the other; they sum to B, or more with ``start_more``.

        Until the round is observed the answer stays, unless workers join or leave. ValueError if none is there, or no
        allocation among those that are is within the limits.
        """
        now = self._round
        if not now.there.any():
            raise ValueError("no worker is there: let one join")
        least, most = bounds(self._limits, self._names, now.there, self.budget, more=self._start_more)
        if not now.decided:
            seen = {"worker": now.worker, "duration": now.duration, "elapsed": now.elapsed}
            now = now._replace(action=self._checked(self._decide(seen)), decided=np.array(True))
        shares = np.where(now.there, now.action, 0)
        if shares.sum() < self.budget or (shares < least).any() or (shares > most).any():
            mean = self.policy.estimated(self._state)[0][0]
            shares = within(shares, least, most, mean, self.budget, more=self._start_more)
        self._round = now._replace(shares=shares)
        tasks = zip(self._names, shares.tolist(), now.there, strict=True)
        return {name: count for name, count, there in tasks if there}

    def observe(
        self, seconds: Mapping[Worker, Iterable[float]], cancelled: Mapping[Worker, float] | None = None,
        lost: Collection[Worker] = (),
    ) -> None:  # fmt: skip
        """Learn from the round that ``allocate`` began.

        - ``seconds``: the times of each worker's results, in the order in which it began them.
        - ``cancelled``: how long each cancelled task had run. In a race, a worker that gave fewer results than it had
          tasks and has no time here counts as away.
        - ``lost``: workers that died or did not answer. The policy may give them tasks in the next round: let them
          ``leave`` if it must not.

        Fewer than B results are right only if a worker was lost, has left, or, without ``start_more``, had a task
        cancelled; others may have done its tasks. If no result came at all, nothing is learned, and ``allocate`` gives
        the round again. ValueError for what is wrong; nothing has changed then.
        """
        now = self._round
        if not now.shares.any():
            raise ValueError("there is no round to observe: call allocate() first, and observe() once after each")
        times = {self._place(name): _times(name, own) for name, own in _items("seconds", seconds)}
        ran = {self._place(name): checked_seconds(name, own) for name, own in _items("cancelled", cancelled or {})}
        gone, stopped, counts = ~now.there & (now.shares > 0), np.zeros_like(now.there), np.zeros_like(now.shares)
        gone[[self._place(name) for name in _collection("lost", lost)]] = True
        stopped[list(ran)] = True
        for place, own in times.items():
            counts[place] = len(own)
        self._check_counts(counts, now.shares, gone, stopped)
        if not counts.any():
            self._round = now._replace(shares=np.zeros_like(now.shares))
            return
        worker, duration, elapsed = np.full(self.budget, -1), np.zeros(self.budget), np.zeros(len(counts))
        worker[: counts.sum()] = np.repeat(np.arange(len(counts)), counts)
        duration[: counts.sum()] = [time for place in sorted(times) for time in times[place]]
        elapsed[list(ran)] = list(ran.values())
        over = now._replace(decided=np.array(False), shares=np.zeros_like(now.shares))
        self._round = over._replace(worker=worker, duration=duration, elapsed=elapsed)

    def _first_round(self, n: int) -> AllocatedRound:
        none, results = np.zeros(n, np.int64), np.full(self.budget, -1)
        return AllocatedRound(none == 0, none, np.array(False), none, results, np.zeros(self.budget), np.zeros(n))

    def _checked(self, action: Ints) -> Ints:  # the policy's decision; ValueError if it is illegal
        space = (RaceAllocation if self._start_more else Allocation)(len(action), self.budget)
        checked: Ints = space.check(action)
        return checked

    def _check_round(self, round: AllocatedRound) -> None:
        super()._check_round(round)
        if round.decided:
            self._checked(round.action)

    def _check_counts(self, counts: Ints, shares: Ints, lost: Mask, cancelled: Mask) -> None:
        """ValueError unless each worker can have so many results, (n,)."""
        needed, total, owing = self.budget, int(counts.sum()), counts < shares
        explained = lost if self._start_more else lost | cancelled
        more = counts > shares
        if total > needed or (more.any() and not (owing & explained).any()):
            wrong, cure = more if more.any() else np.cumsum(counts) > needed, "whose tasks others did"
        else:
            unanswered = not self._start_more or (total < needed and not lost.any())
            wrong, cure = owing & ~explained & unanswered, "who did not answer"
        if wrong.any():
            place = int(np.argmax(wrong))
            raise ValueError(
                f"worker {self._names[place]!r} has {counts[place]} results and was given {shares[place]} tasks; the "
                f"round needs {needed} results, and has {total}{f': say in lost {cure}' if total <= needed else ''}"
            )
        idle = cancelled & ~owing
        if idle.any() and not lost.any():
            place = int(np.argmax(idle))
            raise ValueError(
                f"worker {self._names[place]!r} has results of all its {shares[place]} tasks: none can be cancelled"
            )


def _items(name: str, given: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must be a dict by worker, not {short(given)}")  # noqa: TRY004
    return given.items()


def _collection(name: str, given: Any) -> Collection[Any]:
    if isinstance(given, str) or not isinstance(given, Collection):
        raise ValueError(f"{name} must be a list of workers, not {short(given)}")  # noqa: TRY004
    return given


def _times(worker: Worker, given: Any) -> list[float]:
    try:
        times = list(given)
    except TypeError:
        raise ValueError(f"the times of worker {worker!r} must be a list of numbers, not {short(given)}") from None
    return [checked_seconds(worker, time) for time in times]
