"""Replicas of a model that several ranks hold together, each of which is one worker."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ata_gym.cluster.torchrun.ranks.group import GroupRanks, check_configurations, default_name
from ata_gym.cluster.torchrun.ranks.parts import NO_CHANGE, Fault, LayoutChange, Passes, RankPart
from ata_gym.cluster.torchrun.ranks.quorum import QuorumRanks
from ata_gym.cluster.torchrun.ranks.ranks import AGREEMENTS, Ranks
from ata_gym.typing import Floats
from ata_gym.utils.validation import short, whole_number

_DATA_PARALLEL_PREFIX = "dp"
"""What the names of data-parallel dimensions begin with, as in the meshes of torch's examples."""
_LOSS_TOLERANCE = 0.01
"""How far, relative to their mean, the losses of the ranks of a replica may be apart.

Rounding on the ranks of a replica changes a loss by less; other samples change it by more."""


class _Member(NamedTuple):
    """What each rank tells all others when an allocator is made."""

    rank: int
    column: tuple[int, ...]
    """The ranks over which its gradients are summed, in the order of the mesh."""
    name: str
    configuration: str


class Replica:
    """The ranks that hold one replica of the model together, and so are one worker.

    They compute the same tasks, and each has a part of the gradient, which is summed over the ranks
    of the same place in all replicas. In each round they first tell each other what they would
    send, in a small all-reduce, and then all send the same: the times of the slowest of them, and
    what is wrong with any of them. A rank that has the whole model is a replica by itself.

    Args:
        ranks: The ranks of this replica in the default group.
        within: The process group of these ranks; None for a rank by itself.
        index: The place of this replica among all replicas.
        name: The name of the worker.
        rank_names: The names of all ranks, also of ranks of other replicas.
        device: Where the process group takes tensors.
        budget: The number B of tasks of a round.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        within: dist.ProcessGroup | None,
        index: int,
        name: str,
        rank_names: Sequence[str],
        device: torch.device,
        budget: int,
    ) -> None:
        self.ranks = frozenset(ranks)
        self.size = len(ranks)
        self.name = name
        self._number_of_ranks = len(rank_names)
        self._within = within
        self._place = 0 if within is None else dist.get_rank(within)
        self._index = index
        self._device = device
        self._budget = budget
        # The sentence of this rank, where it is the one that says what is wrong with its replica.
        self._speaks = False
        self._disagreement: Exception | None = None

    def combined(
        self,
        number: int,
        seconds: list[float],
        part: RankPart[float],
        *,
        has_loss: bool = False,
        same_losses: bool = True,
        change: LayoutChange = NO_CHANGE,
    ) -> tuple[list[float], RankPart[float]]:
        """The times and the part of the replica, the same on each of its ranks.

        Args:
            number: The number of the round.
            seconds: The times of the tasks on this rank.
            part: What this rank would send.
            has_loss: Whether this rank has computed losses; in a pipeline its last stage has.
            same_losses: Whether all ranks that compute losses have the same.
            change: Whether the layout of this rank has changed.
        """
        if self._within is None:
            return seconds, part
        values = np.zeros((self.size, len(part) + 2 + self._budget))
        values[self._place, : len(part)] = part
        values[self._place, len(part) :][:2] = has_loss, change.has_changed
        values[self._place, len(part) + 2 :][: len(seconds)] = seconds
        # Each row is 0 on all ranks but one, so that the sum has the rows of all.
        summed = torch.from_numpy(values).to(self._device)
        dist.all_reduce(summed, group=self._within)
        table = summed.cpu().numpy()
        parts: RankPart[Floats] = RankPart(*table[:, : len(part)].T)
        with_loss = table[:, len(part)] > 0.0
        slowest = int(parts.elapsed.argmax())
        times = table[slowest, len(part) + 2 :][: len(seconds)].tolist()
        # A loss that is not finite makes gradients so, on other ranks too: it comes first.
        kinds = np.where(parts.fault > 0.0, parts.fault % len(Fault), len(Fault))
        faulty = int(kinds.argmin())
        fault = int(parts.fault[faulty])
        self._disagreement = None
        if not fault:
            self._disagreement = self._disagreement_of(number, parts, with_loss, same_losses)
        if not fault and self._disagreement is None and table[:, len(part) + 1].any():
            self._disagreement = self._disagreement_of_partners(number, change)
        if self._disagreement is not None:
            fault = int(Fault.REPLICA)
        self._speaks = bool(fault) and faulty == self._place
        losses = parts.loss[with_loss]
        loss = 0.0
        if len(losses):
            loss = float(losses.mean())
        return times, RankPart(
            elapsed=float(parts.elapsed[slowest]),
            latency=float(parts.latency[slowest]),
            loss=loss,
            leaves=float(parts.leaves.max()),
            checksum=float(parts.checksum.max()),
            layout=zlib.crc32(parts.layout.tobytes()) & 0xFFFFFF,
            samples=float(parts.samples.max()),
            # Stages of a pipeline that have no loss may have no weight either.
            weight=float(parts.weight.max()),
            # Each rank has other parameters, so that no two places count alike.
            weights=float(parts.weights @ (1.0 + np.arange(self.size) / self.size)),
            fault=fault,
            first_batch=float(parts.first_batch.max()),
            second_batch=float(parts.second_batch.max()),
            passes=float(parts.passes.max()),
            accumulated=float(parts.accumulated.max()),
            changed_buffers=float(parts.changed_buffers.max()),
            older_rounds=float(parts.older_rounds.max()),
        )

    def leaves(self, leaves: bool) -> bool:
        """Whether the replica takes no tasks, since one of its ranks does not; all call it."""
        if self._within is None:
            return leaves
        flag = torch.tensor(float(leaves), device=self._device)
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._within)
        return bool(flag)

    @contextmanager
    def same_error(self) -> Iterator[None]:
        """Raise the error of one rank on all ranks, each of which has an error in the block.

        The rank in which a fault is knows the name of its parameter.
        """
        try:
            yield
        except (FloatingPointError, RuntimeError, ValueError) as error:
            raise (self.tell(error) or error) from None

    @contextmanager
    def any_error(self) -> Iterator[None]:
        """Raise the error of one rank on all ranks, of which some may have none in the block."""
        # What was said of an earlier round does not count.
        self._speaks = False
        self._disagreement = None
        error = None
        try:
            yield
        except (RuntimeError, ValueError) as raised:
            error = raised
        told = self.tell(error)
        if told is not None:
            raise told from None

    def tell(self, error: Exception | None) -> Exception | None:
        """The error for all ranks, all of which call it.

        Args:
            error: The error of this rank; None if it raises another one, which made it fail.
        """
        if self._within is None:
            return error
        answer = (not self._speaks, self._index, self._disagreement or error)
        answers: list[Any] = [None] * self._number_of_ranks
        dist.all_gather_object(answers, answer)
        errors = [(silent, index, error) for silent, index, error in answers if error is not None]
        return min(errors, key=lambda item: item[:2], default=(True, 0, None))[2]

    def _differing(self, number: int, field: str) -> RuntimeError:
        """The error where the ranks of this replica differ in a key of ``AGREEMENTS``."""
        return RuntimeError(
            f"round {number}: {AGREEMENTS[field].disagreement}; the ranks of the replica"
            f" {self.name} differ. The step is not taken. {AGREEMENTS[field].cure}",
        )

    def _disagreement_of_partners(self, number: int, change: LayoutChange) -> RuntimeError | None:
        """The error where layouts of some ranks that sum together have changed, not of all.

        All ranks of the replica call it, where the layout of one of them has changed.
        """
        changes: list[Any] = [None] * self.size
        dist.all_gather_object(changes, (dist.get_rank(), change), group=self._within)
        has_changed = {rank: each.has_changed for rank, each in changes}
        alike = all(
            has_changed[rank] == each.has_changed
            for _, each in changes
            for rank in each.partners & has_changed.keys()
        )
        return None if alike else self._differing(number, "layout")

    def _disagreement_of(
        self, number: int, parts: RankPart[Floats], with_loss: Any, same_losses: bool
    ) -> Exception | None:
        """What the ranks of this replica should have in common, and do not."""
        for field in ("checksum", "samples", "older_rounds"):
            values = getattr(parts, field)
            if len(set(values[values > 0.0])) > 1:
                return self._differing(number, field)
        if not with_loss.any():
            return None
        losses = parts.loss[with_loss]
        with np.errstate(invalid="ignore"):
            # What is not finite and let through is not compared.
            apart = same_losses and np.ptp(losses) > _LOSS_TOLERANCE * abs(losses.mean())
        if apart:
            return RuntimeError(
                f"round {number}: the ranks of the replica {self.name} have different losses for"
                " the same tasks. The step is not taken. Seed torch alike on the ranks of a"
                " replica, or give TorchAllocator(keyed_noise=True), and let each of them compute"
                " all samples of its share; a dimension that divides samples is data parallel",
            )
        # In a pipeline, stages without a loss may have no weight, but no other one.
        weighted = parts.passes == Passes.WEIGHTED
        tell = with_loss | weighted
        if np.ptp(parts.weight[tell]) > 0.0 or np.ptp(parts.passes[tell]) > 0.0:
            return ValueError(
                f"round {number}: the ranks of the replica {self.name} gave different weights for"
                " the same tasks. The step is not taken. Give share.backward the weight of the"
                " whole batch on each of them",
            )
        return None


def alone(ranks: Ranks, rank: int, budget: int) -> Replica:
    """The replica of a rank that has the whole model.

    Args:
        ranks: The ranks over which gradients are summed.
        rank: The number of this rank in the default group.
        budget: The number B of tasks of a round.
    """
    name = ranks.names[ranks.rank]
    return Replica([rank], None, ranks.rank, name, ranks.names, ranks.device, budget)


def quorum_and_replica(
    manager: Any,
    group: dist.ProcessGroup | None,
    mesh: DeviceMesh | None,
    name: str | None,
    configuration: Mapping[str, Any],
    load: Callable[[Any], None],
    state: Callable[[], Any],
) -> tuple[Ranks, Replica]:
    """The replicas of a quorum of torchft, and the replica of this process.

    Args:
        manager: As for ``QuorumRanks``, like ``name``, ``load`` and ``state``.
        group: None.
        mesh: None.
        configuration: What must be the same on all replicas, by name, with the budget.

    Raises:
        ValueError: For a group or a mesh beside the manager.
    """
    if group is not None or mesh is not None:
        raise ValueError(
            "give TorchAllocator a group, a mesh or a manager, which has its own group",
        )
    ranks = QuorumRanks(manager, name, configuration, load, state)
    return ranks, alone(ranks, 0, configuration["budget"])


def ranks_and_replica(
    group: dist.ProcessGroup | None,
    mesh: DeviceMesh | None,
    name: str | None,
    budget: int,
    configuration: Mapping[str, Any],
) -> tuple[Ranks, Replica]:
    """The ranks over which gradients are summed, and the replica of this rank.

    Args:
        group: As for ``TorchAllocator``, like ``mesh`` and ``name``.
        mesh: In place of ``group``; then all ranks of the default group call this.
        name: The name of this rank.
        budget: The number B of tasks of a round.
        configuration: What must be the same on all ranks, by name.

    Raises:
        RuntimeError: If there is no process group.
        ValueError: For a group and a mesh, a group that is one dimension of a mesh with others, and
            a mesh without a data-parallel dimension; on every rank if the mesh does not fit the
            ranks, or they differ in the configuration.
    """
    if mesh is None:
        _check_group(group)
        ranks = GroupRanks(group, name, configuration)
        return ranks, alone(ranks, dist.get_rank(), budget)
    if group is not None:
        raise ValueError("group and mesh exclude each other: give one of them")
    column = tuple(_data_parallel(mesh).mesh.flatten().tolist())
    rank = dist.get_rank()
    rank_name = default_name(rank) if name is None else name
    member = _Member(rank, column, rank_name, json.dumps(dict(configuration), default=str))
    # All ranks know of all others before anything is refused, so that all raise the same error.
    members: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(members, member)
    rank_names = [f"{member.name} (rank {member.rank})" for member in members]
    columns = sorted({member.column for member in members})
    _check_columns(columns, members)
    check_configurations(rank_names, [json.loads(member.configuration) for member in members])
    whole_number("budget", budget)
    replicas = [list(places) for places in zip(*columns, strict=True)]
    index, own_ranks = next(
        (index, places) for index, places in enumerate(replicas) if rank in places
    )
    replica_name = members[own_ranks[0]].name
    ranks = GroupRanks(
        _group_of(rank, columns), replica_name, configuration, everybody=rank_names, place=rank
    )
    within = _group_of(rank, replicas) if len(columns) > 1 else None
    return ranks, Replica(own_ranks, within, index, replica_name, rank_names, ranks.device, budget)


def _check_group(group: Any) -> None:
    """Refuse a dimension of a mesh as a group, in which ranks of one replica would differ."""
    description = str(getattr(group, "group_desc", ""))
    if description.startswith("mesh_") and dist.get_world_size(group) < dist.get_world_size():
        dimension = description.removeprefix("mesh_")
        raise ValueError(
            f"group is the dimension {dimension} of a DeviceMesh that has others, whose ranks need"
            f' the same share: give TorchAllocator(mesh=mesh["{dimension}"]) in place of group, or'
            " a group of torch.distributed.new_group for a training of these ranks alone",
        )


def _data_parallel(mesh: Any) -> DeviceMesh:
    """The data-parallel dimensions of a mesh.

    Raises:
        ValueError: If there are none, or the mesh does not say which ones they are.
    """
    if not isinstance(mesh, DeviceMesh):
        raise ValueError(  # noqa: TRY004
            f'mesh must be a DeviceMesh of torch, such as mesh["dp"], not {short(mesh)}',
        )
    names = mesh.mesh_dim_names or ()
    chosen = tuple(name for name in names if name.startswith(_DATA_PARALLEL_PREFIX))
    if mesh.ndim == 1 or len(chosen) == mesh.ndim:
        return mesh
    if not chosen:
        dimensions = ", ".join(names) or "without names"
        raise ValueError(
            f"none of the dimensions of mesh ({dimensions}) has a name that begins with"
            f' "{_DATA_PARALLEL_PREFIX}", so that it is not known over which gradients are summed:'
            ' give the data-parallel one, such as mesh["replicate"]',
        )
    return mesh[chosen]


def _check_columns(columns: Sequence[tuple[int, ...]], members: Sequence[_Member]) -> None:
    everybody = sorted(rank for column in columns for rank in column)
    covered = everybody == list(range(len(members)))
    if not covered or any(member.rank not in member.column for member in members):
        raise ValueError(
            f"mesh must have each of the {len(members)} ranks of the default process group once,"
            f" and its data-parallel groups are {short(columns)}: make the mesh of all ranks",
        )
    if any(list(column) != sorted(column) for column in columns):
        raise ValueError(
            "the ranks of mesh must ascend along its data-parallel dimension, and its data-parallel"
            f" groups are {short(columns)}: make the mesh with init_device_mesh",
        )


def _group_of(rank: int, groups: Sequence[Sequence[int]]) -> dist.ProcessGroup:
    """The process group of this rank among groups that have all ranks, made by all of them."""
    world: Any = dist.group.WORLD
    # Torch gives a new group the default timeout, not the timeout of the group that holds it.
    timeout = world._get_backend(world._device_types[0]).options._timeout
    made = [dist.new_group(list(ranks), timeout=timeout) for ranks in groups]
    chosen: dist.ProcessGroup = next(
        group for group, ranks in zip(made, groups, strict=True) if rank in ranks
    )
    return chosen
