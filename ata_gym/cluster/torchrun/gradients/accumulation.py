"""The earlier rounds whose gradients a model still has, as where a step follows several rounds."""

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from ata_gym.cluster.torchrun.dtensors import is_dtensor, local_part


class OlderRounds(NamedTuple):
    """The earlier rounds whose gradients a parameter has."""

    number: int
    """How many they are; -1 if it is not known on this rank."""
    weight: float
    """The sum of the weights of their losses, whose mean the gradient is; 0 if they have none."""


NO_ROUNDS = OlderRounds(0, 0.0)


class OldGradient(NamedTuple):
    """The gradient of a parameter before a round."""

    parameter: nn.Parameter
    """A parameter as it is between rounds."""
    gradient: Tensor | None
    rounds: OlderRounds | None
    """The rounds that it is of; None if only other parameters tell."""


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
        self.model: nn.Module | None = None
        """The model whose gradients a replica that comes back gets."""
        self.received: dict[str, Any] | None = None
        """The gradients that the model is to have from another replica."""

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
        # Changes in place raise the version, and an optimizer step is one.
        if note.parameter_version != parameter._version:
            return NO_ROUNDS
        # A gradient that was written to and is 0 now was set to 0.
        if note.gradient_version != gradient._version and not _elements(gradient).any():
            return None if is_dtensor(gradient) else NO_ROUNDS
        rounds: OlderRounds = note.rounds
        return rounds

    def old_gradient(self, parameter: nn.Parameter) -> OldGradient:
        """A copy of the gradient of a parameter, and its rounds."""
        gradient = None if parameter.grad is None else parameter.grad.clone()
        return OldGradient(parameter, gradient, self.get(parameter))

    def frozen(self, parameters: Collection[nn.Parameter]) -> list[OldGradient]:
        """The gradients of earlier rounds of the parameters that are frozen now."""
        frozen = [parameter for parameter in parameters if not parameter.requires_grad]
        return [
            OldGradient(parameter, parameter.grad, rounds)
            for parameter in frozen
            if (rounds := self.get(parameter)) is not None and rounds.number
        ]

    def restore(self, old: OldGradient) -> None:
        """Give a parameter its gradient of before a round."""
        old.parameter.grad = old.gradient
        self.set(old.parameter, old.rounds)

    def add(
        self, old: OldGradient, gradient: Tensor | None, older: OlderRounds, weight: float
    ) -> None:
        """Give a parameter its gradient of a round, added to its gradient of before.

        Args:
            old: The gradient of before.
            gradient: The gradient of the round; a mean over the weights of ``older`` and the
                round, if losses have weights.
            older: The earlier rounds of parameters that do not tell their own.
            weight: The sum of the weights of the round, or 0.
        """
        rounds = older if old.rounds is None else old.rounds
        total = rounds.weight + weight
        old_gradient = old.gradient
        if weight and gradient is not None and rounds.weight != older.weight:
            gradient = gradient * ((older.weight + weight) / total)
        # What is not of earlier rounds stays as it is.
        if weight and old_gradient is not None and old.rounds is not None and rounds.weight:
            old_gradient = old_gradient * (rounds.weight / total)
        old.parameter.grad = _sum(gradient, old_gradient)
        if gradient is not None or (old.rounds is not None and rounds.number):
            self.set(old.parameter, OlderRounds(rounds.number + 1, total))
        else:
            self.set(old.parameter, None)

    def state(self) -> dict[str, Any]:
        """The gradients of the model and their rounds by parameter, for another replica.

        They are copies, since the next round uses the memory of gradients again.
        """
        assert self.model is not None
        return {
            name: {"gradient": _packed(parameter.grad), "rounds": self.get(parameter)}
            for name, parameter in self.model.named_parameters()
        }

    @torch.no_grad()
    def take_received(self) -> None:
        """Give the model the gradients of another replica, if any came, in place of its own.

        By then it has the weights of that replica, too.
        """
        if self.received is None or self.model is None:
            return
        for name, parameter in self.model.named_parameters():
            of_parameter = self.received.get(name, {"gradient": None, "rounds": None})
            parameter.grad = _unpacked(of_parameter["gradient"], parameter)
            rounds = of_parameter["rounds"]
            self.set(parameter, None if rounds is None else OlderRounds(*rounds))
        self.received = None


def told(old_gradients: Collection[OldGradient]) -> OlderRounds:
    """The earlier rounds whose gradients a model has, as far as its parameters on this rank tell.

    A parameter that no round has reached yet counts as the others.
    """
    rounds = [old.rounds for old in old_gradients if old.rounds is not None]
    number = max((each.number for each in rounds), default=0)
    # The parts of gradients may be 0 on this rank alone, and without parameters nothing tells.
    if number == 0 and (
        not old_gradients or any(is_dtensor(old.gradient) for old in old_gradients)
    ):
        number = -1
    return OlderRounds(number, max((each.weight for each in rounds), default=0.0))


def _sum(gradient: Tensor | None, old_gradient: Tensor | None) -> Tensor | None:
    """The sum of a gradient and one of before, where there are any."""
    if gradient is None or old_gradient is None:
        return old_gradient if gradient is None else gradient
    # A dense tensor is added to a sparse one only in this order.
    if old_gradient.is_sparse:
        return gradient + old_gradient
    return old_gradient + gradient


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
