"""The part that all vector envs share: seeds, autoreset as in Gymnasium's own, rewards and info."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Space
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.utils import create_zero_array
from numpy.typing import NDArray

from ata_gym.envs.interface.interface import Info, Observation, chosen
from ata_gym.envs.properties import OPTIONS, EnvProperties
from ata_gym.envs.rendering.renderer import FRAMES_PER_SECOND, VECTOR_MODES, Frame
from ata_gym.typing import Mask
from ata_gym.utils.ranges import Within
from ata_gym.utils.trees import choose_rows, leaves, map_leaves
from ata_gym.utils.validation import short, whole_number

Seeds: TypeAlias = int | Sequence[int | None] | None


class VectorEnv(EnvProperties, gym.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """E rows in one call, reset as in Gymnasium's own vector envs; ``arguments`` are those of the single env.

    The class of an id names Gymnasium's class as a base once more, as skrl's ``wrap_env`` looks at direct bases only.
    """

    _modes = VECTOR_MODES
    _view = slice(None)

    def __init__(
        self, num_envs: int = 1, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None, backend: object = None, **arguments: Any,
    ) -> None:  # fmt: skip
        if backend is not None:
            raise ValueError("a backend runs the tasks of a single env: use gymnasium.make, not make_vec")
        self.num_envs = self._rows = whole_number("num_envs", num_envs)
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except (TypeError, ValueError):
            wrong = short(autoreset_mode)
            raise ValueError(f"autoreset_mode must be NEXT_STEP, SAME_STEP or DISABLED, not {wrong}") from None
        self._shows_again = self.autoreset_mode is AutoresetMode.DISABLED
        self.metadata = {
            "render_modes": list(VECTOR_MODES), "render_fps": FRAMES_PER_SECOND, "autoreset_mode": self.autoreset_mode,
        }  # fmt: skip
        self._most_steps = np.inf if max_episode_steps is None else whole_number("max_episode_steps", max_episode_steps)
        super().__init__(**arguments)
        self._steps = np.zeros(self.num_envs, np.int64)  # in the episode
        self._row_attributes: dict[str, tuple[Any, ...]] = {}  # of the caller's own, by name

    def _make_spaces(self, observation: Space[Any], action: Space[Any]) -> None:
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = batch_space(observation, self.num_envs)
        self.action_space = batch_space(action, self.num_envs)
        self._idle = np.asarray(create_zero_array(action))  # the action of a row that is reset

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Start an episode in every row; ``seed`` s seeds row e with s + e, a sequence each row with its own.

        ``options`` are those of the single env, for all rows, or ``reset_mask``, (E,), the rows to reset: the others go
        on as they were.
        """
        seeds = self._row_seeds(seed)  # refuses a bad one before anything is changed
        rows = np.ones(self.num_envs, np.bool_)
        if options and "reset_mask" in options:
            rows = self._rows_to_reset(options)
        else:
            self._take(options)
        for row, own in enumerate(seeds):
            if own is not None and rows[row]:
                self._state.seed_row(row, own)
        self._start(rows)
        return self._interface.observation(), _of_rows(self._interface.info(), rows)

    def _rows_to_reset(self, options: Mapping[str, Any]) -> Mask:
        """The rows of the option ``reset_mask``; TypeError or ValueError if it is no mask of the rows."""
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"options['reset_mask'] must be an array of booleans, not {short(mask)}")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"options['reset_mask'] must have shape ({self.num_envs},) and mark a row, not {short(mask)}"
            )
        if self.autoreset_mode is not AutoresetMode.DISABLED:
            raise ValueError("options['reset_mask'] is for autoreset_mode DISABLED, where nothing else resets a row")
        if len(options) > 1:
            raise ValueError("options['reset_mask'] comes alone, as the other options are for all rows")
        return mask

    def _row_seeds(self, seed: Seeds) -> list[int | None]:
        if seed is None or isinstance(seed, (int, np.integer)):
            if seed is None and self._state.seeded():
                return [None] * self.num_envs
            # as in the single env: Gymnasium checks a seed, and draws one where none was ever given
            self._np_random, self._np_random_seed = seeding.np_random(None if seed is None else int(seed))
            return [self._np_random_seed + e for e in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                f"seed has {len(seed)} entries; it must be one number, or one for each of {self.num_envs} rows"
            )
        fresh = self._state.episode < 0
        return [seeding.np_random(own)[1] if own is not None or fresh[e] else None for e, own in enumerate(seed)]

    def step(self, actions: NDArray[Any]) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        """Take one step in every row with actions of shape (E, ...)."""
        if not self._state.seeded():
            raise ValueError("no episode is running: call reset() first")
        starting = self._ended.copy()
        any_starting = bool(starting.any())
        if any_starting:
            if self.autoreset_mode is AutoresetMode.DISABLED:
                ended = np.flatnonzero(starting).tolist()
                raise ValueError(f'the episodes of rows {ended} have ended: reset(options={{"reset_mask": ...}}) them')
            if np.shape(actions) == self.action_space.shape:
                actions = np.where(starting.reshape(-1, *[1] * (np.ndim(actions) - 1)), self._idle, actions)
        played = self._interface.step(self.checked(actions))
        observation, reward, info, live = played.observation, played.reward, played.info, ~starting
        if any_starting:
            info = self._restart(observation, info, starting)
            reward[starting] = 0.0
        self._steps += live
        truncated = (played.ended | (self._steps >= self._most_steps)) & live
        final = {}
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._ended[:] = truncated
        elif truncated.any():
            final = self._final(observation, info, truncated)
            info = self._restart(observation, info, truncated)
        return observation, reward, np.zeros(self.num_envs, np.bool_), truncated, final | _of_rows(info)

    def render(self) -> tuple[Frame, ...] | None:
        """The frame of each row, as ``SyncVectorEnv`` gives them; those of a row are those of a single env."""
        if self._renderer is None:
            gym.logger.warn('nothing is rendered without a mode: gymnasium.make_vec(..., render_mode="rgb_array")')
            return None
        return tuple(self._renderer.frame(self.timeline(row)) for row in range(self.num_envs))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What the method or attribute of that name gives for each row, as Gymnasium's vector envs answer.

        An attribute that ``set_attr`` made is called with its row's own value, if that is a function.

        >>> import gymnasium, ata_gym
        >>> gymnasium.make_vec("ata_gym/TaskAllocation-v0", num_envs=3).unwrapped.call("budget")
        (8, 8, 8)
        """
        if name in self._row_attributes:
            own = self._row_attributes[name]
            return tuple(value(*args, **kwargs) if callable(value) else value for value in own)
        value = getattr(self, name)
        result = value(*args, **kwargs) if callable(value) else value
        if isinstance(result, np.ndarray) and result.shape[:1] == (self.num_envs,):
            return tuple(result)
        return (result,) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The attribute of that name, for each row."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Keep an attribute of the caller's own for each row, which ``get_attr`` and ``call`` give back.

        A list or tuple holds a value for each row, and another value is for all. AttributeError for what the envs have
        themselves: their arguments and options of a reset change it. ValueError for another number of values.

        >>> import gymnasium, ata_gym
        >>> envs = gymnasium.make_vec("ata_gym/TaskAllocation-v0", num_envs=2)
        >>> envs.set_attr("level", [1, 3])
        >>> envs.get_attr("level")
        (1, 3)
        """
        if hasattr(self, name):
            raise AttributeError(
                f"{name} belongs to the envs and cannot be set: make them with other arguments, or give "
                f"reset(options=...), which takes {', '.join(OPTIONS)}"
            )
        of_rows = tuple(values) if isinstance(values, list | tuple) else (values,) * self.num_envs
        if len(of_rows) != self.num_envs:
            raise ValueError(f"{name} has {len(of_rows)} values; give one, or one for each of {self.num_envs} rows")
        self._row_attributes[name] = of_rows

    def _remembered(self) -> dict[str, NDArray[Any]]:
        counted = {} if self._most_steps == np.inf else {"steps": self._steps}
        return super()._remembered() | counted

    def _ranges(self) -> dict[str, Within]:
        return super()._ranges() | {"steps": Within(0)}

    def _start(self, rows: Mask) -> None:
        self._interface.start_episode(rows)
        self._steps[rows], self._ended[rows] = 0, False

    def _restart(self, observation: Observation, info: Info, rows: Mask) -> Info:
        """Reset some rows: put what they see into the observation, and return the info with what they are told."""
        self._start(rows)
        for (_, field), (_, fresh) in zip(leaves(observation), leaves(self._interface.observation(rows)), strict=True):
            field[rows] = fresh
        told: Info = choose_rows(rows, self._interface.info(), info)
        return told

    def _final(self, observation: Observation, info: Info, rows: Mask) -> Info:
        """The last observation and info of the rows whose episodes have ended, as Gymnasium hands them on."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(rows):
            final_obs[row] = chosen(chosen(observation, [row]), 0)  # the list makes it a copy
        final = {"final_obs": final_obs, "final_info": _of_rows(info, rows)}
        return final | {f"_{name}": rows.copy() for name in final}


def _of_rows(info: Info, rows: Mask | None = None) -> Info:
    """The info of some rows (None: all), zeros in the others, with a mask for each key, as Gymnasium has them."""
    if rows is None:
        return info | {f"_{name}": np.ones(len(value), np.bool_) for name, value in info.items()}
    chosen_rows: Info = choose_rows(rows, info, map_leaves(np.zeros_like, info))
    return chosen_rows | {f"_{name}": rows.copy() for name in info}
