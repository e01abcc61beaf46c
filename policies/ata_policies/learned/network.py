"""A network over workers in compiled loops.

It computes what ``ata_gym.rl.network.RecurrentWorkersNet`` computes, without torch.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ata_gym.envs.interface.worker_features import WIDTH, WORKER_FEATURES, Features
from ata_gym.typing import Floats32, Ints
from ata_gym.utils.compiled import copy, kernel, phase
from ata_gym.utils.files.atomic import check_source, write_whole
from ata_gym.utils.files.sealed import array_checksum
from ata_gym.utils.ranges import Within

_CHECKSUM = "checksum"
_AVAILABLE = WORKER_FEATURES.index("available")
_UNTRIED = WORKER_FEATURES.index("untried")

_FLOAT32_1 = np.float32(1.0)


@phase
def _add_product(total: Any, row: Any, matrix: Any) -> None:
    """Add the product of a row and a matrix to ``total``."""
    for k in range(len(row)):
        x = row[k]
        for h in range(len(total)):
            total[h] += x * matrix[k, h]


@phase
def _remember(memory: Any, inputs: Any, recurrent: Any, code: Any) -> None:
    """Fill in the next memory of a worker, (h,): a step of a gated recurrent unit.

    Args:
        memory: (h,) the memory so far.
        inputs: (3 h,) what the gates get from the features.
        recurrent: (3 h,) what the gates get from the memory.
        code: (h,) overwritten with the next memory.
    """
    hidden = len(memory)
    for h in range(hidden):
        reset = _FLOAT32_1 / (_FLOAT32_1 + math.exp(-(inputs[h] + recurrent[h])))
        keep = _FLOAT32_1 / (_FLOAT32_1 + math.exp(-(inputs[hidden + h] + recurrent[hidden + h])))
        candidate = math.tanh(inputs[2 * hidden + h] + reset * recurrent[2 * hidden + h])
        code[h] = candidate + keep * (memory[h] - candidate)


@kernel("(n,f),(n,h),(f,t),(h,t),(t),(t),(h,g),(c,g),(g),(g),(f),(),(),()->(n),(n,h)")
def _numbers(
    features: Floats32,
    memory: Floats32,
    gates: Floats32,
    kept_gates: Floats32,
    bias: Floats32,
    kept_bias: Floats32,
    code_weights: Floats32,
    context_weights: Floats32,
    inner_bias: Floats32,
    output_weights: Floats32,
    feature_weights: Floats32,
    output_bias: Floats32,
    available: Ints,
    untried: Ints,
    out: Floats32,
    codes: Floats32,
) -> None:
    """Compute a number for each worker and its next memory, in one row; see ``Network``."""
    n = len(features)
    width = features.shape[1]
    hidden = memory.shape[1]
    inner = len(output_weights)
    # the first half is the mean of the codes of available workers, the second half their maximum
    context = np.zeros(2 * hidden, np.float32)
    context[hidden:] = -_FLOAT32_1
    inputs = np.empty(3 * hidden, np.float32)
    recurrent = np.empty(3 * hidden, np.float32)
    available_count = np.float32(0.0)
    model = -1
    # most of many workers were never tried, and look alike: one of them is computed
    same_as = np.arange(n)
    for i in range(n):
        code = codes[i]
        weight = features[i, available[0]]
        if (
            model >= 0
            and np.array_equal(features[i], features[model])
            and np.array_equal(memory[i], memory[model])
        ):
            same_as[i] = model
            copy(codes[model], code)
        else:
            copy(bias, inputs)
            copy(kept_bias, recurrent)
            _add_product(inputs, features[i], gates)
            _add_product(recurrent, memory[i], kept_gates)
            _remember(memory[i], inputs, recurrent, code)
            if features[i, untried[0]] > 0:
                model = i
        available_count += weight
        for h in range(hidden):
            context[h] += weight * code[h]
            # the code where the worker is available, and else -1, the least that a code can be
            context[hidden + h] = max(
                context[hidden + h], weight * (code[h] + _FLOAT32_1) - _FLOAT32_1
            )
    share = _FLOAT32_1 / max(available_count, _FLOAT32_1)
    for h in range(hidden):
        context[h] *= share
    common = inner_bias.copy()
    _add_product(common, context, context_weights)
    layer = np.empty(inner, np.float32)
    for i in range(n):
        if same_as[i] != i:
            out[i] = out[same_as[i]]
            continue
        copy(common, layer)
        _add_product(layer, codes[i], code_weights)
        total = output_bias[0]
        for g in range(inner):
            total += max(layer[g], np.float32(0.0)) * output_weights[g]
        for k in range(width):
            total += features[i, k] * feature_weights[k]
        out[i] = total


class NetworkMemory(NamedTuple):
    """What the network remembers of the workers of E rows."""

    codes: Annotated[Floats32, Within(-1.0, 1.0)]
    """(E, n, h) the memory of each worker."""


class Network(NamedTuple):
    """The weights of a ``RecurrentWorkersNet``; each layer maps its first axis to its last.

    The three gates of a worker are side by side: reset, update and the new memory.
    """

    gates: Floats32
    """(20, 3 h) from the features to the gates."""
    kept_gates: Floats32
    """(h, 3 h) from the memory to the gates."""
    bias: Floats32
    """(3 h,) of the gates, with the features."""
    kept_bias: Floats32
    """(3 h,) of the gates, with the memory."""
    code_weights: Floats32
    """(h, g) from a worker's code to the inner layer."""
    context_weights: Floats32
    """(2 h, g) from the context to the inner layer."""
    inner_bias: Floats32
    """(g,) of the inner layer."""
    output_weights: Floats32
    """(g,) from the inner layer to the number."""
    feature_weights: Floats32
    """(20,) from the features to the number."""
    output_bias: Floats32
    """() of the number."""

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]]) -> "Network":
        """Make the network of a ``RecurrentWorkersNet`` from its tensors, by torch's names.

        Raises:
            ValueError: If tensors are missing, have wrong shapes, or are not finite.
        """
        try:
            weights = [np.asarray(tensors[name], np.float32).T for name in _NAMES]
        except KeyError as error:
            raise ValueError(
                f"these are no weights of a RecurrentWorkersNet: {error} is missing",
            ) from None
        (
            gates,
            kept_gates,
            bias,
            kept_bias,
            inner_weights,
            inner_bias,
            output_weights,
            output_bias,
            feature_weights,
        ) = weights
        hidden = len(kept_gates)
        inner = len(inner_bias)
        t = 3 * hidden
        # any other size is refused below
        if output_bias.size == 1:
            output_bias = output_bias.reshape(())
        network = cls(
            gates,
            kept_gates,
            bias,
            kept_bias,
            inner_weights[:hidden],
            inner_weights[hidden:],
            inner_bias,
            output_weights.ravel(),
            feature_weights.ravel(),
            output_bias,
        )
        shapes = [
            (WIDTH, t),
            (hidden, t),
            (t,),
            (t,),
            (hidden, inner),
            (2 * hidden, inner),
            (inner,),
            (inner,),
            (WIDTH,),
            (),
        ]
        for name, weight, shape in zip(cls._fields, network, shapes, strict=True):
            if weight.shape != shape or not np.isfinite(weight).all():
                raise ValueError(
                    f"these are no weights of RecurrentWorkersNet: {name} must be finite, of shape"
                    f" {shape}",
                )
        return cls._make(np.asarray(weight, order="C") for weight in network)

    def begin(self, rows: int, n: int) -> NetworkMemory:
        """Return the memory of rows that have seen nothing."""
        return NetworkMemory(np.zeros((rows, n, len(self.kept_gates)), np.float32))

    def __call__(self, features: Features, memory: NetworkMemory) -> tuple[Floats32, NetworkMemory]:
        """Return a number for each worker, (E, n), and the memory after the features.

        Args:
            features: (E, n, 20) the features of the workers.
            memory: What the network remembers of the rounds before.
        """
        numbers, codes = _numbers(
            features,
            memory.codes,
            *self,
            np.int64(_AVAILABLE),
            np.int64(_UNTRIED),
        )
        return numbers, NetworkMemory(codes)


_NAMES = (
    "remember.weight_ih_l0",
    "remember.weight_hh_l0",
    "remember.bias_ih_l0",
    "remember.bias_hh_l0",
    "of_worker.0.weight",
    "of_worker.0.bias",
    "of_worker.2.weight",
    "of_worker.2.bias",
    "direct.weight",
)


def write_network(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write the tensors of a ``RecurrentWorkersNet`` as safetensors with a checksum.

    The file is written whole, or not at all.

    Args:
        path: The file.
        tensors: The tensors, by torch's names.
    """
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    write_whole(
        path,
        lambda target: save_file(arrays, target, metadata={_CHECKSUM: array_checksum(arrays)}),
    )


@cache
def read_network(path: Path) -> Network:
    """Read the network in a file that :func:`write_network` wrote; nothing in it is run.

    Raises:
        ValueError: If it holds no ``RecurrentWorkersNet``, or other weights than were written.
    """
    try:
        check_source(path)
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
            recorded = (file.metadata() or {}).get(_CHECKSUM)
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f"cannot read the weights in {path}: {error}") from error
    if recorded != array_checksum(tensors):
        if recorded is None:
            fault = "have no checksum"
        else:
            fault = "are damaged: their checksum belongs to others"
        raise ValueError(
            f"the weights in {path} {fault}; take another copy, or write them with ata-gym pretrain"
            " or write_network",
        )
    return Network.from_tensors(tensors)
