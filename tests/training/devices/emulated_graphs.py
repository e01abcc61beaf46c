"""CUDA graphs emulated on a CPU: what is captured is a list of torch's operations with the tensors they used."""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

LOOKS_AT_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
GARBAGE = 0xFF  # as bytes: a float of any format is NaN


class EmulatedGraphs:
    """In place of ``CudaGraphs``: captures and replays on a CPU, with the same bits as the computation itself.

    As with CUDA, a capture runs nothing: what it wrote into tensors that were there before is undone, what it made is
    garbage until the first replay, and torch's generator stays as it was. A replay reads and writes the memory of the
    capture, whatever its tensors are called or hold by then, and draws from torch's generator anew. A computation that
    looks at values is refused.
    """

    def prepare(self, compute):
        return compute()

    def capture(self, compute):
        recording = _Recording()
        with torch.random.fork_rng(devices=[]), recording:
            result = compute()
        recording.undo()
        return result, recording.replay


class Counted:
    """Another way of capturing, whose uses are counted."""

    def __init__(self, capturing):
        self.capturing, self.prepared, self.captured, self.replayed = capturing, 0, 0, 0

    def prepare(self, compute):
        self.prepared += 1
        return self.capturing.prepare(compute)

    def capture(self, compute):
        result, replay = self.capturing.capture(compute)
        self.captured += 1

        def counted():
            self.replayed += 1
            replay()

        return result, counted


class _Recording(TorchDispatchMode):
    """Runs operations and remembers them."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.made = {}  # by address, the memory of results
        self.there = {}  # by address, memory that was there before, and a copy of it

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if LOOKS_AT_VALUES & set(func.tags):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        kwargs = kwargs or {}
        before = {memory.data_ptr(): memory for memory in map(_memory, _tensors((args, kwargs)))}
        for place, memory in before.items():  # batch norm writes into buffers that its schema does not name
            if place not in self.made and place not in self.there:
                self.there[place] = memory, memory.clone()
        results = func(*args, **kwargs)
        for tensor in _tensors(results):
            memory = _memory(tensor)
            if memory.data_ptr() not in before:
                self.made[memory.data_ptr()] = memory
        self.calls.append((func, *tree_map_only(Tensor, Tensor.detach, (args, kwargs, results))))
        return results

    def undo(self):
        for memory, copy in self.there.values():
            memory.copy_(copy)
        for memory in self.made.values():
            memory.fill_(GARBAGE)

    @torch.no_grad()
    def replay(self):
        for func, args, kwargs, results in self.calls:
            again = func(*args, **kwargs)
            for old, new in zip(_tensors(results), _tensors(again), strict=True):
                if _memory(old).data_ptr() != _memory(new).data_ptr():
                    old.copy_(new)


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _memory(tensor):
    return tensor.untyped_storage()
