"""Errors for lack of memory, on any device."""

from contextlib import AbstractContextManager

import torch


def lacks_memory(error: Exception) -> bool:
    """Whether torch raised an error for lack of memory on some device, CPU included."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


class enough_memory(AbstractContextManager[None]):  # noqa: N801
    """Turn torch's errors for lack of memory into a ``MemoryError`` of one sentence.

    It does so for every device, CPU included.

    Args:
        device: The device.
        content: What must fit into its memory, the subject of the sentence.
    """

    def __init__(self, device: torch.device, content: str) -> None:
        self._device = device
        self._content = content

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, RuntimeError) or not lacks_memory(error):
            return
        # On a CPU, torch puts the check that failed before the sentence.
        reason = str(error).partition("err == 0. ")[2] or str(error)
        raise MemoryError(
            f"{self._content} does not fit into the memory of {self._device}:"
            f" {reason.partition('. ')[0]}",
        ) from error
