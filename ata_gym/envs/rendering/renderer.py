"""The ways to show a round: a text, an array of pixels, or a window."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.rendering.text import as_text
from ata_gym.envs.rendering.timeline import Timeline
from ata_gym.utils.extras import require
from ata_gym.utils.validation import short

Frame = str | NDArray[np.uint8]
"""The result of ``render``: a text, or pixels of shape (540, 960, 3)."""
MODES = ("ansi", "rgb_array", "human")
"""The modes of the single envs."""
VECTOR_MODES = ("ansi", "rgb_array")
"""The modes of the native vector envs, whose rows have no windows."""
FRAMES_PER_SECOND = 4
"""The frames per second of a window and of a video."""


def renderer(mode: object, modes: Sequence[str] = MODES) -> "Renderer | None":
    """The renderer of a mode; None for the mode None.

    Args:
        mode: The mode.
        modes: The modes to choose from.

    Raises:
        ValueError: For another mode.
        MissingExtraError: If the mode needs a package that is not installed.

    Example:
        >>> renderer("rgb")
        Traceback (most recent call last):
            ...
        ValueError: render_mode must be None, 'ansi', 'rgb_array' or 'human', not 'rgb'
    """
    if mode is None:
        return None
    if not isinstance(mode, str) or mode not in modes:
        names = [repr(name) for name in modes]
        raise ValueError(
            f"render_mode must be None, {', '.join(names[:-1])} or {names[-1]}, not {short(mode)}",
        )
    return Renderer(mode)


class Renderer:
    """A renderer shows rounds in a mode; a window opens for the first round.

    Args:
        mode: One of ``MODES``.

    Raises:
        MissingExtraError: If matplotlib, or for a window pygame, is not installed.
    """

    def __init__(self, mode: str) -> None:
        self.frame: Callable[[Timeline], Frame] = as_text
        needs = {"extra": "render", "purpose": f'render_mode="{mode}"'}
        if mode != "ansi":
            require("matplotlib", **needs)
            from ata_gym.envs.rendering.picture import as_pixels  # noqa: PLC0415 - needs matplotlib

            self.frame = as_pixels
        self._pygame: Any = None
        if mode == "human":
            self._pygame = require("pygame", **needs)
        self._screen: Any = None
        """The window, once it is open; then there is a clock, too."""

    def show(self, timeline: Timeline) -> Frame | None:
        """Show a round: return its frame, or draw it in the window and return None."""
        frame = self.frame(timeline)
        pygame = self._pygame
        if pygame is None or isinstance(frame, str):
            return frame
        size = frame.shape[1::-1]
        if self._screen is None:
            pygame.display.init()
            pygame.display.set_caption("ata-gym")
            self._screen = pygame.display.set_mode(size)
            self._clock = pygame.time.Clock()
        self._screen.blit(pygame.image.frombuffer(frame.tobytes(), size, "RGB"), (0, 0))
        pygame.event.pump()
        self._clock.tick(FRAMES_PER_SECOND)
        pygame.display.flip()
        return None

    def close(self) -> None:
        """Close the window, if there is one; the next round that is shown opens it again."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
