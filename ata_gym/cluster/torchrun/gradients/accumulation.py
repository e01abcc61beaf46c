"""The earlier rounds whose gradients a model still has, as where a step follows several rounds."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from ata_gym.cluster.torchrun.dtensors import is_dtensor, local_part


class OlderRounds(NamedTuple):
    """The earlier rounds whose gradients a parameter has."""

    number: int
    """How many they are."""
    weight: float
    """The sum of the weights of their losses, whose mean the gradient is; 0 if they have none."""


NO_ROUNDS = OlderRounds(0, 0.0)


class _Note(NamedTuple):
    rounds: OlderRounds
    gradient: TensorWeakRef | None
    gradient_version: int
    """The version of the gradient, which operations in place raise."""
    parameter_version: int
    """The version of its parameter."""


class GradientRounds:
    """The earlier rounds whose gradients each parameter has.

    So the rounds of one optimizer step have one mean, where losses have weights, and all ranks can
    tell whether they add to the same. Rounds belong to the gradient itself: they are gone when the
    gradient is None, was set to 0 or replaced, or belongs to a parameter that has changed since, as
    by a step.

    Example:
        >>> import torch
        >>> parameter = nn.Parameter(torch.ones(2))
        >>> rounds = GradientRounds()
        >>> parameter.grad = torch.ones(2)
        >>> rounds.set(parameter, OlderRounds(1, 5.0))
        >>> _ = parameter.grad.mul_(0.5)
        >>> rounds.get(parameter)
        OlderRounds(number=1, weight=5.0)
        >>> _ = parameter.grad.zero_()
        >>> rounds.get(parameter)
        OlderRounds(number=0, weight=0.0)
    """

    def __init__(self) -> None:
        self._notes: Any = WeakTensorKeyDictionary()

    def set(self, parameter: nn.Parameter, rounds: OlderRounds | None) -> None:
        """Take note of the rounds whose gradients a parameter has now; None forgets it."""
        gradient = parameter.grad
        if rounds is None:
            self._notes.pop(parameter, None)
        elif gradient is None:
            self._notes[parameter] = _Note(NO_ROUNDS, None, 0, parameter._version)
        else:
            self._notes[parameter] = _Note(
                rounds,
                TensorWeakRef(gradient),
                gradient._version,
                parameter._version,
            )

    def get(self, parameter: nn.Parameter) -> OlderRounds | None:
        """The rounds whose gradients a parameter has.

        It is None if only other parameters tell: no round has reached this one yet, or its part of
        a gradient that others have parts of is 0, and may have been set to 0.
        """
        note = self._notes.get(parameter)
        if note is None:
            return None
        gradient = parameter.grad
        if gradient is None or note.gradient is None or gradient is not note.gradient():
            return NO_ROUNDS
        if note.parameter_version != parameter._version:
            return NO_ROUNDS
        if note.gradient_version != gradient._version and not _elements(gradient).any():
            return None if is_dtensor(gradient) else NO_ROUNDS
        rounds: OlderRounds = note.rounds
        return rounds

    def state_of(self, model: nn.Module) -> dict[str, Any]:
        """The gradients of a model and their rounds by parameter, for a replica that comes back.

        They are copies, since the next round uses the memory of gradients again.
        """
        return {
            name: {"gradient": _packed(parameter.grad), "rounds": self.get(parameter)}
            for name, parameter in model.named_parameters()
        }

    @torch.no_grad()
    def load(self, model: nn.Module, state: dict[str, Any]) -> None:
        """Give a model the gradients of another replica, in place of all that it has.

        Args:
            model: The model.
            state: What ``state_of`` gives there.
        """
        for name, parameter in model.named_parameters():
            of_parameter = state.get(name, {"gradient": None, "rounds": None})
            parameter.grad = _unpacked(of_parameter["gradient"], parameter)
            rounds = of_parameter["rounds"]
            self.set(parameter, None if rounds is None else OlderRounds(*rounds))


def _elements(gradient: Tensor) -> Tensor:
    """The elements of a gradient that are on this rank."""
    elements = local_part(gradient)
    if elements.is_sparse:
        return elements.coalesce().values()
    return elements


def _packed(gradient: Tensor | None) -> tuple[Tensor, ...] | None:
    """A copy of a gradient in dense tensors, which alone can be sent: of a sparse one in two."""
    if gradient is None:
        return None
    if gradient.is_sparse:
        coalesced = gradient.coalesce()
        return coalesced.indices().clone(), coalesced.values().clone()
    return (gradient.clone(),)


def _unpacked(packed: tuple[Tensor, ...] | None, parameter: nn.Parameter) -> Tensor | None:
    """A gradient of a parameter from such a copy."""
    if packed is None:
        return None
    *indices, values = (part.to(parameter.device) for part in packed)
    if indices:
        shape = parameter.shape
        return torch.sparse_coo_tensor(indices[0], values, shape, is_coalesced=True)
    # The strides are those that fused optimizers expect.
    return torch.empty_like(parameter, dtype=values.dtype).copy_(values)
