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
from ata_gym.utils.json_files import parse_list, read_object
from ata_gym.utils.ranges import Size, check_ranges, fitted
from ata_gym.utils.validation import as_float, non_negative, short, whole_number
from ata_policies.allocator.limits import Limits, bounds, checked_limits
from ata_policies.allocator.state import check_seal, plain, restored, sealed, text_of, widened
from ata_policies.explanation import Explanation
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.registry import full_name, load, make_for
from ata_policies.setting import Setting

Prior = Mapping[str, Any] | str | PathLike[str]
"""A state of an earlier run, or a JSON file that holds it, maybe under the key "allocator"."""

_NUMBER, _FLAG = np.zeros((), np.int64), np.zeros((), np.bool_)  # forms of single values in a state
_MADE_BY = {
    "ata_gym/TaskAllocation-v0": "Allocator(...)",
    "ata_gym/TaskRace-v0": "Allocator(..., start_more=True)",
    "ata_gym/TaskDispatch-v0": "Dispatcher(...)",
}


class NamedWorkers(ABC):
    """What ``Allocator`` and ``Dispatcher`` share: a policy and its state, and the place that each worker has in it.

    A worker that leaves keeps its place, and what is known of it, until it comes back. For a new worker the policy is
    made for one worker more.
    """

    policy: Policy  # the policy; its workers are numbered by ``places``
    _env_id: str  # the env whose policies are driven
    _state: State
    _round: Any  # the memory of the round: a named tuple of arrays, with ``there``, (n,), which says who is there

    def __init__(
        self, workers: int | Iterable[Worker], budget: int, policy: str | Policy = "default", *, price: float = 0.0,
        seed: int = 0, horizon: int | None = None, unit_costs: Mapping[Worker, float] | None = None,
        limits: Limits | None = None, prior: Prior | None = None, **hyperparameters: Any,
    ) -> None:  # fmt: skip
        self._names, self._unit_costs = checked_names(workers), unit_costs
        n, horizon = len(self._names), None if horizon is None else whole_number("horizon", horizon)
        self._setting = Setting(n, whole_number("budget", budget), non_negative("price", price), horizon=horizon)
        self._made_from, self._seed, self._hyperparameters = policy, seed, hyperparameters
        self.policy = self._made(self._names)
        self._state = self.policy.first_state(1)
        self._round = self._first_round(n)
        self._limits = checked_limits(limits, self._names, self.budget)
        bounds(
            self._limits, self._names, self._round.there, self.budget, more=self._env_id != "ata_gym/TaskAllocation-v0"
        )
        if prior is not None:
            self._begin_from(prior)

    def _begin_from(self, prior: Prior) -> None:  # begin with what is known of the workers from an earlier run
        names, state = self._names, prior
        if isinstance(prior, str | PathLike):
            state = read_object(Path(prior))
        known: Any = state["allocator"] if isinstance(state, Mapping) and "allocator" in state else state
        try:
            self.load_state_dict(known)
        except ValueError as error:
            raise ValueError(str(error) if state is prior else f"the prior {prior}: {error}") from error
        if getattr(self._round, "missing", self.budget) != self.budget:
            raise ValueError("the prior was saved inside a round: save it between two")
        self.keep_only(names)

    def keep_only(self, names: Collection[Worker]) -> None:
        """Let exactly these workers be there: others leave, and those that are not there join."""
        present = self.workers
        for worker in present:
            if worker not in names:
                self.leave(worker)
        for name in names:
            if name not in present:
                self.join(name)

    @cached_property
    def _index(self) -> Mapping[object, int]:  # the place of each name
        return {name: place for place, name in enumerate(self._names)}

    def _rename(self, names: tuple[Worker, ...]) -> None:
        self._names = names
        self.__dict__.pop("_index", None)

    @abstractmethod
    def _first_round(self, n: int) -> Any:
        """The memory before the first round."""

    def _check_round(self, round: Any) -> None:  # ValueError unless this can be the memory of a round
        check_ranges(round, Size(len(round.there), self.budget), "round")

    @property
    def budget(self) -> int:
        """Results B that a round needs."""
        return self._setting.budget

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The names of the workers that are there."""
        return self._named(self._round.there)

    @property
    def places(self) -> tuple[Worker, ...]:
        """The names by place, also of workers that have left."""
        return self._names

    def _named(self, which: Mask) -> tuple[Worker, ...]:
        return tuple(name for name, one in zip(self._names, which, strict=True) if one)

    def join(self, worker: Worker) -> None:
        """Let a worker come back, or a new one come.

        ValueError if it is there already, or the policy cannot be made for one worker more.
        """
        (name,) = checked_names([worker])
        policy, state, round = self.policy, self._state, self._round
        place = self._index.get(name, len(self._names))
        if place == len(self._names):
            policy = self._made((*self._names, name))
            state, round = widened(state, policy.first_state(1)), widened(round, self._first_round(place + 1))
        elif round.there[place]:
            raise ValueError(f"worker {name!r} is there already")
        joined = np.arange(len(round.there)) == place
        self.policy, self._round = policy, round._replace(there=round.there | joined)
        self._state = policy.note_absences(state, ~self._round.there, joined)
        self._rename((*self._names[:place], name, *self._names[place + 1 :]))

    def leave(self, worker: Worker) -> None:
        """Let a worker leave: it gets nothing until it joins again, and what is known of it is kept.

        Once a worker has left, policies that can watch who owes results (``availability``) do so. ValueError if the
        worker is not there.
        """
        place = self._place(worker)
        if not self._round.there[place]:
            raise ValueError(f"worker {worker!r} has left already")
        if self.policy.availability is False and isinstance(self._made_from, str):
            self._hyperparameters = {"availability": True} | self._hyperparameters
            self.policy = self._made(self._names)
            self._state = widened(self._state, self.policy.first_state(1))
        there = self._round.there & (np.arange(len(self._names)) != place)
        self._round = self._round._replace(there=there)
        self._state = self.policy.note_absences(self._state, ~there, np.zeros_like(there))

    def explain(self) -> Explanation:
        """Explain the policy's last decision; the workers are numbered by ``places``."""
        explained = self.policy.explain(self._state)
        return replace(explained, away=explained.away | ~self._round.there)

    def expected_times(self) -> dict[Worker, float]:
        """The mean task time of each worker that is there, as believed at the last decision, where it was known."""
        believed = zip(self._names, self._round.there, self.policy.estimated(self._state)[0][0].tolist(), strict=True)
        return {name: mean for name, there, mean in believed if there and 0.0 < mean < np.inf}

    def state_dict(self) -> dict[str, Any]:
        """The whole memory, as numbers in nested lists, and text.

        ``np.savez``, ``torch.save`` and JSON can hold it, and no code runs when it is read: ``torch.load`` takes it
        with ``weights_only=True``.
        """
        return sealed(self._plain(self._names, self.policy, self._round, self._state))

    def _plain(self, names: tuple[Worker, ...], policy: Policy, round: Any, state: State) -> dict[str, Any]:
        return {
            "workers": json.dumps(names), "budget": self.budget, "policy": _kind(policy),
            "watches": bool(policy.availability), **plain(round, "round"), **plain(state, "state"),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, bit for bit, from the ``state_dict`` of one that was made with the same arguments; workers may differ.

        The values may be arrays or tensors by now. ValueError if they do not fit, if no state can have them, or if
        their checksum is that of others; nothing changes then.
        """
        names, watches = self._saved(state)
        before, policy, first = self._hyperparameters, self.policy, self._first_round(len(names))
        other = watches != bool(policy.availability) and isinstance(self._made_from, str)
        if other:
            self._hyperparameters = before | {"availability": watches}
        try:
            if other or len(names) != len(self._names):
                policy = self._made(names)
            now = restored(policy.first_state(1), state, "state"), restored(first, state, "round")
            check_seal(state, self._plain(names, policy, now[1], now[0]))
            policy.check_state(now[0], 1)
            self._check_round(now[1])
        except ValueError:
            self._hyperparameters = before
            raise
        self._rename(names)
        self.policy, (self._state, self._round) = policy, now

    def _saved(self, state: Mapping[str, Any]) -> tuple[tuple[Worker, ...], bool]:
        """The names in a state, and whether its policy watches who owes results; ValueError if it is no such state."""
        unfit = f"this is no state of {type(self).__name__} with B = {self.budget} and {_kind(self.policy)}"
        if not isinstance(state, Mapping):
            raise ValueError(f"{unfit}, but {short(state)}")  # noqa: TRY004
        try:
            ours = int(fitted("budget", state["budget"], _NUMBER)), text_of("policy", state["policy"])
            watches = bool(fitted("watches", state["watches"], _FLAG))
            known = _names_in(state["workers"])
        except KeyError as error:
            raise ValueError(f"{unfit}: it has no {error}") from None
        except ValueError as error:
            raise ValueError(f"{unfit}: {error}") from None
        if ours != (self.budget, _kind(self.policy)):
            raise ValueError(f"{unfit}: its budget is {ours[0]}, and its policy {ours[1]}")
        return known, watches

    def _made(self, names: tuple[Worker, ...]) -> Policy:  # the policy for workers with these names
        given, budget, n = self._made_from, self.budget, len(names)
        if isinstance(given, Policy):
            kind: Any = type(given)
            if (given.setting.n, given.setting.budget) != (n, budget) or self._hyperparameters:
                raise ValueError(
                    f"this {kind.__name__} is made for {given.setting.n} workers and B = {given.setting.budget}, not "
                    f"for {n} and {budget}: give its name and hyperparameters, so that it can be made for other numbers"
                )
        else:
            kind = load(full_name(given, self._env_id))
        if kind.env_id != self._env_id:
            made_by = _MADE_BY.get(kind.env_id, kind.env_id)
            raise ValueError(f"{kind.__name__} plays {kind.env_id}: use {made_by}, or a policy of {self._env_id}")
        if kind.privileged:
            raise ValueError(f"{kind.__name__} needs to know each round beforehand, which only an env does")
        if isinstance(given, Policy):
            return given
        each = None if self._unit_costs is None else [self._unit_costs.get(name, 1.0) for name in names]
        costs = None if each is None else tuple(checked_costs(each, n).tolist())
        return make_for(
            given, self._setting._replace(n=n, unit_costs=costs), self._env_id, self._seed, **self._hyperparameters
        )

    def _decide(self, observation: Observation) -> Ints:  # the policy's decision, (n,), after it has noted who is there
        there = self._round.there
        if not there.all():
            self._state = self.policy.note_absences(self._state, ~there, np.zeros_like(there))
        action, self._state = self.policy.predict(observation, self._state)
        return action

    def _place(self, worker: object) -> int:
        """The place of a worker that is or was there; ValueError if there is none of that name."""
        known = isinstance(worker, str | int | np.integer) and not isinstance(worker, bool)
        if known and worker in self._index:
            return self._index[worker]
        raise ValueError(f"there is no worker {short(worker)}; there are {short(list(self.workers))}")


def _names_in(workers: Any) -> tuple[Worker, ...]:
    try:
        return checked_names(parse_list(text_of("it", workers)))
    except ValueError as error:
        raise ValueError(f"workers are no list of names: {error}") from None


def checked_seconds(worker: object, seconds: object) -> float:
    """The time as a float; ValueError that names the worker unless it is a finite number of at least 0."""
    number = as_float(seconds)
    if 0.0 <= number < np.inf:
        return number
    raise ValueError(f"a time of worker {worker!r} must be a finite number of at least 0, not {short(seconds)}")


def _kind(policy: Policy) -> str:  # the policy's class, and its parts where it is made of parts
    kind, about = type(policy).__name__, policy.about()
    return kind if about == policy.summary() else f"{kind} ({about})"


def checked_names(workers: int | Iterable[Worker]) -> tuple[Worker, ...]:
    """The names, or the numbers from 0 on; ValueError unless they are texts or whole numbers, and each differs."""
    if isinstance(workers, str) or not isinstance(workers, Iterable):
        return tuple(range(whole_number("workers", workers)))
    names = tuple(workers)
    if not names or not all(type(name) in (str, int) for name in names):
        raise ValueError(f"workers must be a number, or names that are texts or whole numbers, not {short(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"each worker must have a name of its own; of {short(names)}, two are the same")
    return names
