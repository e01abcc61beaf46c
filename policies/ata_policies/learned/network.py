"""A network over workers in compiled loops: what ``ata_gym.rl.network.WorkersNet`` computes, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.interface.worker_features import OF_WORKER, WIDTH, Features
from ata_gym.utils.atomic import check_source, write_whole
from ata_gym.utils.compiled import gufunc
from ata_gym.utils.extras import require
from ata_gym.utils.sealed import checksum

_CHECKSUM = "checksum"
_AVAILABLE = OF_WORKER.index("available")
Weights = NDArray[np.float32]

_TYPES = "float32[:,:]," * 3 + "float32[:]," + "float32[:,:]," * 2 + "float32[:]," + "float32[:,:]," + "float32[:],"


@gufunc(
    f"void({_TYPES} int64, float32[:,:])",
    "(n,f),(f,o),(f,h),(h),(h,g),(c,g),(g),(g,o),(o),()->(n,o)",
)
def _numbers(
    features: Any, direct: Any, encode: Any, encode_bias: Any, own: Any, around: Any, first_bias: Any, last: Any,
    last_bias: Any, available: Any, out: Any,
) -> None:  # fmt: skip
    n, width, hidden = len(features), features.shape[1], encode.shape[1]
    inner, outputs = own.shape[1], last.shape[1]
    codes = np.empty((n, hidden), np.float32)
    context = np.zeros(2 * hidden, np.float32)
    there = np.float32(0.0)
    for i in range(n):
        code = codes[i]
        code[:] = encode_bias
        for k in range(width):
            x = features[i, k]
            for h in range(hidden):
                code[h] += x * encode[k, h]
        weight = features[i, available]
        there += weight
        for h in range(hidden):
            code[h] = max(code[h], np.float32(0.0))
            context[h] += weight * code[h]
            context[hidden + h] = max(context[hidden + h], weight * code[h])
    share = np.float32(1.0) / max(there, np.float32(1.0))
    for h in range(hidden):
        context[h] *= share
    common = first_bias.copy()
    for k in range(2 * hidden):
        for g in range(inner):
            common[g] += context[k] * around[k, g]
    layer = np.empty(inner, np.float32)
    for i in range(n):
        layer[:] = common
        for h in range(hidden):
            x = codes[i, h]
            for g in range(inner):
                layer[g] += x * own[h, g]
        for o in range(outputs):
            total = last_bias[o]
            for g in range(inner):
                total += max(layer[g], np.float32(0.0)) * last[g, o]
            for k in range(width):
                total += features[i, k] * direct[k, o]
            out[i, o] = total


class Network(NamedTuple):
    """The weights of a ``WorkersNet`` without the part for the row; each layer maps its first axis to its last."""

    direct: Weights  # (15, k)
    encode: Weights  # (15, h)
    encode_bias: Weights  # (h,)
    own: Weights  # (h, g), from a worker's code
    around: Weights  # (2 h, g), from the context
    first_bias: Weights  # (g,)
    last: Weights  # (g, k)
    last_bias: Weights  # (k,)

    @classmethod
    def of(cls, tensors: Mapping[str, NDArray[Any]]) -> Network:
        """The network of a ``WorkersNet``, whose tensors have the names that torch gives them.

        ValueError if some are missing, have wrong shapes, or are not finite.
        """
        try:
            given = {name: np.asarray(tensors[name], np.float32) for name in _NAMES}
        except KeyError as error:
            raise ValueError(f"these are no weights of a WorkersNet: {error} is missing") from None
        encode, first, last, direct = (given[name].T for name in _NAMES[:4])
        hidden, inner, outputs = encode.shape[1], first.shape[1], last.shape[1]
        network = cls(
            direct, encode, given["encode.bias"], first[:hidden], first[hidden:], given["of_worker.0.bias"], last,
            given["of_worker.2.bias"],
        )  # fmt: skip
        shapes = [(WIDTH, outputs), (WIDTH, hidden), (hidden,), (hidden, inner), (2 * hidden, inner), (inner,)]
        for name, part, shape in zip(cls._fields, network, [*shapes, (inner, outputs), (outputs,)], strict=True):
            if part.shape != shape or not np.isfinite(part).all():
                raise ValueError(f"these are no weights of a WorkersNet: {name} must be finite, of shape {shape}")
        return cls._make(np.ascontiguousarray(part) for part in network)

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """Numbers for each worker, shape (..., n, k), from features of shape (..., n, 15)."""
        numbers: NDArray[np.float32] = _numbers(features, *self, np.int64(_AVAILABLE))
        return numbers


_NAMES = (
    "encode.weight", "of_worker.0.weight", "of_worker.2.weight", "direct.weight",
    "encode.bias", "of_worker.0.bias", "of_worker.2.bias",
)  # fmt: skip


def write_network(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write the tensors of a ``WorkersNet``, by torch's names, as safetensors with a checksum, whole or not at all."""
    safetensors = require("safetensors.numpy", extra="rl", purpose="A learned policy")
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    write_whole(path, lambda part: safetensors.save_file(arrays, part, metadata={_CHECKSUM: checksum(arrays)}))


@cache
def read_network(path: Path) -> Network:
    """The network in a file that :func:`write_network` wrote; nothing in it is run.

    ValueError if it holds no ``WorkersNet``, or other weights than were written.
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
