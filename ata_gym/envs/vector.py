"""The part that all vector envs share: seeds, autoreset, rewards and info."""

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

from ata_gym.envs.interface.interface import Info, Observation, select_rows
from ata_gym.envs.properties import OPTIONS, EnvProperties
from ata_gym.envs.rendering.renderer import FRAMES_PER_SECOND, VECTOR_MODES, Frame
from ata_gym.typing import Mask
from ata_gym.utils.ranges import Within
from ata_gym.utils.trees import choose_rows, leaves, map_leaves
from ata_gym.utils.validation import short, whole_number

Seeds: TypeAlias = int | Sequence[int | None] | None


class VectorEnv(EnvProperties, gym.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """E rows in one call, reset as in Gymnasium's own vector envs.

    The class of an id names Gymnasium's class as a base once more, as skrl's ``wrap_env`` looks at
    direct bases only.

    Args:
        num_envs: The number of rows, E.
        autoreset_mode: Which step resets a row whose episode has ended.
        max_episode_steps: The steps after which an episode is truncated; by default there is no
            such limit.
        backend: Not for vector envs.
        **arguments: The arguments of the single env.

    Raises:
        ValueError: For a ``backend``, and for an argument that is not legal.
    """

    _modes = VECTOR_MODES
    _view = slice(None)

    def __init__(
        self,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        backend: object = None,
        **arguments: Any,
    ) -> None:
        if backend is not None:
            raise ValueError(
                "a backend runs the tasks of a single env: use gymnasium.make, not make_vec",
            )
        self.num_envs = whole_number("num_envs", num_envs)
        self._rows = self.num_envs
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except (TypeError, ValueError):
            wrong = short(autoreset_mode)
            raise ValueError(
                f"autoreset_mode must be NEXT_STEP, SAME_STEP or DISABLED, not {wrong}",
            ) from None
        self._shows_again = self.autoreset_mode is AutoresetMode.DISABLED
        self.metadata = {
            "render_modes": list(VECTOR_MODES),
            "render_fps": FRAMES_PER_SECOND,
            "autoreset_mode": self.autoreset_mode,
        }
        if max_episode_steps is None:
            self._most_steps = np.inf
        else:
            self._most_steps = whole_number("max_episode_steps", max_episode_steps)
        super().__init__(**arguments)
        self._steps = np.zeros(self.num_envs, np.int64)
        """The steps of each row in its episode, shape (E,)."""
        self._row_attributes: dict[str, tuple[Any, ...]] = {}
        """The attributes that the caller has set: a value for each row, by name."""

    def _make_spaces(self, observation: Space[Any], action: Space[Any]) -> None:
        self.single_observation_space = observation
        self.single_action_space = action
        self.observation_space = batch_space(observation, self.num_envs)
        self.action_space = batch_space(action, self.num_envs)
        self._idle = np.asarray(create_zero_array(action))
        """The action of a row that is reset."""

    def reset(
        self,
        *,
        seed: Seeds = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, Info]:
        """Start an episode in every row, and return the first observations and the info.

        Args:
            seed: A number s seeds row e with s + e. A sequence holds the seed of each row.
            options: The options of the single env, for all rows; or ``reset_mask``, shape (E,), the
                rows to reset, while the others go on as they were.

        Raises:
            ValueError: For other options, bad seeds, and a mask that does not fit; the envs stay as
                they were.
            TypeError: If the mask is no array of booleans.
        """
        # A bad seed is refused before anything is changed.
        seeds = self._row_seeds(seed)
        rows = np.ones(self.num_envs, np.bool_)
        if options and "reset_mask" in options:
            rows = self._rows_to_reset(options)
        else:
            self._apply_options(options)
        for row, row_seed in enumerate(seeds):
            if row_seed is not None and rows[row]:
                self._state.seed_row(row, row_seed)
        self._start(rows)
        return self._interface.observation(), _with_masks(self._interface.info(), rows)

    def _rows_to_reset(self, options: Mapping[str, Any]) -> Mask:
        """The rows of the option ``reset_mask``.

        Raises:
            TypeError: If it is no array of booleans.
            ValueError: If it is no mask of the rows, or cannot be given here.
        """
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(
                f"options['reset_mask'] must be an array of booleans, not {short(mask)}",
            )
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"options['reset_mask'] must have shape ({self.num_envs},) and mark a row, not"
                f" {short(mask)}",
            )
        if self.autoreset_mode is not AutoresetMode.DISABLED:
            raise ValueError(
                "options['reset_mask'] is for autoreset_mode DISABLED, where nothing else resets"
                " a row",
            )
        if len(options) > 1:
            raise ValueError(
                "options['reset_mask'] comes alone, as the other options are for all rows",
            )
        return mask

    def _row_seeds(self, seed: Seeds) -> list[int | None]:
        """The new seed of each row; None where a row keeps its seed."""
        if seed is None or isinstance(seed, (int, np.integer)):
            if seed is None and self._state.seeded():
                return [None] * self.num_envs
            if seed is None:
                number = None
            else:
                number = int(seed)
            # As in the single env, Gymnasium checks a seed, and draws one where none was given.
            self._np_random, self._np_random_seed = seeding.np_random(number)
            return [self._np_random_seed + e for e in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                f"seed has {len(seed)} entries; it must be one number, or one for each of"
                f" {self.num_envs} rows",
            )
        unseeded = self._state.episode < 0
        seeds: list[int | None] = []
        for e, row_seed in enumerate(seed):
            if row_seed is None and not unseeded[e]:
                # The row goes on with its seed, in its next episode.
                seeds.append(None)
            else:
                seeds.append(seeding.np_random(row_seed)[1])
        return seeds

    def step(
        self,
        actions: NDArray[Any],
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        """Take one step in every row.

        Args:
            actions: The action of each row, shape (E, ...).

        Returns:
            The observations, the rewards (E,), False for each row (nothing terminates), whether
            each episode was truncated (E,), and the info.

        Raises:
            ValueError: For actions that are not legal, and for rows without a running episode; the
                envs stay as they were.
        """
        if not self._state.seeded():
            raise ValueError("no episode is running: call reset() first")
        starting = self._ended.copy()
        any_starting = bool(starting.any())
        if any_starting:
            if self.autoreset_mode is AutoresetMode.DISABLED:
                ended = np.flatnonzero(starting).tolist()
                raise ValueError(
                    f'the episodes of rows {ended} have ended: reset(options={{"reset_mask": ...}})'
                    " them",
                )
            # The actions of rows that are reset are ignored, and need not be legal.
            if np.shape(actions) == self.action_space.shape:
                actions = np.where(
                    starting.reshape(-1, *[1] * (np.ndim(actions) - 1)),
                    self._idle,
                    actions,
                )
        step = self._interface.step(self.check_actions(actions))
        observation = step.observation
        reward = step.reward
        info = step.info
        live = ~starting
        if any_starting:
            info = self._restart(observation, info, starting)
            reward[starting] = 0.0
        self._steps += live
        truncated = (step.ended | (self._steps >= self._most_steps)) & live
        final = {}
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._ended[:] = truncated
        elif truncated.any():
            final = self._final(observation, info, truncated)
            info = self._restart(observation, info, truncated)
        return (
            observation,
            reward,
            np.zeros(self.num_envs, np.bool_),
            truncated,
            final | _with_masks(info),
        )

    def render(self) -> tuple[Frame, ...] | None:
        """The frame of each row, as a single env would show it.

        The result has the form that ``SyncVectorEnv`` gives. Without a mode it is None, with a
        warning.
        """
        if self._renderer is None:
            gym.logger.warn(
                "nothing is rendered without a mode: gymnasium.make_vec(...,"
                ' render_mode="rgb_array")',
            )
            return None
        return tuple(self._renderer.frame(self.timeline(row)) for row in range(self.num_envs))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The result of a method, or the value of an attribute, for each row.

        Args:
            name: The name of the method or attribute.
            *args: The arguments of the method.
            **kwargs: The arguments of the method, by name.

        Returns:
            A tuple of E entries, as Gymnasium's vector envs give. Where ``set_attr`` made the
            attribute, each row's value is called if it is a function.

        Example:
            >>> import gymnasium, ata_gym
            >>> gymnasium.make_vec("ata_gym/TaskAllocation-v0", num_envs=3).unwrapped.call("budget")
            (8, 8, 8)
        """
        if name in self._row_attributes:
            row_values = self._row_attributes[name]
            return tuple(
                value(*args, **kwargs) if callable(value) else value for value in row_values
            )
        value = getattr(self, name)
        if callable(value):
            result = value(*args, **kwargs)
        else:
            result = value
        if isinstance(result, np.ndarray) and result.shape[:1] == (self.num_envs,):
            return tuple(result)
        return (result,) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The attribute of that name, for each row."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Keep an attribute for each row, which ``get_attr`` and ``call`` give back.

        Args:
            name: A name that the envs do not have.
            values: A list or tuple with a value for each row, or another value for all rows.

        Raises:
            AttributeError: For an attribute of the envs; arguments and options of a reset change
                these.
            ValueError: For another number of values.

        Example:
            >>> import gymnasium, ata_gym
            >>> envs = gymnasium.make_vec("ata_gym/TaskAllocation-v0", num_envs=2)
            >>> envs.set_attr("level", [1, 3])
            >>> envs.get_attr("level")
            (1, 3)
        """
        if hasattr(self, name):
            raise AttributeError(
                f"{name} belongs to the envs and cannot be set: make them with other arguments, or"
                f" give reset(options=...), which takes {', '.join(OPTIONS)}",
            )
        if isinstance(values, list | tuple):
            row_values = tuple(values)
        else:
            row_values = (values,) * self.num_envs
        if len(row_values) != self.num_envs:
            raise ValueError(
                f"{name} has {len(row_values)} values; give one, or one for each of {self.num_envs}"
                " rows",
            )
        self._row_attributes[name] = row_values

    def _checkpoint_arrays(self) -> dict[str, NDArray[Any]]:
        if self._most_steps == np.inf:
            steps = {}
        else:
            steps = {"steps": self._steps}
        return super()._checkpoint_arrays() | steps

    def _ranges(self) -> dict[str, Within]:
        return super()._ranges() | {"steps": Within(0)}

    def _start(self, rows: Mask) -> None:
        self._interface.start_episode(rows)
        self._steps[rows] = 0
        self._ended[rows] = False

    def _restart(self, observation: Observation, info: Info, rows: Mask) -> Info:
        """Reset some rows, and put what they see into the observation.

        Return the info, in which the reset rows have the info of their reset.
        """
        self._start(rows)
        for (_, field), (_, first_field) in zip(
            leaves(observation),
            leaves(self._interface.observation(rows)),
            strict=True,
        ):
            field[rows] = first_field
        merged_info: Info = choose_rows(rows, self._interface.info(), info)
        return merged_info

    def _final(self, observation: Observation, info: Info, rows: Mask) -> Info:
        """The last observation and info of rows whose episodes have ended, in Gymnasium's form."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(rows):
            # Indexing with a list makes a copy.
            final_obs[row] = select_rows(select_rows(observation, [row]), 0)
        final = {"final_obs": final_obs, "final_info": _with_masks(info, rows)}
        return final | {f"_{name}": rows.copy() for name in final}


def _with_masks(info: Info, rows: Mask | None = None) -> Info:
    """The info of some rows (None: all), zeros in the others, with a mask for each key.

    The masks have the names that Gymnasium gives them.
    """
    if rows is None:
        return info | {f"_{name}": np.ones(len(value), np.bool_) for name, value in info.items()}
    chosen_rows: Info = choose_rows(rows, info, map_leaves(np.zeros_like, info))
    return chosen_rows | {f"_{name}": rows.copy() for name in info}
