"""A window that shows frames, by pygame."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

TITLE = "ata-gym"


class Window:
    """A window that opens for the first frame; it shows at most ``frames_per_second`` frames a second."""

    def __init__(self, pygame: ModuleType, frames_per_second: int) -> None:
        self._pygame, self._frames_per_second = pygame, frames_per_second
        self._screen: Any = None
        self._clock: Any = None

    def show(self, frame: NDArray[np.uint8]) -> None:
        """Show pixels of shape (height, width, 3)."""
        pygame = self._pygame
        if self._screen is None:
            pygame.display.init()
            pygame.display.set_caption(TITLE)
            self._screen, self._clock = pygame.display.set_mode(frame.shape[1::-1]), pygame.time.Clock()
        surface = pygame.image.frombuffer(frame.tobytes(), frame.shape[1::-1], "RGB")
        self._screen.blit(surface, (0, 0))
        pygame.event.pump()
        self._clock.tick(self._frames_per_second)
        pygame.display.flip()

    def close(self) -> None:
        """Close it, if it is open."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
