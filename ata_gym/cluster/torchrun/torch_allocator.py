"""Allocation inside ``torch.distributed``: the tasks of each rank, and their mean gradient."""

import copy
import json
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from math import isfinite
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ata_gym import __version__
from ata_gym.cluster.round_record import RoundRecord
from ata_gym.cluster.torchrun.gradients.accumulation import GradientWeights
from ata_gym.cluster.torchrun.gradients.task_gradients import TaskGradients
from ata_gym.cluster.torchrun.ranks import Fault, RankPart, Ranks
from ata_gym.cluster.torchrun.share import Share
from ata_gym.cluster.torchrun.task_sampler import load_ahead
from ata_gym.cluster.torchrun.waiting import Waiting
from ata_gym.cluster.torchrun.weights import fingerprint
from ata_gym.models.seeds import seeded
from ata_gym.models.stopwatch import Stopwatch
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.typing import Floats, Ints, Keys, Worker
from ata_gym.utils.validation import flag, non_negative, whole_number
from ata_policies import Allocator

_LOG = logging.getLogger("ata_gym.cluster")
_LEFT_REASON = "it takes no tasks since it called leave()"
_NOISE_STREAM = 6
"""The stream of keys for the noise of tasks."""
_PLANNER = ThreadPoolExecutor(1, "ata_gym plans")
"""The thread that decides on the next round while the optimiser steps."""


class _Plan(NamedTuple):
    """A plan for the next round."""

    allocator: Allocator
    """The allocator that has made the plan, and is in its place in that round."""
    tasks: Future[dict[Worker, int]]


class TorchAllocator:
    """Shares the B tasks of each training step out to the ranks of a process group.

    It learns the speeds of the ranks: the time of their tasks, and apart from it their latency,
    which is what a rank spends between the start of ``round`` and its first task, and between its
    last task and ``share.reduce``, such as a transfer of weights to the device. What belongs to
    each task is done inside the task, and what waits for other ranks outside the round.
    Training stays synchronous, data parallel and exact: after each round every rank has the mean
    gradient of B tasks, as one process would. There is no coordinator: every rank runs the same
    policy on the same times, which travel with the gradient, and checksums of the allocations are
    compared. The user's script starts the process group, under torchrun or otherwise, and makes the
    allocator on every rank.

    A round costs an all-reduce of the gradient, with B + 12 n numbers of 4 bytes more for n ranks;
    where the gradient is not float32, these travel in a collective of their own. Each 25 MB of
    gradient are sent when the rank's last backward pass has computed them. During a round each rank
    has the running statistics of batch norm of its own samples, and after it their means. The next
    round is planned while the optimiser steps.

    The example has a process group of one rank, which computes all tasks itself; under torchrun
    nothing else is different.

    Args:
        budget: The number B of tasks of a round: gradients that a step needs. A task is one batch
            of the loader.
        policy: The name of a policy of ``ata_gym/TaskAllocation-v0``; hyperparameters may follow
            it.
        group: The process group of the data-parallel ranks; None is the default group.
        name: The name of this rank's worker, the same after a restart, since what is known of a
            worker is kept by its name. By default the host's name and the local rank.
        warm_up: The first rounds with tasks of a rank, after each start of it, whose times do not
            count: libraries are loaded, kernels compiled and tuned, caches filled in them. Each
            rank counts its own rounds, so that one whose first task comes late has its warm-up
            then. A rank that joins again, and every rank after a state was loaded, has another one.
        check_every: Rounds between two checks that the policies' states, and the models' weights,
            are the same on all ranks.
        allow_nonfinite: Whether a loss or gradient that is not finite is let through. The gradient
            of a loss that a ``GradScaler`` scales is always let through.
        keyed_noise: Whether dropout and augmentation depend on the seed, the round and the number
            of the task within it, and not on the rank: each batch begins with torch's generators
            seeded so. With one task in a pass, every split has the noise of one process then.
            ``KeyedSamples`` does so for what a loader's worker processes draw.
        patience: After so many seconds, and five times the longest wait so far, ranks that all
            others wait for are named in the log ``ata_gym.cluster``.
        price: What one unit of worker time costs, as for ``ata_policies.Allocator``.
        seed: The seed of the policy's draws and of ``keyed_noise``.
        horizon: The number of rounds, as for ``ata_policies.Allocator``.
        hyperparameters: Other arguments of ``ata_policies.Allocator``, which also takes limits and
            a prior.

    Raises:
        RuntimeError: If there is no process group.
        ValueError: For a bad argument, and on every rank if ranks were given different ones.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> from ata_gym.cluster import TaskSampler
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> folder = tempfile.TemporaryDirectory()
        >>> store = f"file://{folder.name}/store"
        >>> dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        >>> allocator = TorchAllocator(budget=4, name="gpu0")
        >>> data, model = TensorDataset(torch.ones(10, 2), torch.arange(10.0)), nn.Linear(2, 1)
        >>> loader = DataLoader(data, batch_sampler=TaskSampler(allocator, data))
        >>> with allocator.round(model) as share:
        ...     for x, y in share.take(loader):
        ...         share.backward((model(x)[:, 0] - y).square().mean())
        ...     share.reduce()
        >>> allocator.last.tasks, allocator.last.loss is not None, model.weight.grad is not None
        ({'gpu0': 4}, True, True)
        >>> dist.destroy_process_group()
        >>> folder.cleanup()
    """

    rounds: int
    """The number of rounds that have ended, over restarts."""
    last: RoundRecord | None = None
    """The record of the last round.

    It is the same on every rank except the communication time, which each rank measures."""

    def __init__(
        self,
        budget: int,
        policy: str = "default",
        *,
        group: dist.ProcessGroup | None = None,
        name: str | None = None,
        warm_up: int = 1,
        check_every: int = 100,
        allow_nonfinite: bool = False,
        keyed_noise: bool = False,
        patience: float = 10.0,
        price: float = 0.0,
        seed: int = 0,
        horizon: int | None = None,
        **hyperparameters: Any,
    ) -> None:
        self._check_every = whole_number("check_every", check_every)
        self._allow_nonfinite = flag("allow_nonfinite", allow_nonfinite)
        configuration = {
            "budget": budget,
            "policy": policy,
            "warm_up": warm_up,
            "check_every": check_every,
            "price": price,
            "allow_nonfinite": allow_nonfinite,
            "keyed_noise": keyed_noise,
            "seed": seed,
            "horizon": horizon,
            **hyperparameters,
            "the version of ata_gym": __version__,
        }
        self._ranks = Ranks(group, name, configuration)
        self._waiting = Waiting(self._ranks, non_negative("patience", patience))
        if flag("keyed_noise", keyed_noise):
            self._noise = stream_keys(seed, stream=_NOISE_STREAM)[0]
        else:
            self._noise = None
        self._next_plan: _Plan | None = None
        # Whether each batch of this rank had one backward pass in the last round.
        self._had_one_pass = False
        self._allocator = Allocator(
            self._ranks.names,
            budget,
            policy,
            price=price,
            seed=seed,
            horizon=horizon,
            warm_up=warm_up,
            **hyperparameters,
        )
        self.rounds = self._since_start = 0
        self._leaves = False
        self._share: Share | None = None
        # The gradients of the last model, whose memory the next round uses again.
        self._gradients: TaskGradients | None = None
        self._gradient_weights = GradientWeights()
        self._iterators: WeakKeyDictionary[Any, Iterator[Any]] = WeakKeyDictionary()

    @property
    def budget(self) -> int:
        """The number B of tasks of a round."""
        return self._allocator.budget

    @property
    def name(self) -> str:
        """The worker of this rank."""
        return self._ranks.names[self._ranks.rank]

    @property
    def share(self) -> Share:
        """The part of this rank in the round that is open.

        Raises:
            RuntimeError: If no round is open.
        """
        if self._share is None:
            raise RuntimeError(
                "no round is open: take the tasks inside `with allocator.round(model) as share:`",
            )
        return self._share

    @contextmanager
    def round(self, model: nn.Module) -> Iterator[Share]:
        """Run one round: the block gets the share of this rank, and at its end all ranks learn.

        Several models are one ``torch.nn.ModuleList``. Gradients of earlier rounds are kept and
        added to; where losses have weights, all rounds since the gradients were None or 0 and the
        parameters changed, so those of one optimizer step, have one mean. After an error inside the
        block the round does not count: nothing is learned, the model has the gradients and running
        statistics of before, and the next call begins the round again. The other ranks get an error
        that names this worker when they reduce, so that all can begin the round again; this rank
        raises its error then. ``KeyboardInterrupt`` and ``SystemExit`` are raised at once, and the
        others wait until this rank begins the round again, or its process ends.

        Raises:
            RuntimeError: If a round is open, or the block did not call ``share.reduce``.
            ValueError: For a model that communicates in a way that a round does not respect.
        """
        if self._share is not None:
            raise RuntimeError("a round is open: end it before the next one begins")
        shares, own_tasks, first_task = self._planned()
        if self._next_plan is not None:
            self._allocator = self._next_plan.allocator
            self._next_plan = None
        expected = self._allocator.expected_times()
        if self._gradients is None or self._gradients.model is not model:
            self._gradients = TaskGradients(
                model,
                self._ranks,
                self._ranks.length(self.budget),
                self._gradient_weights,
            )
        learned: list[tuple[list[Floats], RankPart[Floats]]] = []
        with self._gradients as gradients:

            def reduce() -> None:
                learned.append(self._reduce(share, shares, gradients))

            watch = Stopwatch(gradients.device)
            seeds: Callable[[int], AbstractContextManager[object]]
            if self._noise is None:
                seeds = nullcontext
            else:
                seeds = self._seeded(self._noise, gradients.device)
            share = Share(
                own_tasks,
                first_task,
                self.budget,
                watch,
                gradients,
                self._iterators,
                reduce,
                seeds,
            )
            share.expects_one_pass = self._had_one_pass
            # A round that fails is begun again without sending any part early.
            self._had_one_pass = False
            self._share = share
            try:
                yield share
                share.check_reduced()
                self._learn(share, *learned[0], shares, expected)
            except BaseException as error:
                # What ends a process is not held up, unless a part of the gradient is on its way.
                if gradients.partly_sent or (
                    isinstance(error, Exception) and not gradients.all_sent
                ):
                    self._tell(error, shares, gradients)
                raise
            finally:
                self._share = None
        self._had_one_pass = share.had_one_pass
        # The state of an allocator is replaced, never changed: with a copy that plans ahead, the
        # state of before can still be saved.
        planner = copy.copy(self._allocator)
        self._next_plan = _Plan(planner, _PLANNER.submit(planner.allocate))
        load_ahead(share.loaders, self._iterators, self._next_tasks)

    def _tell(self, error: BaseException, shares: Ints, gradients: TaskGradients) -> None:
        """Tell the other ranks, which wait for this rank's part, that it has failed."""
        number = self.rounds + 1
        _LOG.warning(
            "round %d: %s failed, and tells the other ranks when they have computed their tasks:"
            " %s: %s",
            number,
            self.name,
            type(error).__name__,
            error,
        )
        part = RankPart(*[0.0] * len(RankPart._fields))._replace(fault=Fault.FAILED)
        no_seconds = [0.0] * int(shares[self._ranks.rank])
        # Where the group is broken, too, the first error says more.
        with suppress(RuntimeError), self._waiting.in_round(number):
            gradients.sum(0.0, self._ranks.packed(no_seconds, part, shares))

    def _planned(self) -> tuple[Ints, int, int]:
        """The tasks of each rank, (n,), of this rank, and the number of its first task."""
        if self._next_plan is None:
            tasks = self._allocator.allocate()
        else:
            tasks = self._next_plan.tasks.result()
        shares = np.array([tasks.get(name, 0) for name in self._ranks.names])
        return shares, int(shares[self._ranks.rank]), int(shares[: self._ranks.rank].sum())

    def _next_tasks(self) -> tuple[int, int]:
        """The number of tasks of this rank in the next round, and of its first task."""
        return self._planned()[1:]

    def _seeded(
        self,
        key: Keys,
        device: torch.device,
    ) -> Callable[[int], AbstractContextManager[object]]:
        return lambda number: seeded(int(derive_keys(key, self.rounds, number)) >> 1, device)

    def leave(self) -> None:
        """Give this rank no tasks from the next round on, until it joins.

        It still takes part in each round.
        """
        self._leaves = True

    def join(self) -> None:
        """Give this rank tasks again from the next round on."""
        self._leaves = False

    def state_dict(self) -> dict[str, Any]:
        """The rounds and the belief of the policy, as numbers and text, the same on every rank.

        It belongs in the checkpoint that holds the model.

        Raises:
            RuntimeError: Inside a round.
        """
        if self._share is not None:
            raise RuntimeError("a round is open: save the state between rounds")
        return {"rounds": self.rounds, "allocator": self._allocator.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, maybe with another number of ranks.

        Every rank calls it with the same state. Workers of the state that have no rank now are
        away, and nothing is known of new workers.

        Raises:
            RuntimeError: Inside a round.
            ValueError: If it is the state of another budget or policy; nothing has changed then.
        """
        if self._share is not None:
            raise RuntimeError("a round is open: load the state between rounds")
        try:
            rounds = whole_number("rounds", state["rounds"], 0)
            allocator = state["allocator"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no state of TorchAllocator: {error}") from error
        self._allocator.load_state_dict(allocator)
        self._next_plan = None
        self.rounds = rounds
        self._since_start = 0
        self._leaves = False
        self.last = None
        self._allocator.keep_only(sorted(self._ranks.names))
        for name in self._ranks.names:
            self._allocator.restarted(name)

    def _reduce(
        self,
        share: Share,
        shares: Ints,
        gradients: TaskGradients,
    ) -> tuple[list[Floats], RankPart[Floats]]:
        """Make the gradients the mean over all tasks.

        Nothing has changed where a rank has a fault, or where the ranks do not agree.

        Returns:
            The task times of each rank, and the parts of all ranks.
        """
        packed = self._ranks.packed(
            share.seconds(), self._rank_part(share, shares, gradients), shares
        )
        with self._waiting.in_round(self.rounds + 1):
            summed = gradients.sum(share.tasks / self.budget, packed)
        seconds, parts = self._ranks.unpacked(summed, shares)
        self._ranks.check(self.rounds + 1, parts, gradients.model)
        if weight := float(parts.weight.sum()):
            # All ranks have one number, also those whose part of sharded gradients is 0.
            gradients.keep_mean(weight, float(parts.accumulated.max()), self.budget)
        else:
            gradients.keep()
        return seconds, parts

    def _factor(self, parts: RankPart[Floats]) -> float:
        """The factor on the sums of losses divided by B, and on their gradients.

        It is B divided by the sum of the weights, where there are weights, and else 1.
        """
        total = float(parts.weight.sum())
        if total:
            return self.budget / total
        return 1.0

    def _rank_part(self, share: Share, shares: Ints, gradients: TaskGradients) -> RankPart[float]:
        # In some rounds the state of the policy and the weights of the model are compared, too.
        complete = self._since_start == 0 or self.rounds % self._check_every == 0
        loss = share.loss()
        return RankPart(
            elapsed=share.watch.seconds(share.start_mark, share.computed_mark),
            latency=share.latency(),
            loss=loss,
            leaves=float(self._leaves),
            checksum=self._checksum(shares, complete),
            layout=gradients.layout,
            samples=share.orders[-1] if share.orders else 0,
            weight=share.weight,
            weights=fingerprint(gradients.parameters) if complete else 0.0,
            fault=self._fault(share, loss, gradients),
            passes=share.passes,
            accumulated=gradients.accumulated,
        )

    def _fault(self, share: Share, loss: float, gradients: TaskGradients) -> int:
        if not (self._allow_nonfinite or isfinite(loss)):
            return int(Fault.MEAN_OF_NOTHING if share.mean_of_nothing() else Fault.LOSS)
        fault, place = gradients.fault(finite=not (self._allow_nonfinite or share.scaled))
        return fault + len(Fault) * place

    def _learn(
        self,
        share: Share,
        seconds: list[Floats],
        parts: RankPart[Floats],
        shares: Ints,
        expected: Mapping[Worker, float],
    ) -> None:
        names = self._ranks.names
        named_times = zip(names, seconds, strict=True)
        times: dict[Worker, list[float]] = {
            name: worker_times.tolist() for name, worker_times in named_times if len(worker_times)
        }
        latencies = zip(names, parts.latency.tolist(), strict=True)
        latency: dict[Worker, float] = {name: late for name, late in latencies if name in times}
        self._allocator.observe(times, latency=latency)
        present = self._allocator.workers
        self._allocator.keep_only(
            [name for name, leaves in zip(names, parts.leaves, strict=True) if not leaves],
        )
        self.rounds += 1
        self._since_start += 1
        # The time from here to the end of the reduction is waiting for the slowest rank, and then
        # communication.
        slowest = float(parts.elapsed.max())
        waited = slowest - float(parts.elapsed[self._ranks.rank])
        communication = max(
            share.watch.seconds(share.computed_mark, share.reduced_mark) - waited, 0.0
        )
        self.last = RoundRecord(
            self.rounds,
            dict(zip(names, shares.tolist(), strict=True)),
            {name: tuple(worker_times) for name, worker_times in times.items()},
            round_time=slowest + communication,
            estimates=dict(expected),
            communication=communication,
            away={name: _LEFT_REASON for name in names if name not in present},
            loss=float(parts.loss.sum()) * self._factor(parts),
            latency=latency,
            weight=float(parts.weight.sum()),
        )

    def _checksum(self, shares: Ints, complete: bool) -> int:
        # A rank whose last round failed after the reduction is one round behind.
        decision = np.append(shares, self.rounds).tobytes()
        if complete:
            state = json.dumps(self._allocator.state_dict()).encode()
        else:
            state = b""
        return zlib.crc32(state, zlib.crc32(decision)) & 0xFFFFFF
