"""The part that all single envs share: seeds, resets, rewards and info."""

from typing import Any

import gymnasium as gym
from gymnasium.spaces import Space
from numpy.typing import NDArray

from ata_gym.envs.interface.interface import Info, Observation, select_rows
from ata_gym.envs.properties import EnvProperties
from ata_gym.envs.rendering.renderer import FRAMES_PER_SECOND, MODES, Frame

_METADATA: dict[str, Any] = {"render_modes": list(MODES), "render_fps": FRAMES_PER_SECOND}
"""How Gymnasium may render a single env."""


class SingleEnv(EnvProperties, gym.Env[Observation, NDArray[Any]]):
    """One row, without the row axis."""

    metadata = _METADATA

    def _make_spaces(self, observation: Space[Any], action: Space[Any]) -> None:
        self.observation_space = observation
        self.action_space = action

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, Info]:
        """Start an episode, and return its first observation and info.

        Args:
            seed: With a seed, episode 0 of that seed starts; without one, the next episode.
            options: Another pool (with as many workers), changes, price or horizon, from this
                episode on.

        Raises:
            ValueError: For other options, and for a bad seed; the env stays as it was.
        """
        # A bad seed is refused before anything is changed.
        super().reset(seed=seed, options=options)
        self._apply_options(options)
        if seed is not None or not self._state.seeded():
            # Where no seed was ever given, reading the generator draws one.
            self.np_random  # noqa: B018
            self._state.seed_row(0, self.np_random_seed)
        self._interface.start_episode(slice(None))
        self._ended[:] = False
        if self.render_mode == "human":
            self.render()
        return select_rows(self._interface.observation(), 0), _row_info(self._interface.info())

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, Info]:
        """Take one step with an action of the action space.

        Returns:
            The observation, the reward, False (nothing terminates), whether the episode was
            truncated, and the info.

        Raises:
            ValueError: For an action that is not legal, and if no episode is running; the env stays
                as it was.
        """
        if self._ended[0]:
            raise ValueError("no episode is running: call reset() first")
        step = self._interface.step(self.check_actions(action)[None])
        self._ended = step.ended
        if self.render_mode == "human":
            self.render()
        info = _row_info(step.info)
        return select_rows(step.observation, 0), step.reward.item(), False, step.ended.item(), info

    def render(self) -> Frame | None:
        """Show the last round, in the form that ``render_mode`` names.

        In dispatch it shows the part of a round that has been played. The mode "ansi" gives a text
        of up to 80 columns, and "rgb_array" pixels, shape (540, 960, 3). The mode "human" draws a
        window, which ``reset`` and ``step`` draw by themselves, too. Without a mode nothing is
        shown, with a warning.
        """
        if self._renderer is None:
            if self.spec is None:
                name = ""
            else:
                name = f'"{self.spec.id}", '
            gym.logger.warn(
                "nothing is rendered without a mode:"
                f' gymnasium.make({name}render_mode="rgb_array")',
            )
            return None
        return self._renderer.show(self.timeline())

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._renderer is not None:
            self._renderer.close()


def _row_info(info: Info) -> Info:
    return {name: value.item() if value.ndim == 1 else value[0] for name, value in info.items()}
