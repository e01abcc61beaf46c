"""A network over workers in compiled loops: what ``ata_gym.rl.network.RecurrentWorkersNet`` computes, without torch."""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.interface.worker_features import OF_WORKER, WIDTH, Features
from ata_gym.typing import Floats32, Ints
from ata_gym.utils.atomic import check_source, write_whole
from ata_gym.utils.compiled import kernel, phase
from ata_gym.utils.extras import require
from ata_gym.utils.ranges import Within
from ata_gym.utils.sealed import checksum

_CHECKSUM = "checksum"
_AVAILABLE, _UNTRIED = OF_WORKER.index("available"), OF_WORKER.index("untried")

_ONE = np.float32(1.0)


@phase
def _add_product(total: Any, row: Any, matrix: Any) -> None:
    for k in range(len(row)):
        x = row[k]
        for h in range(len(total)):
            total[h] += x * matrix[k, h]


@phase
def _remember(memory: Any, given: Any, kept: Any, code: Any) -> None:
    """The next memory of a worker (h,), from what its gates get from the features and from the memory, (3 h,) each."""
    hidden = len(memory)
    for h in range(hidden):
        reset = _ONE / (_ONE + math.exp(-(given[h] + kept[h])))
        keep = _ONE / (_ONE + math.exp(-(given[hidden + h] + kept[hidden + h])))
        new = math.tanh(given[2 * hidden + h] + reset * kept[2 * hidden + h])
        code[h] = new + keep * (memory[h] - new)


@kernel("(n,f),(n,h),(f,t),(h,t),(t),(t),(h,g),(c,g),(g),(g),(f),(),(),()->(n),(n,h)")
def _numbers(
    features: Floats32, memory: Floats32, gates: Floats32, kept_gates: Floats32, bias: Floats32, kept_bias: Floats32,
    own: Floats32, around: Floats32, first_bias: Floats32, last: Floats32, direct: Floats32, last_bias: Floats32,
    available: Ints, untried: Ints, out: Floats32, codes: Floats32,
) -> None:  # fmt: skip
    n, width, hidden, inner = len(features), features.shape[1], memory.shape[1], len(last)
    context = np.zeros(2 * hidden, np.float32)
    context[hidden:] = -_ONE
    given, kept = np.empty(3 * hidden, np.float32), np.empty(3 * hidden, np.float32)
    there, model = np.float32(0.0), -1
    same_as = np.arange(n)  # most of many workers were never tried, and look alike: one of them is computed
    for i in range(n):
        code, weight = codes[i], features[i, available[0]]
        if model >= 0 and np.array_equal(features[i], features[model]) and np.array_equal(memory[i], memory[model]):
            same_as[i] = model
            code[:] = codes[model]
        else:
            given[:] = bias
            kept[:] = kept_bias
            _add_product(given, features[i], gates)
            _add_product(kept, memory[i], kept_gates)
            _remember(memory[i], given, kept, code)
            if features[i, untried[0]] > 0:
                model = i
        there += weight
        for h in range(hidden):
            context[h] += weight * code[h]
            context[hidden + h] = max(context[hidden + h], weight * (code[h] + _ONE) - _ONE)
    share = _ONE / max(there, _ONE)
    for h in range(hidden):
        context[h] *= share
    common = first_bias.copy()
    _add_product(common, context, around)
    layer = np.empty(inner, np.float32)
    for i in range(n):
        if same_as[i] != i:
            out[i] = out[same_as[i]]
            continue
        layer[:] = common
        _add_product(layer, codes[i], own)
        total = last_bias[0]
        for g in range(inner):
            total += max(layer[g], np.float32(0.0)) * last[g]
        for k in range(width):
            total += features[i, k] * direct[k]
        out[i] = total


class NetworkMemory(NamedTuple):
    """What the network remembers of the workers of E rows."""

    codes: Annotated[Floats32, Within(-1.0, 1.0)]  # (E, n, h)


class Network(NamedTuple):
    """The weights of a ``RecurrentWorkersNet``; each layer maps its first axis to its last.

    The three gates of a worker are side by side: reset, update and the new memory.
    """

    gates: Floats32  # (20, 3 h), from the features
    kept_gates: Floats32  # (h, 3 h), from the memory
    bias: Floats32  # (3 h,)
    kept_bias: Floats32  # (3 h,)
    own: Floats32  # (h, g), from a worker's code
    around: Floats32  # (2 h, g), from the context
    first_bias: Floats32  # (g,)
    last: Floats32  # (g,)
    direct: Floats32  # (20,)
    last_bias: Floats32  # ()

    @classmethod
    def of(cls, tensors: Mapping[str, NDArray[Any]]) -> "Network":
        """The network of a ``RecurrentWorkersNet``, whose tensors have the names that torch gives them.

        ValueError if some are missing, have wrong shapes, or are not finite.
        """
        try:
            given = [np.asarray(tensors[name], np.float32).T for name in _NAMES]
        except KeyError as error:
            raise ValueError(f"these are no weights of a RecurrentWorkersNet: {error} is missing") from None
        gates, kept_gates, bias, kept_bias, first, first_bias, last, last_bias, direct = given
        hidden, inner = len(kept_gates), len(first_bias)
        t = 3 * hidden
        network = cls(
            gates, kept_gates, bias, kept_bias, first[:hidden], first[hidden:], first_bias, last.ravel(),
            direct.ravel(), last_bias.reshape(()) if last_bias.size == 1 else last_bias,
        )  # fmt: skip
        shapes = [(WIDTH, t), (hidden, t), (t,), (t,), (hidden, inner), (2 * hidden, inner), (inner,), (inner,)]
        for name, part, shape in zip(cls._fields, network, [*shapes, (WIDTH,), ()], strict=True):
            if part.shape != shape or not np.isfinite(part).all():
                raise ValueError(
                    f"these are no weights of RecurrentWorkersNet: {name} must be finite, of shape {shape}"
                )
        return cls._make(np.asarray(part, order="C") for part in network)

    def begin(self, rows: int, n: int) -> NetworkMemory:
        """The memory of rows that have seen nothing."""
        return NetworkMemory(np.zeros((rows, n, len(self.kept_gates)), np.float32))

    def __call__(self, features: Features, memory: NetworkMemory) -> tuple[Floats32, NetworkMemory]:
        """A number for each worker, shape (E, n), from features of shape (E, n, 20), and the memory after them."""
        numbers, codes = _numbers(features, memory.codes, *self, np.int64(_AVAILABLE), np.int64(_UNTRIED))
        return numbers, NetworkMemory(codes)


_NAMES = (
    *(f"remember.{part}_l0" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
    *("of_worker.0.weight", "of_worker.0.bias", "of_worker.2.weight", "of_worker.2.bias", "direct.weight"),
)


def write_network(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write the tensors of a ``RecurrentWorkersNet``, by torch's names, as safetensors with a checksum, or nothing."""
    safetensors = require("safetensors.numpy", extra="rl", purpose="A learned policy")
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    write_whole(path, lambda part: safetensors.save_file(arrays, part, metadata={_CHECKSUM: checksum(arrays)}))


@cache
def read_network(path: Path) -> Network:
    """The network in a file that :func:`write_network` wrote; nothing in it is run.

    ValueError if it holds no ``RecurrentWorkersNet``, or other weights than were written.
    """
    safetensors = require("safetensors", extra="rl", purpose="A learned policy")
    try:
        check_source(path)
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
            recorded = (file.metadata() or {}).get(_CHECKSUM)
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ValueError(f"cannot read the weights in {path}: {error}") from error
    if recorded != checksum(tensors):
        wrong = "have no checksum" if recorded is None else "are damaged: their checksum is that of others"
        raise ValueError(
            f"the weights in {path} {wrong}; take another copy, or write them with ata-gym pretrain or write_network"
        )
    return Network.of(tensors)
