"""The buffers of models during a round: what its tasks have changed, and how to undo it."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from ata_gym.cluster.torchrun.buffers.kinds import Kind, bits_of, kind_of, opacity
from ata_gym.cluster.torchrun.dtensors import local_part
from ata_gym.cluster.torchrun.forms import copy_all

_LARGE = 2**16
"""The number of elements from which on a buffer, such as a mask, is not read in every round."""


class _Before(NamedTuple):
    """A buffer as it was."""

    tensor: Tensor | None
    version: tuple[int, int]
    """The version of the tensor, which operations in place raise, and the address of its memory,
    which differs after ``tensor.data = ...``; 0 where there is none."""
    copy: Tensor | None
    persistent: bool

    def is_same(self, tensor: Tensor) -> bool:
        """Whether a buffer is this tensor still, and no operation on it has changed it."""
        return tensor is self.tensor and _version(tensor) == self.version


class BufferSnapshot:
    """The buffers of modules as they are now, to find out later what has changed and to undo it.

    A buffer has changed if it is another tensor with other values, or an operation changed it in
    place, which raises its version. A change through ``.data`` raises none, so all others are
    compared bit by bit; large ones, such as masks, only where that is asked for.

    Args:
        modules: The modules by their names. A buffer's name is the name of its module, a dot, and
            its name in the module.
        previous: A snapshot that is of no more use, whose copies serve again.
        read: The names of the large buffers that are read; None for all of them.
    """

    @torch.no_grad()
    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        previous: Self | None,
        read: Collection[str] | None,
    ) -> None:
        self._modules = dict(modules)
        self._read = read
        self.before: dict[str, _Before] = {}
        """The buffers as they were, by name."""
        old = {} if previous is None else previous.before
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for path, module in self._modules.items():
            for key, tensor in module._buffers.items():
                name = _joined(path, key)
                copy = None
                if tensor is not None:
                    copy = self._kept_copy(name, tensor, old.get(name))
                    if copy is None:
                        copy = _cloned(tensor)
                    elif self._is_read(name, tensor) or not old[name].is_same(tensor):
                        targets.append(copy)
                        sources.append(local_part(tensor))
                self.before[name] = _Before(
                    tensor, _version(tensor), copy, _is_persistent(module, key)
                )
        # In one call, which on a GPU is one launch.
        if targets:
            copy_all(targets, sources)

    def _kept_copy(self, name: str, tensor: Tensor, old: _Before | None) -> Tensor | None:
        """The earlier copy, as memory for the new copy; None if it does not fit."""
        if old is None or old.copy is None or opacity(tensor) or opacity(old.copy):
            return None
        is_alike = Kind.from_tensor(tensor) == Kind.from_tensor(old.copy)
        if is_alike and old.copy.device == local_part(tensor).device:
            return old.copy
        return None

    def _is_read(self, name: str, tensor: Tensor) -> bool:
        return self._read is None or name in self._read or tensor.numel() < _LARGE

    def current(self) -> dict[str, Tensor | None]:
        """The buffers that the modules have by now, by name."""
        return {
            _joined(path, key): tensor
            for path, module in self._modules.items()
            for key, tensor in module._buffers.items()
        }

    def is_persistent(self, name: str) -> bool:
        """Whether a buffer is, or was, in the state of its module."""
        path, key = _split(name)
        if key in self._modules[path]._buffers:
            return _is_persistent(self._modules[path], key)
        return self.before[name].persistent

    @torch.no_grad()
    def changed(self, current: Mapping[str, Tensor | None]) -> set[str]:
        """The names of the buffers that are new, are gone, or have other values than before.

        Args:
            current: The buffers that the modules have by now, by name.
        """
        names: set[str] = set()
        compared: list[tuple[str, Tensor, Tensor]] = []
        for name in self.before.keys() | current.keys():
            before = self.before.get(name)
            tensor = current.get(name)
            if before is None or before.tensor is None or tensor is None:
                if before is None or before.tensor is not tensor:
                    names.add(name)
            elif tensor is before.tensor and not before.is_same(tensor):
                # Operations write little that they do not change.
                names.add(name)
            elif opacity(tensor) or before.copy is None:
                if tensor is not before.tensor:
                    names.add(name)
            elif Kind.from_tensor(tensor) != Kind.from_tensor(before.copy):
                names.add(name)
            elif not before.is_same(tensor) or self._is_read(name, tensor):
                compared.append((name, tensor, before.copy))
        return names | _differing(compared)

    @torch.no_grad()
    def restore(self) -> None:
        """Give the modules the buffers of before, with their values of before."""
        for name in self.changed(self.current()):
            path, key = _split(name)
            module = self._modules[path]
            before = self.before.get(name)
            if before is None:
                delattr(module, key)
                continue
            if key not in module._buffers:
                module.register_buffer(key, None, persistent=before.persistent)
            module._buffers[key] = before.tensor
            if before.tensor is not None and before.copy is not None:
                _write(module, key, before.copy)

    def release(self) -> None:
        """Let the modules go; the copies are kept for the next snapshot."""
        self._modules = {}

    @torch.no_grad()
    def write(self, values: Mapping[str, tuple[Tensor, bool]]) -> None:
        """Give buffers new values, in place if possible.

        Args:
            values: The values, and whether a buffer that is new on this rank is persistent, by
                name.
        """
        if not values:
            return
        # Modules that have a tensor together go on to have it together if both get its value.
        places: dict[int, list[str]] = defaultdict(list)
        for name, tensor in self.current().items():
            places[id(tensor)].append(name)
        for name, (value, persistent) in values.items():
            path, key = _split(name)
            module = self._modules.get(path)
            if module is None:
                continue
            if key not in module._buffers:
                module.register_buffer(key, None, persistent=persistent)
            sharers = places[id(module._buffers[key])]
            # Only values of shared tensors are compared, since that takes long on large ones.
            if len(sharers) > 1:
                all_get_it = all(_is_equal(values.get(sharer), value) for sharer in sharers)
                if not all_get_it:
                    module._buffers[key] = None
            _write(module, key, value)


def _joined(path: str, key: str) -> str:
    """The name of a buffer of the module with this path."""
    return f"{path}.{key}" if path else key


def _split(name: str) -> tuple[str, str]:
    """The path of a buffer's module, and its name there."""
    path, _, key = name.rpartition(".")
    return path, key


def path_of(name: str) -> str:
    """The path of the module of a buffer of this name."""
    return _split(name)[0]


def shown(name: str) -> str:
    """A buffer's name as its model knows it, for an error.

    Example:
        >>> shown("0.norm@2.running_mean"), shown("@3.mask")
        ('0.norm.running_mean', 'mask')
    """
    return re.sub(r"@\d+\.", ".", name).removeprefix(".")


def _is_persistent(module: nn.Module, key: str) -> bool:
    # Modules of TorchScript do not have the set.
    return key not in getattr(module, "_non_persistent_buffers_set", ())


def _version(tensor: Tensor | None) -> tuple[int, int]:
    if tensor is None:
        return 0, 0
    # A tensor that was made in inference mode has no version.
    version = 0 if tensor.is_inference() else tensor._version
    try:
        address = local_part(tensor).data_ptr()
    except RuntimeError:
        # It has no memory of its own, such as a sparse tensor.
        address = 0
    return version, address


def _cloned(tensor: Tensor) -> Tensor | None:
    """A copy of a tensor in memory of its own; None if it cannot be read, and so not changed."""
    try:
        return local_part(tensor.detach()).clone()
    except NotImplementedError:
        return None


def _write(module: nn.Module, key: str, value: Tensor) -> None:
    """Give a buffer a value, in place if possible."""
    tensor = module._buffers[key]
    if tensor is not None and kind_of(tensor) == Kind.from_tensor(value):
        try:
            local_part(tensor).copy_(value)
        except RuntimeError:
            # An expanded tensor, or one that was made in inference mode, cannot be changed.
            pass
        else:
            return
    module._buffers[key] = value.to(_device(module, value.device), copy=True)


def _is_equal(other: tuple[Tensor, bool] | None, value: Tensor) -> bool:
    """Whether a buffer that has its tensor together with another one gets the same value."""
    if other is None or Kind.from_tensor(other[0]) != Kind.from_tensor(value):
        return False
    return other[0] is value or not _differing([("", other[0], value)])


def _differing(pairs: Iterable[tuple[str, Tensor, Tensor]]) -> set[str]:
    """The names of the pairs of tensors that differ in a bit."""
    results: dict[torch.device, list[tuple[str, Tensor]]] = {}
    for name, tensor, copy in pairs:
        first = bits_of(local_part(tensor))
        second = bits_of(copy)
        results.setdefault(first.device, []).append((name, (first != second).any()))
    names: set[str] = set()
    # A device is waited for once.
    for named in results.values():
        flags = torch.stack([flag for _, flag in named]).tolist()
        names |= {name for (name, _), flag in zip(named, flags, strict=True) if flag}
    return names


def _device(module: nn.Module, default: torch.device) -> torch.device:
    """The device of a module's tensors."""
    tensors = (*module.parameters(), *module.buffers())
    return next((tensor.device for tensor in tensors), default)
