"""The part that single and vector envs share.

It has the scenario, reset options, privileged information and checkpoints.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Space
from numpy.typing import NDArray

from ata_gym.changes import Change, Conditions, Redraw
from ata_gym.envs.interface.interface import Interface
from ata_gym.envs.rendering.recorder import Recorder
from ata_gym.envs.rendering.renderer import MODES, renderer
from ata_gym.envs.rendering.timeline import Timeline
from ata_gym.envs.spec import plain_arguments
from ata_gym.envs.states.backend import Backend, DispatchBackend
from ata_gym.envs.states.batch_state import BatchState
from ata_gym.envs.states.dispatch import DispatchState
from ata_gym.envs.states.rounds import AllocationState
from ata_gym.pools.pool import LatencyData
from ata_gym.scenarios import PoolData, Published, Scenario, resolve
from ata_gym.typing import Floats, Mask
from ata_gym.utils.ranges import Size, Within, cast_like
from ata_gym.utils.validation import flag, short, whole_number

OPTIONS = ("pool", "changes", "price", "horizon")
"""The options that ``reset(options=...)`` takes."""


class EnvProperties:
    """A mixin for rows of a scenario, what an agent sees of them, and checkpoints.

    The arguments are described in ``ata_gym.envs.allocation.TaskAllocationEnv``.

    Raises:
        ValueError: For an argument that is not legal.
    """

    interface_arguments: tuple[str, str | None, str]
    """The arguments observation, action and reward_unit."""
    action_space: Space[Any]
    _modes: ClassVar[Sequence[str]] = MODES
    """The modes of rendering."""
    _state_class: ClassVar[type[AllocationState] | type[DispatchState]]
    """The class of states of this id."""
    _state: BatchState
    _interface: Interface
    _ended: Mask
    """The rows that need a reset before their next step, shape (E,)."""
    _rows: int = 1
    """The number of rows, E."""
    _view: int | slice = 0
    """The index of the rows in results: the only row, without a row axis, or all."""
    _shows_again: bool = False
    """Whether rows are shown again when others are reset, in a vector env with reset masks."""

    pool = property(
        attrgetter("scenario.pool"),
        doc="The workers and the distributions of their task times.",
    )
    n = property(attrgetter("scenario.pool.n"), doc="The number of workers.")
    budget = property(attrgetter("scenario.budget"), doc="The results B that a round needs.")
    horizon = property(
        attrgetter("scenario.horizon"),
        doc="The rounds in an episode; None means no end.",
    )
    price = property(
        attrgetter("scenario.price"),
        doc="The price of one unit of worker time in units of runtime.",
    )
    delay = property(
        attrgetter("_delay"),
        doc="The rounds after which the feedback of a round is shown.",
    )
    has_default_interface = property(
        attrgetter("_interface.is_default"),
        doc="Whether policies of the zoo can play: observations, actions and rewards are default.",
    )

    def __init__(
        self,
        scenario: str | Scenario | Mapping[str, Any] | None = None,
        pool: PoolData | None = None,
        budget: int | None = None,
        horizon: int | None = None,
        price: float | None = None,
        changes: Iterable[Change | Mapping[str, Any]] | None = None,
        signals: bool = False,
        backend: Backend | DispatchBackend | None = None,
        observation: str = "feedback",
        action: str | None = None,
        reward_unit: str = "time",
        render_mode: str | None = None,
        unit_costs: Iterable[float] | None = None,
        latency: LatencyData | None = None,
        delay: int = 0,
    ) -> None:
        self.render_mode = render_mode
        self._renderer = renderer(render_mode, self._modes)
        self._signals = flag("signals", signals)
        self._backend = backend
        self._delay = whole_number("delay", delay, least=0)
        self.interface_arguments = observation, action, reward_unit
        self._spec: EnvSpec | None = None
        self._first_scenario = resolve(
            scenario, pool, budget, horizon, price, changes, unit_costs, latency
        )
        self._begin(self._first_scenario)
        self._ended = np.ones(self._rows, np.bool_)
        self._make_spaces(self._interface.observation_space(), self._interface.form.space())

    def _make_spaces(self, observation: Space[Any], action: Space[Any]) -> None:
        raise NotImplementedError

    def _begin(self, scenario: Scenario) -> None:
        state = self._state_class(scenario, self._rows, self._signals, self._backend)
        self._interface = Interface(
            state,
            *self.interface_arguments,
            shows_again=self._shows_again,
            delay=self._delay,
        )
        self._state = state
        if self._renderer is not None:
            self._interface.recorder = Recorder(state)

    @property
    def scenario(self) -> Scenario:
        """The pool, its changes, the budget, the horizon and the price.

        Its name is "" if it has none.
        """
        return self._state.scenario

    @property
    def spec(self) -> EnvSpec | None:
        """The spec of the env, from which Gymnasium can make it again.

        Gymnasium sets it, and JSON can hold it, unless the env has a ``backend``.
        """
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            _check_length(spec, self._interface)
            spec = replace(spec, kwargs=plain_arguments(spec.kwargs, self._first_scenario))
        self._spec = spec

    def _apply_options(self, options: Mapping[str, Any] | None) -> None:
        """Change the scenario as the options of a reset say.

        The noise still follows from the rows' seeds.

        Raises:
            ValueError: For an unknown option, and for another number of workers; nothing changes.
        """
        if not options:
            return
        unknown = [str(name) for name in options if name not in OPTIONS]
        if unknown:
            raise ValueError(
                f"reset takes the options {', '.join(OPTIONS)}, not {', '.join(unknown)}",
            )
        fields = dict(options)
        # The workers of a new pool are not drawn anew, and nothing was published for them.
        if "pool" in fields:
            unchanged = tuple(c for c in self.scenario.changes if not isinstance(c, Redraw))
            fields = {"changes": unchanged, "published": Published(), **fields}
        scenario = replace(self.scenario, **fields, name="")
        if scenario.pool.n != self.n:
            raise ValueError(
                f"the option pool must have {self.n} workers, as the spaces of this env have, not"
                f" {scenario.pool.n}",
            )
        previous = (self._state, self._interface)
        space = self._interface.observation_space()
        self._begin(scenario)
        try:
            self._check_spaces(space, options)
        except ValueError:
            self._state, self._interface = previous
            raise
        self._state.keys[:] = previous[0].keys
        self._state.episode[:] = previous[0].episode

    def _check_spaces(self, space: Space[Any], options: Mapping[str, Any]) -> None:
        if self._interface.observation_space() != space:
            raise ValueError(
                f"with {short(options)} the observations would have other keys: make another env",
            )
        if self.spec is not None:
            _check_length(self.spec, self._interface)

    def check_actions(self, actions: object) -> NDArray[Any]:
        """The actions of one step, of the shape of the action space.

        Raises:
            ValueError: If they are not legal; the message says what is wrong.
        """
        return self._interface.form.check(actions, self.action_space.shape or ())

    def action_masks(self) -> Mask:
        """The actions that are of use in the next step, shape (k,), or (E, k) of a vector env.

        This is the method that sb3-contrib calls.

        Raises:
            AttributeError: If the actions have no mask.
        """
        mask = self._interface.form.mask()
        if mask is None:
            raise AttributeError('only the actions "assign" and "start" have masks')
        return np.asarray(mask[self._view], np.bool_)

    def conditions(self) -> Conditions:
        """Privileged information: the conditions of the workers in the coming round.

        Once a round has begun, they are the conditions of that round. The arrays have a leading row
        axis in a vector env only. Where workers follow the load, they are the conditions after what
        was asked in the episode so far, without what ``ShareTime`` will make of the allocation.
        """
        return self._state.conditions().row(self._view)

    def means(self) -> Floats:
        """Exact mean task times under these conditions, shape (n,), or (E, n) of a vector env.

        The mean is infinite for a worker that is away from the round's start. For a trace replayed
        by round it is the recorded time of the round. Without changes the other means are the means
        of the pool.
        """
        return np.asarray(self._state.conditions().means(self.scenario.catalogue)[self._view])

    def show_estimates(self, estimates: Floats | None) -> None:
        """Show estimates of the mean task times when the rounds are rendered.

        They stay until others are given or the episode ends. Nothing happens in an env that is not
        rendered.

        Args:
            estimates: The estimates, shape (n,) or (E, n), in units of time; NaN means unknown. By
                default, and with None, the estimate is the time that a worker has spent in the
                episode, with cancelled tasks, over its results. Without a result, the mean is at
                least this time.

        Raises:
            ValueError: For another shape.
        """
        shape = self._rows, self.n
        if estimates is not None and np.shape(estimates) not in (shape, shape[1:]):
            raise ValueError(
                f"estimates must have shape {shape[1:]} or {shape}, not {np.shape(estimates)}",
            )
        if self._interface.recorder is not None:
            self._interface.recorder.show_estimates(estimates)

    def timeline(self, row: int = 0) -> Timeline:
        """The tasks of each worker in the last round of a row, as ``render`` shows them.

        In dispatch the round may not be over yet.

        Raises:
            ValueError: If the env was made without ``render_mode``, as then nothing is recorded.

        Example:
            >>> import gymnasium, ata_gym
            >>> pool = {"family": "deterministic", "scale": [2.0, 3.0]}
            >>> env = gymnasium.make(
            ...     "ata_gym/TaskAllocation-v0", pool=pool, budget=3, render_mode="ansi"
            ... ).unwrapped
            >>> _ = env.reset(seed=0), env.step(np.array([2, 1]))
            >>> env.timeline().worker, env.timeline().start, env.timeline().end
            (array([0, 0, 1]), array([0., 2., 0.]), array([2., 4., 3.]))
        """
        if self._interface.recorder is None:
            raise ValueError(
                "what workers do is recorded where it is rendered: make the env with"
                ' render_mode="ansi"',
            )
        return self._interface.recorder.timeline(row)

    def checkpoint(self) -> dict[str, NDArray[Any]]:
        """Everything that the env remembers, as arrays to save.

        After ``restore`` the env goes on bit for bit.
        """
        return {name: field.copy() for name, field in self._checkpoint_arrays().items()}

    def restore(self, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``checkpoint`` of an env of the same scenario and as many rows.

        Raises:
            ValueError: If it does not fit, or holds numbers that an env cannot have; the env stays
                as it was.
        """
        arrays = self._checkpoint_arrays()
        ranges = self._ranges()
        try:
            restored = {
                name: cast_like(f"{name!r}", checkpoint.get(name), field)
                for name, field in arrays.items()
            }
            for name in restored.keys() & ranges:
                ranges[name].check(f"{name!r}", restored[name], Size(self.n, self.budget))
            self._state.check(restored)
        except ValueError as error:
            raise ValueError(f"this checkpoint does not fit the env: {error}") from None
        # All of it fits, so that the env changes as a whole.
        for name, field in arrays.items():
            field[...] = restored[name]
        # No checkpoint holds the conditions of a round, which follow from the keys.
        self._state.process.update_conditions(
            self._state.keys, self._state.episode, self._state.round
        )
        if self._interface.recorder is not None:
            self._interface.recorder.start_episode(slice(None))

    def _ranges(self) -> dict[str, Within]:
        return self._state.ranges() | self._interface.ranges()

    def _checkpoint_arrays(self) -> dict[str, NDArray[Any]]:
        return (
            self._state.checkpoint_arrays()
            | self._interface.checkpoint_arrays()
            | {"ended": self._ended}
        )


def _check_length(spec: EnvSpec, interface: Interface) -> None:
    """Check that Gymnasium does not truncate the episodes before their end.

    Raises:
        ValueError: If they are longer than the largest number of steps of the env's id.
    """
    registered_spec = gym.registry.get(spec.id)
    if registered_spec is None or registered_spec.max_episode_steps is None:
        return
    if interface.most_steps > registered_spec.max_episode_steps:
        short_id = f"{spec.namespace}/{spec.name.partition('-')[0]}-v{spec.version}"
        arguments = ", ".join(f"{name}={value!r}" for name, value in registered_spec.kwargs.items())
        if interface.most_steps == math.inf:
            length = "no end"
        else:
            length = f"{interface.most_steps} steps"
        raise ValueError(
            f"{spec.id} truncates its episodes after {registered_spec.max_episode_steps} steps, and"
            f" these have {length}: make {short_id} with {arguments}",
        )
