"""The part that single and vector envs share: scenario, reset options, privileged information and checkpoints."""

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
from ata_gym.scenarios import PoolData, Published, Scenario, resolve
from ata_gym.typing import Floats, Mask
from ata_gym.utils.ranges import Size, Within, fitted
from ata_gym.utils.validation import flag, short

OPTIONS = ("pool", "changes", "price", "horizon")  # what ``reset(options=...)`` takes


class EnvProperties:
    """A mixin: rows of a scenario, what an agent sees of them, their privileged information and checkpoints."""

    interface_arguments: tuple[str, str | None, str]  # the arguments observation, action and reward_unit
    action_space: Space[Any]
    _modes: ClassVar[Sequence[str]] = MODES  # of rendering
    _state_class: ClassVar[type[AllocationState] | type[DispatchState]]  # the class of states of this id
    _state: BatchState
    _interface: Interface
    _ended: Mask  # (E,) rows that need a reset before their next step
    _rows: int = 1
    _view: int | slice = 0  # what is shown of the rows: the only one, without a row axis, or all
    _shows_again: bool = False
    """Whether rows that are not reset are shown again, in a vector env whose rows are reset by a mask."""

    pool = property(attrgetter("scenario.pool"), doc="The workers and the distributions of their task times.")
    n = property(attrgetter("scenario.pool.n"), doc="How many workers there are.")
    budget = property(attrgetter("scenario.budget"), doc="Results B that a round needs.")
    horizon = property(attrgetter("scenario.horizon"), doc="Rounds in an episode; None: no end.")
    price = property(attrgetter("scenario.price"), doc="What one unit of worker time costs in units of runtime.")
    own_interface = property(
        attrgetter("_interface.own"), doc="Whether policies of the zoo can play: all is as the env has it by default."
    )

    def __init__(
        self, scenario: str | Scenario | Mapping[str, Any] | None = None, pool: PoolData | None = None,
        budget: int | None = None, horizon: int | None = None, price: float | None = None,
        changes: Iterable[Change | Mapping[str, Any]] | None = None, signals: bool = False,
        backend: Backend | DispatchBackend | None = None, observation: str = "feedback", action: str | None = None,
        reward_unit: str = "time", render_mode: str | None = None, unit_costs: Iterable[float] | None = None,
    ) -> None:  # fmt: skip
        self.render_mode, self._renderer = render_mode, renderer(render_mode, self._modes)
        self._signals, self._backend = flag("signals", signals), backend
        self.interface_arguments = observation, action, reward_unit
        self._spec: EnvSpec | None = None
        self._made_with = resolve(scenario, pool, budget, horizon, price, changes, unit_costs)
        self._begin(self._made_with)
        self._ended = np.ones(self._rows, np.bool_)
        self._make_spaces(self._interface.observation_space(), self._interface.form.space())

    def _make_spaces(self, observation: Space[Any], action: Space[Any]) -> None:
        raise NotImplementedError

    def _begin(self, scenario: Scenario) -> None:
        state = self._state_class(scenario, self._rows, self._signals, self._backend)
        self._interface = Interface(state, *self.interface_arguments, shows_again=self._shows_again)
        self._state = state
        if self._renderer is not None:
            self._interface.recorder = Recorder(state)

    @property
    def scenario(self) -> Scenario:
        """The pool, its changes, the budget, the horizon and the price; its name is "" if it has none."""
        return self._state.scenario

    @property
    def spec(self) -> EnvSpec | None:
        """How the env was made: Gymnasium sets it, and JSON can hold it, unless the env has a ``backend``."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            _check_length(spec, self._interface)
            spec = replace(spec, kwargs=plain_arguments(spec.kwargs, self._made_with))
        self._spec = spec

    def _take(self, options: Mapping[str, Any] | None) -> None:
        """Change the scenario as the options of a reset say; the noise stays that of the rows' seeds.

        ValueError, and no change, for options that there are not, and for another number of workers.
        """
        if not options:
            return
        unknown = [str(name) for name in options if name not in OPTIONS]
        if unknown:
            raise ValueError(f"reset takes the options {', '.join(OPTIONS)}, not {', '.join(unknown)}")
        given = dict(options)
        if "pool" in given:  # the new workers are not drawn anew, and nothing was published for them
            unchanged = tuple(c for c in self.scenario.changes if not isinstance(c, Redraw))
            given = {"changes": unchanged, "published": Published(), **given}
        scenario = replace(self.scenario, **given, name="")
        if scenario.pool.n != self.n:
            raise ValueError(
                f"the option pool must have {self.n} workers, as the spaces of this env have, not {scenario.pool.n}"
            )
        was, spaces = (self._state, self._interface), self._interface.observation_space()
        self._begin(scenario)
        try:
            self._check_fit(spaces, options)
        except ValueError:
            self._state, self._interface = was
            raise
        self._state.keys[:], self._state.episode[:] = was[0].keys, was[0].episode

    def _check_fit(self, spaces: Space[Any], options: Mapping[str, Any]) -> None:
        if self._interface.observation_space() != spaces:
            raise ValueError(f"with {short(options)} the observations would have other keys: make another env")
        if self.spec is not None:
            _check_length(self.spec, self._interface)

    def checked(self, actions: object) -> NDArray[Any]:
        """The actions of one step, of the shape of the action space; ValueError that says what is wrong with them."""
        return self._interface.form.check(actions, self.action_space.shape or ())

    def action_masks(self) -> Mask:
        """Which actions are of use in the next step, (k,), or (E, k) of a vector env, as sb3-contrib asks for them.

        AttributeError where the actions have no mask.
        """
        mask = self._interface.form.mask()
        if mask is None:
            raise AttributeError('only the actions "assign" and "start" have masks')
        return np.asarray(mask[self._view], np.bool_)

    def conditions(self) -> Conditions:
        """Privileged information: what the workers are like in the coming round, or in the one that has begun.

        The arrays have a leading row axis in a vector env only.
        """
        return self._state.conditions().row(self._view)

    def means(self) -> Floats:
        """Exact mean task times under these conditions, shape (n,), or (E, n) of a vector env.

        The mean is infinite for a worker that is away from the round's start. For a trace replayed by round it is the
        recorded time of the round. Without changes the other means are those of the pool.
        """
        return np.asarray(self._state.conditions().means(self.scenario.catalogue)[self._view])

    def show_estimates(self, estimates: Floats | None) -> None:
        """Show these estimates of the mean task times, (n,) or (E, n), when the rounds are rendered; NaN: unknown.

        They stay until others are given or the episode ends. Without them, and after None, the estimate is the time
        that each worker has spent in the episode, cancelled tasks too, over its results; without a result the mean is
        at least this time. Nothing happens in an env that is not rendered. ValueError for another shape.
        """
        shape = self._rows, self.n
        if estimates is not None and np.shape(estimates) not in (shape, shape[1:]):
            raise ValueError(f"estimates must have shape {shape[1:]} or {shape}, not {np.shape(estimates)}")
        if self._interface.recorder is not None:
            self._interface.recorder.show_estimates(estimates)

    def timeline(self, row: int = 0) -> Timeline:
        """What each worker did in the last round of a row, or does in a round that is not over; ``render`` shows it.

        ValueError if the env was made without ``render_mode``, as then nothing is recorded.

        >>> import gymnasium, ata_gym
        >>> pool = {"family": "deterministic", "scale": [2.0, 3.0]}
        >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, budget=3, render_mode="ansi").unwrapped
        >>> _ = env.reset(seed=0), env.step(np.array([2, 1]))
        >>> env.timeline().worker, env.timeline().start, env.timeline().end
        (array([0, 0, 1]), array([0., 2., 0.]), array([2., 4., 3.]))
        """
        if self._interface.recorder is None:
            raise ValueError('what workers do is recorded where it is rendered: make the env with render_mode="ansi"')
        return self._interface.recorder.timeline(row)

    def checkpoint(self) -> dict[str, NDArray[Any]]:
        """Everything that the env remembers, as arrays to save; after ``restore`` it goes on bit for bit."""
        return {name: field.copy() for name, field in self._remembered().items()}

    def restore(self, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``checkpoint`` of an env of the same scenario and as many rows.

        ValueError if it does not fit, or holds numbers that an env cannot have; the env stays as it was.
        """
        here, ranges = self._remembered(), self._ranges()
        try:
            given = {name: fitted(f"{name!r}", checkpoint.get(name), field) for name, field in here.items()}
            for name in given.keys() & ranges:
                ranges[name].check(f"{name!r}", given[name], Size(self.n, self.budget))
            self._state.check(given)
        except ValueError as error:
            raise ValueError(f"this checkpoint does not fit the env: {error}") from None
        for name, field in here.items():
            field[...] = given[name]
        self._state.process.update_conditions(self._state.round)
        if self._interface.recorder is not None:
            self._interface.recorder.start_episode(slice(None))

    def _ranges(self) -> dict[str, Within]:
        return self._state.ranges() | self._interface.ranges()

    def _remembered(self) -> dict[str, NDArray[Any]]:
        return self._state.remembered() | self._interface.remembered() | {"over": self._ended}


def _check_length(spec: EnvSpec, interface: Interface) -> None:
    """ValueError if episodes are longer than those of the env's id, at whose end Gymnasium truncates them."""
    registered = gym.registry.get(spec.id)
    if registered is None or registered.max_episode_steps is None:
        return
    if interface.most_steps > registered.max_episode_steps:
        short_id = f"{spec.namespace}/{spec.name.partition('-')[0]}-v{spec.version}"
        arguments = ", ".join(f"{name}={value!r}" for name, value in registered.kwargs.items())
        length = "no end" if interface.most_steps == math.inf else f"{interface.most_steps} steps"
        raise ValueError(
            f"{spec.id} truncates its episodes after {registered.max_episode_steps} steps, and these have {length}: "
            f"make {short_id} with {arguments}"
        )
