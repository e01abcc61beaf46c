"""A policy for workers with names, who join, leave and come back."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ata_gym.pools.validation import checked_costs
from ata_gym.typing import Ints, Mask, Worker
from ata_gym.utils.files.json_files import parse_list, read_object
from ata_gym.utils.ranges import Size, cast_like, check_ranges
from ata_gym.utils.validation import as_float, non_negative, short, whole_number
from ata_policies.allocator.limits import Limits, bounds, checked_limits
from ata_policies.allocator.state import check_seal, plain, restored, sealed, text_of, widened
from ata_policies.allocator.warm_up import WarmUp
from ata_policies.explanation import Explanation
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.registry import full_name, load, make_for
from ata_policies.setting import Setting

Prior = Mapping[str, Any] | str | PathLike[str]
"""A state of an earlier run, or a JSON file that holds it, maybe under the key "allocator"."""

# forms of single values in a state
_NUMBER = np.zeros((), np.int64)
_FLAG = np.zeros((), np.bool_)
_CALLS = {
    "ata_gym/TaskAllocation-v0": "Allocator(...)",
    "ata_gym/TaskRace-v0": "Allocator(..., start_more=True)",
    "ata_gym/TaskDispatch-v0": "Dispatcher(...)",
}


class NamedWorkers(ABC):
    """The base of ``Allocator`` and ``Dispatcher``: a policy, its state, and workers' places.

    A worker that leaves keeps its place, and what is known of it, until it comes back. For a new
    worker the policy is made for one worker more.

    What is known of a worker's times begins after its warm-up (``WarmUp``). Once it has begun that,
    it has a task in each round until a result counts.
    """

    policy: Policy
    """The policy; its workers are numbered by ``places``."""
    _env_id: str
    """The env whose policies are driven."""
    _state: State
    """The policy's state, a batch of one row."""
    _decided_on: tuple[Observation, State] | None = None
    """The observation and the state on which the policy decided last; None after a load."""
    _round: Any
    """The memory of the round: a named tuple of arrays.

    Its fields ``present``, (n,), and ``until_known``, (n,), say which places have a worker that is
    there, and in which state of its warm-up each is.
    """

    def __init__(
        self,
        workers: int | Iterable[Worker],
        budget: int,
        policy: str | Policy = "default",
        *,
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
        self._warm_up = WarmUp(warm_up)
        self._names = checked_names(workers)
        self._unit_costs = unit_costs
        n = len(self._names)
        if horizon is not None:
            horizon = whole_number("horizon", horizon)
        if deadline is not None:
            deadline = non_negative("deadline", deadline)
        self._setting = Setting(
            n,
            whole_number("budget", budget),
            non_negative("price", price),
            horizon=horizon,
            deadline=deadline,
        )
        self._policy_argument = policy
        self._seed = seed
        self._hyperparameters = hyperparameters
        self.policy = self._make_policy(self._names)
        self._state = self.policy.first_state(1)
        self._round = self._first_round(n)
        self._limits = checked_limits(limits, self._names, self.budget)
        # it raises an error where no allocation is within the limits
        bounds(
            self._limits,
            self._names,
            self._round.present,
            self.budget,
            allow_more=self._env_id != "ata_gym/TaskAllocation-v0",
        )
        if prior is not None:
            self._begin_from(prior)

    def _begin_from(self, prior: Prior) -> None:
        """Begin with what is known of the workers from an earlier run."""
        names = self._names
        state = prior
        if isinstance(prior, str | PathLike):
            state = read_object(Path(prior))
        saved: Any
        if isinstance(state, Mapping) and "allocator" in state:
            saved = state["allocator"]
        else:
            saved = state
        try:
            self.load_state_dict(saved)
        except ValueError as error:
            if state is prior:
                message = str(error)
            else:
                message = f"the prior {prior}: {error}"
            raise ValueError(message) from error
        if getattr(self._round, "missing", self.budget) != self.budget:
            raise ValueError("the prior was saved inside a round: save it between two")
        self.keep_only(names)
        for name in names:
            self.restarted(name)

    def keep_only(self, names: Collection[Worker]) -> None:
        """Let exactly these workers be there: others leave, and absent ones join."""
        present = self.workers
        for worker in present:
            if worker not in names:
                self.leave(worker)
        for name in names:
            if name not in present:
                self.join(name)

    @cached_property
    def _index(self) -> Mapping[object, int]:
        """The place of each name."""
        return {name: place for place, name in enumerate(self._names)}

    def _rename(self, names: tuple[Worker, ...]) -> None:
        self._names = names
        self.__dict__.pop("_index", None)

    @abstractmethod
    def _first_round(self, n: int) -> Any:
        """Return the memory before the first round."""

    def _check_round(self, round: Any) -> None:
        """Raise a ValueError unless this can be the memory of a round."""
        check_ranges(round, Size(len(round.present), self.budget), "round")

    @property
    def budget(self) -> int:
        """Results B that a round needs."""
        return self._setting.budget

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The names of the workers that are there."""
        return self._named(self._round.present)

    @property
    def places(self) -> tuple[Worker, ...]:
        """The names by place, also of workers that have left."""
        return self._names

    @property
    def warming_up(self) -> dict[Worker, int]:
        """In how many more rounds the results of each worker that is there do not count, by name.

        Workers whose results count are left out.
        """
        active = self._round.present & self._warm_up.active(self._round.until_known)
        return {self._names[i]: int(self._round.until_known[i]) - 1 for i in np.flatnonzero(active)}

    def _least_and_most(self, *, allow_more: bool) -> tuple[Ints, Ints]:
        """Return the least and the most tasks of each worker in the round, (n,) each.

        Where there is room, a worker that has begun its warm-up has at least one task.

        Args:
            allow_more: Whether an allocation may have more than B tasks.

        Raises:
            ValueError: If no allocation is within the limits.
        """
        present = self._round.present
        least, most = bounds(self._limits, self._names, present, self.budget, allow_more=allow_more)
        begun = self._warm_up.begun(self._round.until_known) & (least == 0) & (most > 0)
        if not (self.policy.learns and begun.any()):
            return least, most
        if not allow_more:
            begun &= np.cumsum(begun) <= self.budget - least.sum()
        return np.where(begun, 1, least), most

    def _after_start(self, round: Any, started: Mask) -> Any:
        """Return the memory of a round after workers, (n,), have started: their warm-up is anew."""
        until_known = np.where(started, self._warm_up.at_start, round.until_known)
        return round._replace(until_known=until_known)

    def restarted(self, worker: Worker) -> None:
        """Learn that a worker was started again and did not leave: its warm-up begins anew.

        Without a ``warm_up`` this changes nothing. After ``leave``, ``join`` does the same.

        Raises:
            ValueError: If there is no such worker.
        """
        place = self._place(worker)
        self._round = self._after_start(self._round, np.arange(len(self._names)) == place)

    def _named(self, mask: Mask) -> tuple[Worker, ...]:
        return tuple(name for name, included in zip(self._names, mask, strict=True) if included)

    def join(self, worker: Worker) -> None:
        """Let a worker come back, or a new one come.

        Raises:
            ValueError: If it is there already, or the policy cannot be made for one worker more.
        """
        (name,) = checked_names([worker])
        policy = self.policy
        state = self._state
        round = self._round
        place = self._index.get(name, len(self._names))
        if place == len(self._names):
            policy = self._make_policy((*self._names, name))
            state = widened(state, policy.first_state(1))
            round = widened(round, self._first_round(place + 1))
        elif round.present[place]:
            raise ValueError(f"worker {name!r} is there already")
        joined = np.arange(len(round.present)) == place
        # Nothing was changed above, where the policy may be refused.
        self.policy = policy
        self._round = self._after_start(round._replace(present=round.present | joined), joined)
        self._state = policy.note_absences(state, ~self._round.present, joined)
        self._rename((*self._names[:place], name, *self._names[place + 1 :]))

    def leave(self, worker: Worker) -> None:
        """Let a worker leave: it gets nothing until it joins again.

        What is known of it is kept. Once a worker has left, policies that can watch who owes
        results (``availability``) do so.

        Raises:
            ValueError: If the worker is not there.
        """
        place = self._place(worker)
        if not self._round.present[place]:
            raise ValueError(f"worker {worker!r} has left already")
        if self.policy.availability is False and isinstance(self._policy_argument, str):
            self._hyperparameters = {"availability": True} | self._hyperparameters
            self.policy = self._make_policy(self._names)
            self._state = widened(self._state, self.policy.first_state(1))
        present = self._round.present & (np.arange(len(self._names)) != place)
        self._round = self._round._replace(present=present)
        self._state = self.policy.note_absences(self._state, ~present, np.zeros_like(present))

    def explain(self) -> Explanation:
        """Explain the policy's last decision; the workers are numbered by ``places``."""
        explained = self.policy.explain(self._state)
        return replace(explained, away=explained.away | ~self._round.present)

    def expected_times(self) -> dict[Worker, float]:
        """Return the estimated mean task time of each worker that is there, by name.

        The estimates are from the last decision. Workers of unknown mean are left out.
        """
        rows = zip(
            self._names,
            self._round.present,
            self.policy.estimated(self._state)[0][0].tolist(),
            strict=True,
        )
        return {name: mean for name, present, mean in rows if present and 0.0 < mean < np.inf}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole memory as numbers in nested lists, and text.

        ``np.savez``, ``torch.save`` and JSON can hold it, and no code runs when it is read:
        ``torch.load`` takes it with ``weights_only=True``.
        """
        return sealed(self._plain(self._names, self.policy, self._round, self._state))

    def _plain(
        self,
        names: tuple[Worker, ...],
        policy: Policy,
        round: Any,
        state: State,
    ) -> dict[str, Any]:
        """Return a state as plain values, without a checksum."""
        return {
            "workers": json.dumps(names),
            "budget": self.budget,
            "policy": _kind(policy),
            "watches": bool(policy.availability),
            **plain(round, "round"),
            **plain(state, "state"),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, bit for bit, from the ``state_dict`` of one made with the same arguments.

        Workers may differ. Each goes on with its warm-up, if it is not longer than here: if workers
        were started again since, tell ``restarted``. The values may be arrays or tensors by now.

        Raises:
            ValueError: If the values do not fit, if no state can have them, or if their checksum
                belongs to other values. Nothing changes then.
        """
        names, watches = self._saved(state)
        hyperparameters = self._hyperparameters
        policy = self.policy
        first_round = self._first_round(len(names))
        remade = watches != bool(policy.availability) and isinstance(self._policy_argument, str)
        if remade:
            self._hyperparameters = hyperparameters | {"availability": watches}
        try:
            if remade or len(names) != len(self._names):
                policy = self._make_policy(names)
            new_state = restored(policy.first_state(1), state, "state")
            new_round = restored(first_round, state, "round")
            check_seal(state, self._plain(names, policy, new_round, new_state))
            policy.check_state(new_state, 1)
            self._check_round(new_round)
        except ValueError:
            self._hyperparameters = hyperparameters
            raise
        self._rename(names)
        self.policy = policy
        self._state = new_state
        self._decided_on = None
        until_known = np.minimum(new_round.until_known, self._warm_up.at_start)
        self._round = new_round._replace(until_known=until_known)

    def _saved(self, state: Mapping[str, Any]) -> tuple[tuple[Worker, ...], bool]:
        """Return the names in a state, and whether its policy watches who owes results.

        Raises:
            ValueError: If it is no state of this class, budget and policy.
        """
        unfit = (
            f"this is no state of {type(self).__name__} with B = {self.budget} and"
            f" {_kind(self.policy)}"
        )
        if not isinstance(state, Mapping):
            raise ValueError(f"{unfit}, but {short(state)}")  # noqa: TRY004
        try:
            saved = (
                int(cast_like("budget", state["budget"], _NUMBER)),
                text_of("policy", state["policy"]),
            )
            watches = bool(cast_like("watches", state["watches"], _FLAG))
            names = _names_in(state["workers"])
        except KeyError as error:
            raise ValueError(f"{unfit}: it has no {error}") from None
        except ValueError as error:
            raise ValueError(f"{unfit}: {error}") from None
        if saved != (self.budget, _kind(self.policy)):
            raise ValueError(f"{unfit}: its budget is {saved[0]}, and its policy {saved[1]}")
        return names, watches

    def _make_policy(self, names: tuple[Worker, ...]) -> Policy:
        """Return the policy for workers with these names."""
        policy = self._policy_argument
        budget = self.budget
        n = len(names)
        if isinstance(policy, Policy):
            kind: Any = type(policy)
            if (policy.setting.n, policy.setting.budget) != (n, budget) or self._hyperparameters:
                raise ValueError(
                    f"this {kind.__name__} is made for {policy.setting.n} workers and B ="
                    f" {policy.setting.budget}, not for {n} and {budget}: give its name and"
                    " hyperparameters, so that it can be made for other numbers",
                )
        else:
            kind = load(full_name(policy, self._env_id))
        if kind.env_id != self._env_id:
            call = _CALLS.get(kind.env_id, kind.env_id)
            raise ValueError(
                f"{kind.__name__} plays {kind.env_id}: use {call}, or a policy of {self._env_id}",
            )
        if kind.privileged:
            raise ValueError(
                f"{kind.__name__} needs to know each round beforehand, which only an env does",
            )
        if isinstance(policy, Policy):
            return policy
        if self._unit_costs is None:
            costs = None
        else:
            unit_costs = [self._unit_costs.get(name, 1.0) for name in names]
            costs = tuple(checked_costs(unit_costs, n).tolist())
        return make_for(
            policy,
            self._setting._replace(n=n, unit_costs=costs),
            self._env_id,
            self._seed,
            **self._hyperparameters,
        )

    def _decide(self, observation: Observation) -> Ints:
        """Return the policy's decision, (n,), after it has noted who is there."""
        present = self._round.present
        if not present.all():
            self._state = self.policy.note_absences(self._state, ~present, np.zeros_like(present))
        self._decided_on = observation, self._state
        action, self._state = self.policy.predict(observation, self._state)
        return action

    def _place(self, worker: object) -> int:
        """Return the place of a worker that is or was there.

        Raises:
            ValueError: If there is no worker of that name.
        """
        is_name = isinstance(worker, str | int | np.integer) and not isinstance(worker, bool)
        if is_name and worker in self._index:
            return self._index[worker]
        raise ValueError(
            f"there is no worker {short(worker)}; there are {short(list(self.workers))}",
        )


def _names_in(workers: Any) -> tuple[Worker, ...]:
    """Return the names from the text of a state, a JSON list."""
    try:
        return checked_names(parse_list(text_of("it", workers)))
    except ValueError as error:
        raise ValueError(f"workers are no list of names: {error}") from None


def checked_seconds(worker: object, seconds: object, name: str = "a time") -> float:
    """Return the time as a float.

    Args:
        worker: Whose time it is.
        seconds: The time.
        name: What it is called in the error.

    Raises:
        ValueError: If it is no finite number of at least 0; the message names the worker.
    """
    number = as_float(seconds)
    if 0.0 <= number < np.inf:
        return number
    raise ValueError(
        f"{name} of worker {worker!r} must be a finite number of at least 0, not {short(seconds)}",
    )


def _kind(policy: Policy) -> str:
    """Return the policy's class, and its parts where it is made of parts."""
    kind = type(policy).__name__
    parts = policy.about()
    if parts == policy.summary():
        return kind
    return f"{kind} ({parts})"


def checked_names(workers: int | Iterable[Worker]) -> tuple[Worker, ...]:
    """Return the names, or the numbers from 0 on where the number of workers is given.

    Raises:
        ValueError: If a name is no text or whole number, or two names are the same.
    """
    if isinstance(workers, str) or not isinstance(workers, Iterable):
        return tuple(range(whole_number("workers", workers)))
    # the entries of an array or of a table are numpy's texts and numbers
    names = tuple(one.item() if isinstance(one, np.str_ | np.integer) else one for one in workers)
    if not names or not all(type(name) in (str, int) for name in names):
        raise ValueError(
            "workers must be a number, or names that are texts or whole numbers, not"
            f" {short(names)}",
        )
    if len(set(names)) < len(names):
        raise ValueError(
            f"each worker must have a name of its own; of {short(names)}, two are the same",
        )
    return names
