"""Models with ``DistributedDataParallel`` in a round: models of the round, and other ones.

Such a model communicates in each pass. In a round ranks have unequal numbers of passes, so that
they would wait for each other, or sum what does not belong together.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


@contextmanager
def without_communication(model: DistributedDataParallel) -> Iterator[None]:
    """Let the passes of a model inside the context send nothing."""
    sends_buffers = model.require_forward_param_sync
    with model.no_sync():
        # Otherwise its first forward pass would broadcast the buffers.
        model.require_forward_param_sync = False
        try:
            yield
        finally:
            model.require_forward_param_sync = sends_buffers


@contextmanager
def other_models_are_checked() -> Iterator[None]:
    """Let models that are not trained compute without communication, and refuse all others.

    It concerns models which are called inside the context and would communicate.
    """
    forward: Any = DistributedDataParallel.forward
    # This function itself is not compiled, and what it calls is compiled as before.
    disable: Any = torch.compiler.disable

    def checked(model: DistributedDataParallel, *arguments: Any, **keywords: Any) -> Any:
        if not (model.require_backward_grad_sync or model.require_forward_param_sync):
            return forward(model, *arguments, **keywords)
        _check(model)
        with without_communication(model):
            return forward(model, *arguments, **keywords)

    DistributedDataParallel.forward = disable(checked, recursive=False)  # type: ignore[method-assign]
    try:
        yield
    finally:
        DistributedDataParallel.forward = forward  # type: ignore[method-assign]


def _check(model: DistributedDataParallel) -> None:
    """Raise ``RuntimeError`` for a model that is not part of the round if it may be trained."""
    trained = any(parameter.requires_grad for parameter in model.parameters())
    if model.require_backward_grad_sync and torch.is_grad_enabled() and trained:
        reason = (
            "its gradient would not be summed: give allocator.round(...) all models that are"
            " trained, with their DistributedDataParallel, as one torch.nn.ModuleList, or call a"
            " model that is not trained under torch.no_grad()"
        )
    elif model.training and any(True for _ in model.buffers()):
        reason = (
            "its buffers may change on each rank alone: call eval() of a model that is not trained"
        )
    else:
        return
    raise RuntimeError(
        f"DistributedDataParallel({type(model.module).__name__}) is called inside a round of"
        f" another model, and {reason}",
    )
