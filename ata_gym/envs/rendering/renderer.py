"""The ways to show a round: a text, an array of pixels, or a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.rendering.text import as_text
from ata_gym.envs.rendering.timeline import Timeline
from ata_gym.envs.rendering.window import Window
from ata_gym.utils.extras import require
from ata_gym.utils.validation import short

if TYPE_CHECKING:
    from ata_gym.envs.rendering.picture import Picture

Frame = str | NDArray[np.uint8]  # what ``render`` gives: a text, or pixels of shape (540, 960, 3)
MODES = ("ansi", "rgb_array", "human")
VECTOR_MODES = ("ansi", "rgb_array")  # the modes of the native vector envs, whose rows have no windows
FRAMES_PER_SECOND = 4  # the frames per second of a window and of a video


def renderer(mode: object, modes: Sequence[str] = MODES) -> Renderer | None:
    """What shows the rounds in one of the modes; None for None, and ValueError for any other.

    >>> renderer("rgb")
    Traceback (most recent call last):
        ...
    ValueError: render_mode must be None, 'ansi', 'rgb_array' or 'human', not 'rgb'
    """
    if mode is None:
        return None
    if not isinstance(mode, str) or mode not in modes:
        names = [repr(name) for name in modes]
        raise ValueError(f"render_mode must be None, {', '.join(names[:-1])} or {names[-1]}, not {short(mode)}")
    return Renderer(mode)


class Renderer:
    """Shows rounds in a mode; what it draws with is made for the first of them.

    MissingExtraError if matplotlib, or for a window pygame, is not installed.
    """

    def __init__(self, mode: str) -> None:
        self._picture: Picture | None = None
        self._window: Window | None = None
        purpose = f'render_mode="{mode}"'
        if mode != "ansi":
            require("matplotlib", extra="render", purpose=purpose)
            from ata_gym.envs.rendering.picture import Picture  # noqa: PLC0415 - it needs matplotlib

            self._picture = Picture()
        if mode == "human":
            self._window = Window(require("pygame", extra="render", purpose=purpose), FRAMES_PER_SECOND)

    def show(self, timeline: Timeline) -> Frame | None:
        """The frame of a round, or None as it is in the window."""
        frame = self.frame(timeline)
        if self._window is None or isinstance(frame, str):
            return frame
        self._window.show(frame)
        return None

    def frame(self, timeline: Timeline) -> Frame:
        """The frame of a round."""
        return as_text(timeline) if self._picture is None else self._picture.draw(timeline)

    def close(self) -> None:
        """Close the window, if there is one; the next round that is shown opens it again."""
        if self._window is not None:
            self._window.close()
