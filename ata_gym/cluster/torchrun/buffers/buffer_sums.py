"""The same buffers on all ranks after a round: means over their tasks, or from one rank."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ata_gym.cluster.torchrun.buffers.kinds import kind_of
from ata_gym.cluster.torchrun.buffers.layout import Layout
from ata_gym.cluster.torchrun.buffers.snapshot import BufferSnapshot
from ata_gym.cluster.torchrun.buffers.tables import Table, check_alike, decide
from ata_gym.cluster.torchrun.forms import Form
from ata_gym.cluster.torchrun.ranks.ranks import Ranks


class _Registry:
    """The modules of all models that had rounds with some ranks, with the same names on each.

    A model may run in the rounds of another one, also of another allocator, which changes its
    buffers there, such as a generator in the rounds of its discriminator.
    """

    def __init__(self) -> None:
        self.names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self.has_rounds = False
        self._repeats: Counter[str] = Counter()

    def add(self, modules: Mapping[nn.Module, str]) -> None:
        """Take note of modules, with their paths, whose round has ended well on all ranks."""
        self.has_rounds = True
        for module, path in modules.items():
            self.names[module] = self.name(path)
            self._repeats[path] += 1

    def name(self, path: str) -> str:
        """The name that a module with this path would have."""
        # Modules of other models may have had this path, too.
        count = self._repeats[path]
        return f"{path}@{count + 1}" if count else path


_REGISTRIES: WeakKeyDictionary[Any, dict[tuple[str, ...], _Registry]] = WeakKeyDictionary()
"""The registries of ranks that stay, by the default process group and their names."""


class BufferSums:
    """Gives all ranks the same buffers after a round.

    Floating-point buffers that a rank has changed become the mean over the ranks, weighted by their
    tasks. Other buffers become the buffers of one rank, which is the first rank with tasks that has
    changed them. So do vectors of length 1, such as in ``spectral_norm`` or a queue of normalized
    features, since a mean of them is shorter than 1. A buffer that no rank has changed stays as it
    is. So does one outside the state of the model (``persistent=False``) whose shapes differ, such
    as a cache that grows.

    The buffers that changed before are sent with the gradient. Where a rank has changed others, and
    in rounds with a check, the ranks tell each other of all their buffers, and sum those that have
    changed in collectives of their own; from the next round on these are sent with the gradient.
    All models that these ranks had rounds with are looked after, also models of other allocators.

    Args:
        ranks: The ranks.
        budget: The number B of tasks of a round.
    """

    def __init__(self, ranks: Ranks, budget: int) -> None:
        self._ranks = ranks
        self._budget = budget
        self._registry = _Registry()
        self._layout = Layout({})
        self._snapshot = BufferSnapshot({}, None, ())
        self._current: dict[str, Tensor | None] = {}
        self._changed: set[str] = set()
        # The modules of the model that had no round yet, with their paths in it.
        self._new: dict[nn.Module, str] = {}

    def begin(self, paths: Mapping[nn.Module, str], *, is_checked: bool, is_first: bool) -> None:
        """Begin a round: keep copies of all buffers.

        Args:
            paths: The modules of the model of the round, with their paths in it.
            is_checked: Whether the ranks compare all that they know in it.
            is_first: Whether it is the first round of these ranks.
        """
        if is_first:
            # Ranks that come have not seen the rounds of those that stay.
            self._layout = Layout({})
            self._registry = _Registry()
        if not self._ranks.elastic:
            registries = _REGISTRIES.setdefault(dist.group.WORLD, {})
            self._registry = registries.setdefault(self._ranks.names, _Registry())
        self._is_checked = is_checked
        self._changed = set()
        known = dict(self._registry.names)
        self._new = {module: path for module, path in paths.items() if module not in known}
        names = known | {module: self._registry.name(path) for module, path in self._new.items()}
        self._own = {names[module] for module in paths}
        large_names = None
        if not is_checked:
            large_names = self._layout.values.keys()
        self._snapshot = BufferSnapshot(
            {name: module for module, name in names.items()},
            self._snapshot,
            large_names,
        )

    def restore(self) -> None:
        """Give the models the buffers with which the round began."""
        self._snapshot.restore()

    def end(self, *, kept: bool) -> None:
        """End the round.

        Args:
            kept: Whether it counts; otherwise the models get the buffers with which it began.
        """
        if kept:
            self._registry.add(self._new)
        else:
            self.restore()
        self._new = {}
        self._current = {}
        self._snapshot.release()

    def find_changes(self) -> bool:
        """Find what the tasks of this rank have changed.

        Returns:
            Whether that is more than is sent with the gradient.
        """
        self._current = self._snapshot.current()
        self._changed = self._snapshot.changed(self._current)
        if self._changed - self._layout.values.keys():
            return True
        return any(
            kind_of(self._current.get(name)) != value.kind
            for name, value in self._layout.values.items()
            if name in self._current or name in self._changed
        )

    @property
    def number_of_flags(self) -> int:
        """How many numbers ``flags`` has."""
        return 2 * len(self._layout.values)

    def flags(self, *, leads: bool) -> list[bool]:
        """What this rank tells of the buffers that are sent with the gradient.

        Args:
            leads: Whether it is the first rank with tasks.
        """
        changed = [name in self._changed for name in self._layout.values]
        return [*changed, *(leads and each for each in changed)]

    def forms(self, dtype: torch.dtype, device: torch.device) -> list[Form]:
        """The forms of what is sent with the gradient, for a message of this dtype and device."""
        return self._layout.forms(dtype, device)

    @torch.no_grad()
    def packed(self, forms: Sequence[Form], tasks: int, *, leads: bool) -> list[Tensor]:
        """What this rank sends with the gradient.

        Args:
            forms: The forms.
            tasks: The number of its tasks; 0 if they do not count.
            leads: Whether it is the first rank with tasks.
        """
        tensors = self._current if tasks else {}
        return self._layout.packed(forms, tensors, tasks, self._changed if leads else ())

    @torch.no_grad()
    def settle(
        self,
        number: int,
        tasks: int,
        flags: Sequence[float],
        sums: Sequence[Tensor],
        *,
        others_changed: bool,
    ) -> None:
        """Give all ranks the same buffers; nothing happens where a sum fails.

        Args:
            number: The number of the round.
            tasks: The number of this rank's tasks.
            flags: The sum of the flags of all ranks.
            sums: The sums of what all ranks sent with the gradient.
            others_changed: Whether a rank has changed more than that.

        Raises:
            RuntimeError: On every rank, if the models had different buffers as the round began.
            ValueError: On every rank, for a buffer that has no common value.
        """
        names = list(self._layout.values)
        changed = {name for name, count in zip(names, flags, strict=False) if count}
        sent = {name for name, count in zip(names, flags[len(names) :], strict=True) if count}
        # A buffer of one rank that the first rank with tasks has not changed, but another one has.
        lacking = any(
            not value.averaged and name in changed - sent
            for name, value in self._layout.values.items()
        )
        if self._is_checked or others_changed or lacking:
            values = self._exchanged(number, tasks)
        else:
            unpacked = self._layout.unpacked(sums, self._budget)
            values = {name: value for name, value in unpacked.items() if name in changed}
        self._snapshot.write(
            {name: (value, self._layout.values[name].persistent) for name, value in values.items()}
        )

    def _exchanged(self, number: int, tasks: int) -> dict[str, Tensor]:
        """Let the ranks tell each other of their buffers, and sum those that have changed.

        Returns:
            Their values; none where a sum fails.
        """
        compared: Collection[str] = ()
        if self._is_checked:
            compared = self._own
        table = Table.from_snapshot(tasks, self._snapshot, self._current, self._changed, compared)
        texts = self._ranks.exchanged(table.text())
        if self._ranks.failed:
            return {}
        tables = [Table.from_text(text) for text in texts]
        if self._is_checked:
            # New modules may have run in rounds that did not look after them.
            new = self._new.values() if self._registry.has_rounds else ()
            names = {self._registry.name(path) for path in new}
            check_alike(number, self._ranks.names, tables, names)
        decisions = decide(number, tables)
        own = [name for name, decision in decisions.items() if decision.rank == self._ranks.rank]
        values = {name: decision.value for name, decision in decisions.items()}
        layout = Layout(values)
        tensors = self._current if tasks else {}
        forms = layout.forms(torch.float32, self._ranks.device)
        sums = layout.packed(forms, tensors, tasks, own)
        for summed in sums:
            self._ranks.all_reduce(summed).wait()
        if self._ranks.failed:
            return {}
        if not self._is_checked:
            # What did not change in this round may change again in the next one.
            changed_now: set[str] = set()
            for each in tables:
                changed_now |= {name for name, entry in each.entries.items() if entry.changed}
            earlier = self._layout.values.items()
            values |= {name: value for name, value in earlier if name not in changed_now}
        # All ranks come here, also one whose round fails later on.
        self._layout = Layout(values)
        return layout.unpacked(sums, self._budget)
