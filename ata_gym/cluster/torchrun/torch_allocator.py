"""Allocation inside ``torch.distributed``: the tasks of each rank, and their mean gradient."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from ata_gym import __version__
from ata_gym.cluster.round_record import RoundRecord
from ata_gym.cluster.torchrun.buffers.buffer_sums import BufferSums
from ata_gym.cluster.torchrun.gradients.accumulation import GradientRounds
from ata_gym.cluster.torchrun.gradients.task_gradients import TaskGradients
from ata_gym.cluster.torchrun.keyed_noise import KeyedNoise
from ata_gym.cluster.torchrun.loading.first_batches import OpenLoaders
from ata_gym.cluster.torchrun.loading.loaders import load_ahead
from ata_gym.cluster.torchrun.plans import Plans
from ata_gym.cluster.torchrun.ranks.parts import Fault, RankPart
from ata_gym.cluster.torchrun.ranks.replicas import quorum_and_replica, ranks_and_replica
from ata_gym.cluster.torchrun.ranks.waiting import Waiting
from ata_gym.cluster.torchrun.report import rank_part
from ata_gym.cluster.torchrun.results import RoundResult
from ata_gym.cluster.torchrun.share import Share
from ata_gym.cluster.torchrun.weights import fingerprint
from ata_gym.models.stopwatch import Stopwatch
from ata_gym.typing import Ints, Worker
from ata_gym.utils.validation import flag, non_negative, whole_number
from ata_policies import Allocator

_LOG = logging.getLogger("ata_gym.cluster")


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

    A round costs an all-reduce of the gradient, with B + 16 n numbers of 4 bytes more for n ranks,
    which travel in a collective of their own where the gradient is not float32. The first round
    has one of n numbers more, and a round in which other parameters are trained than in the one
    before a second all-reduce. Each 25 MB of gradient are sent when the rank's last backward pass
    has computed them. During a round each rank has the buffers that its own tasks leave, and after
    it all ranks have the same, as ``round`` says. The next round is planned during the step.

    The example has a process group of one rank, which computes all tasks itself.

    Args:
        budget: The number B of tasks of a round: gradients that a step needs. A task is one batch
            of the loader.
        policy: The name of a policy of ``ata_gym/TaskAllocation-v0``; hyperparameters may follow
            it.
        group: The process group of the data-parallel ranks, each of which is a worker and has the
            whole model; None is the default group.
        mesh: In place of ``group``, where several ranks hold a replica of the model together, as in
            tensor, sequence and pipeline parallelism: the data-parallel dimension of their
            ``DeviceMesh``, such as ``mesh["dp"]``. The ranks of the same place in it are a replica,
            which is one worker with the name of its first rank and the time of its slowest one;
            they have the same share and the same samples, and gradients are summed over this
            dimension. In a mesh of several dimensions those whose names begin with "dp" are meant.
            All ranks of the default group make the allocator. A round has one small all-reduce
            more, among the ranks of each replica.
        manager: The ``torchft.Manager`` of a replica in place of a group, with
            ``use_async_quorum=False``: replicas may die and come back, and each step that is taken
            has B tasks. A round asks for the quorum and decides whether its step counts, so the
            optimiser is a plain one, which steps if ``share.committed``; if not, the next round
            computes the tasks again. A replica that comes back has the state of the others, and
            the gradients of their earlier rounds; where a step follows several rounds, step by
            ``rounds``, which is the same on all replicas. It needs the extra ``torchft``.
        name: The name of this rank's worker, the same after a restart, since what is known of a
            worker is kept by its name. By default the host's name and the local rank, or the
            manager's ``replica_id``.
        warm_up: The first rounds with tasks of a rank, after each start of it, whose times do not
            count: libraries are loaded, kernels compiled and tuned, caches filled in them. Each
            rank counts its own rounds, so that one whose first task comes late has its warm-up
            then. A rank that joins again, and every rank after a state was loaded, has another one.
        check_every: Rounds between two checks that the policies' states, and the models' weights
            and buffers, are the same on all ranks.
        allow_nonfinite: Whether a loss or gradient that is not finite is let through. The gradient
            of a loss that a ``GradScaler`` scales is always let through.
        keyed_noise: Whether dropout and augmentation depend on the seed, the round and the number
            of the task within it, and not on the rank: each batch begins with torch's generators
            seeded so. With one task in a pass, every split has the noise of one process then.
            ``KeyedSamples`` does so for what a loader's worker processes draw.
        patience: After so many seconds, and five times the longest wait so far, ranks that all
            others wait for are named in the log ``ata_gym.cluster``.
        propensities: Whether each record has the propensities of its allocation, for a trace: a
            policy that draws, such as "thompson", decides 999 times more as the optimiser steps.
        price: What one unit of worker time costs, as for ``ata_policies.Allocator``.
        seed: The seed of the policy's draws and of ``keyed_noise``.
        horizon: The number of rounds, as for ``ata_policies.Allocator``.
        hyperparameters: Other arguments of ``ata_policies.Allocator``, which also takes limits and
            a prior.

    Raises:
        MissingExtraError: For a manager, if torchft is not installed.
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
        mesh: DeviceMesh | None = None,
        manager: Any = None,
        name: str | None = None,
        warm_up: int = 1,
        check_every: int = 100,
        allow_nonfinite: bool = False,
        keyed_noise: bool = False,
        patience: float = 10.0,
        propensities: bool = False,
        price: float = 0.0,
        seed: int = 0,
        horizon: int | None = None,
        **hyperparameters: Any,
    ) -> None:
        self._allow_nonfinite = flag("allow_nonfinite", allow_nonfinite)
        configuration = {
            "budget": budget,
            "policy": policy,
            "warm_up": warm_up,
            "check_every": check_every,
            "price": price,
            "allow_nonfinite": allow_nonfinite,
            "keyed_noise": keyed_noise,
            "propensities": propensities,
            "seed": seed,
            "horizon": horizon,
            **hyperparameters,
            "the version of ata_gym": __version__,
        }
        if manager is None:
            made = ranks_and_replica(group, mesh, name, budget, configuration)
        else:
            made = quorum_and_replica(
                manager, group, mesh, name, configuration, self._load_other, self._state_for_other
            )
        self._ranks, self._replica = made
        self._waiting = Waiting(self._ranks, non_negative("patience", patience))
        self._noise = KeyedNoise(seed if flag("keyed_noise", keyed_noise) else None)
        # Whether each batch of this rank had one backward pass in the last round.
        self._had_one_pass = False
        # Replicas that are away may have limits.
        limited = hyperparameters.get("limits") or ()
        self._plans = Plans(
            self._ranks,
            lambda names: Allocator(
                [*names, *(name for name in limited if manager is not None and name not in names)],
                budget,
                policy,
                price=price,
                seed=seed,
                horizon=horizon,
                warm_up=warm_up,
                **hyperparameters,
            ),
            whole_number("check_every", check_every),
            propensities=flag("propensities", propensities),
        )
        self.rounds = 0
        self._leaves = False
        self._share: Share | None = None
        # The gradients of the last model, whose memory the next round uses again.
        self._gradients: TaskGradients | None = None
        self._gradient_rounds = GradientRounds()
        self._buffers = BufferSums(self._ranks, budget)
        self._open_loaders = OpenLoaders()

    @property
    def _allocator(self) -> Allocator:
        return self._plans.allocator

    @property
    def elastic(self) -> bool:
        """Whether workers come and go between rounds, so that a round may not count."""
        return self._ranks.elastic

    @property
    def budget(self) -> int:
        """The number B of tasks of a round."""
        return self._allocator.budget

    @property
    def name(self) -> str:
        """The worker of this rank."""
        return self._ranks.names[self._ranks.rank]

    @property
    def replica_size(self) -> int:
        """The number of ranks that hold a replica of the model together; 1 without a mesh."""
        return self._replica.size

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
        parameters changed, so the rounds of one optimizer step, have one mean. After an error
        inside the block the round does not count: nothing is learned, the model has the gradients
        and buffers of before, and the next call begins the round again. The other ranks get an
        error that names this worker when they reduce, so that all can begin the round again; this
        rank raises its error then. ``KeyboardInterrupt`` and ``SystemExit`` are raised at once, and
        the others wait until this rank begins the round again, or its process ends.

        Floating-point buffers that tasks have changed become the mean over the ranks, weighted by
        their tasks; buffers of other dtypes, and vectors of length 1 such as in ``spectral_norm``,
        become the buffers of the first rank with tasks that has changed them. A cache
        (``persistent=False``) whose shapes differ is each rank's own. It holds for all models that
        had rounds.

        Raises:
            RuntimeError: If a round is open, or the block did not call ``share.reduce``.
            ValueError: For a model that communicates in a way that a round does not respect, and on
                every rank for a buffer in the model's state that has no common value.
        """
        if self._share is not None:
            raise RuntimeError("a round is open: end it before the next one begins")
        self._gradient_rounds.model = model
        self._ranks.begin(leaves=self._leaves)
        try:
            self._gradient_rounds.take_received()
            with self._opened(model) as share:
                yield share
        except BaseException as error:
            self._plans.restore()
            self._ranks.abandon(error)
            raise
        if not share.committed:
            self._plans.restore()
            return
        self._had_one_pass = share.had_one_pass
        loaders = share.loaders if self._plans.make_next() else []
        load_ahead(loaders, self._open_loaders, lambda: self._plans.own_tasks(self._plans.shares()))

    @contextmanager
    def _opened(self, model: nn.Module) -> Iterator[Share]:
        """Play the round that the ranks have begun, until it is committed, or is not."""
        shares = self._plans.begin(self.rounds, lambda: self._replica.leaves(self._leaves))
        own_tasks, first_task = self._plans.own_tasks(shares)
        expected = self._allocator.expected_times()
        if self._gradients is None or self._gradients.model is not model:
            self._gradients = TaskGradients(
                model,
                self._ranks,
                self.budget,
                self._replica.ranks,
                self._gradient_rounds,
                self._buffers,
            )
        results: list[RoundResult | None] = []
        is_first = self._ranks.layout is None
        in_round = self._gradients.in_round(
            self.rounds + 1, is_checked=self._plans.checked(self.rounds), is_first=is_first
        )
        with ExitStack() as stack:
            try:
                # All ranks begin the first round, or none does.
                with self._replica.any_error() if is_first else nullcontext():
                    gradients = stack.enter_context(in_round)
            except Exception as error:
                if not is_first:
                    self._tell(error, shares, in_round)
                raise
            if is_first and not self._ranks.failed:
                gradients.agree()

            def reduce() -> None:
                results.append(self._reduce(share, shares, gradients))

            watch = Stopwatch(gradients.device)
            share = Share(
                own_tasks,
                first_task,
                self.budget,
                watch,
                gradients,
                self._open_loaders,
                reduce,
                self._noise.of_round(self.rounds, gradients.device),
            )
            share.expects_one_pass = self._had_one_pass
            # A round that fails is begun again without sending any part early.
            self._had_one_pass = False
            self._share = share
            try:
                yield share
                share.check_reduced()
                if self._ranks.elastic:
                    gradients.check_unchanged()
                share.committed = self._ranks.commit()
                (result,) = results
                if share.committed and result is not None:
                    self._learn(share, result, expected)
                else:
                    gradients.drop()
            except BaseException as error:
                if self._others_wait(error, gradients):
                    self._tell(error, shares, gradients)
                raise
            finally:
                self._share = None

    def _others_wait(self, error: BaseException, gradients: TaskGradients) -> bool:
        """Whether other ranks are to be told of an error inside the round.

        What ends a process is not held up, unless a part of the gradient is on its way, or ranks of
        the same replica, or ranks of a quorum, may wait for it.
        """
        if gradients.is_sent:
            return False
        close = self.replica_size > 1 or self._ranks.elastic
        return gradients.partly_sent or close or isinstance(error, Exception)

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
        # Where the group is broken, too, the first error says more.
        with suppress(RuntimeError), self._waiting.in_round(number):
            seconds, part = self._replica.combined(number, [], part)
            gradients.sum(self._ranks.packed(seconds, part, shares), 0, 0, settle=False)
            self._replica.tell(None)

    def leave(self) -> None:
        """Give this rank no tasks from the next round on until it joins; it still takes part."""
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
        self._plans.load(allocator)
        self.rounds = rounds
        self._leaves = False
        self.last = None

    def _state_for_other(self) -> dict[str, Any]:
        gradients = self._gradient_rounds.state()
        return {"rounds": self.rounds, "gradients": gradients, **self._plans.state_for_another()}

    def _load_other(self, state: Mapping[str, Any]) -> None:
        self._plans.load_of_another(state)
        self.rounds = state["rounds"]
        self.last = None
        self._gradient_rounds.received = state["gradients"]

    def _reduce(
        self,
        share: Share,
        shares: Ints,
        gradients: TaskGradients,
    ) -> RoundResult | None:
        """Make the gradients the mean over all tasks.

        Nothing has changed where a rank has a fault, or where the ranks do not agree.

        Returns:
            What all ranks know of the round; None if the sum has failed.
        """
        number = self.rounds + 1
        complete = self._plans.checked(self.rounds)
        part = rank_part(
            share,
            gradients,
            checksum=self._plans.checksum(shares, self.rounds, complete=complete),
            weights=fingerprint(gradients.parameters) if complete else 0.0,
            batches=self._open_loaders.next_checksums(share.loaders),
            leaves=self._leaves,
            allow_nonfinite=self._allow_nonfinite,
        )
        with self._waiting.in_round(number):
            replica_seconds, part = self._replica.combined(
                number,
                share.seconds(),
                part,
                has_loss=share.has_loss,
                same_losses=not gradients.shards_in_replica,
                change=gradients.change(),
            )
            packed = self._ranks.packed(replica_seconds, part, shares)
            summed = gradients.sum(packed, share.tasks, share.first, settle=not part.fault)
        if not self._ranks.failed:
            seconds, parts = self._ranks.unpacked(summed, shares)
            with self._replica.same_error():
                self._ranks.check(number, parts, gradients.model)
                self._open_loaders.compare(number, self._ranks.names, parts, share.loaders)
        if not self._ranks.failed:
            gradients.agree()
            others_changed = bool(parts.changed_buffers.any())
            # Otherwise nothing is compared, and no rank has an error.
            compares = complete or others_changed
            with self._replica.any_error() if compares else nullcontext():
                gradients.settle_buffers(share.tasks, others_changed=others_changed)
        if self._ranks.failed:
            gradients.drop()
            return None
        gradients.keep(parts)
        return RoundResult(self._ranks.names, shares, seconds, parts)

    def _learn(self, share: Share, result: RoundResult, expected: Mapping[Worker, float]) -> None:
        self._allocator.observe(result.times(), latency=result.latency())
        present = self._allocator.workers
        self._allocator.keep_only(result.staying())
        self.rounds += 1
        self._plans.since_change += 1
        known = self._allocator.places if self._ranks.elastic else ()
        away = result.away(present, known)
        propensities = self._plans.propensities
        self.last = result.record(self.rounds, share, expected, away, propensities)
