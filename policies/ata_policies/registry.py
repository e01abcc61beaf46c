"""Policies by name: our presets, and policies of a user's own package.

A package names its policies in the entry-point group ``ata_gym.policies``.
"""

import ast
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym

from ata_gym.utils.compiled import compile_together
from ata_gym.utils.extras import load_object
from ata_gym.utils.validation import not_an_env, unknown
from ata_policies.policy import Policy
from ata_policies.presets import PRESETS, Preset
from ata_policies.setting import Setting

GROUP = "ata_gym.policies"
_LOG = logging.getLogger("ata_policies")

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "ata_gym/TaskAllocation-v0": "distribution-learner",
        "ata_gym/TaskRace-v0": "race",
        "ata_gym/TaskDispatch-v0": "dispatch",
    },
)
"""The policy that ``make("default", env)`` makes, by the id of the env.

Where no env is known, it is the first one.
"""

RECOMMENDED: tuple[Mapping[str, str], ...] = (
    MappingProxyType(
        {
            "distribution-learner": "hand out exactly B tasks and wait for all of them",
            "learned": "the same, for some 50 rounds under a periodic load",
            "race": "may cancel what is late",
            "dispatch": "may decide at each result who starts one more task",
            "restarting-beta": "must decide within a millisecond",
            "lb-bsp-ema": "give every worker some work in each step",
        },
    ),
    MappingProxyType(
        {
            "ata": "compare with the paper: ATA",
            "ata-empirical": "compare with the paper: ATA-Empirical",
            "ata-icml": "compare with the paper: ATA with its poster's constants",
            "ata-empirical-icml": "compare with the paper: ATA-Empirical with the same",
        },
    ),
    MappingProxyType(
        {
            "ofta": "ask what is possible: knows the means",
            "oracle": "ask what is possible: knows the distributions",
            "dynamic-oracle": "ask what is possible: knows each round's distributions",
        },
    ),
)
"""The policies to choose from first: who each is for, "you" being the subject.

They learn, are published, or know more than a policy can. The table in README.md says more.
"""

PolicyMaker = type[Policy] | Preset  # what makes a policy for a setting, and describes it
Env = gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]


class RegisteredPolicy(NamedTuple):
    """A policy that is given as an object, and has a name in this process only."""

    maker: PolicyMaker
    """What makes it for a setting."""
    source: str | None = None
    """All that its decisions depend on, as text: its code and its hyperparameters.

    None where that is not known.
    """
    original: "type[Policy] | Policy | None" = None
    """What was given."""


_registered: dict[str, RegisteredPolicy] = {}


@contextmanager
def registered(policies: Mapping[str, RegisteredPolicy]) -> Iterator[None]:
    """Let ``load`` and ``make`` find these policies by their names, inside the block.

    Args:
        policies: The policies by name.

    Raises:
        ValueError: If a name is taken.
    """
    taken = sorted(policies.keys() & {"default", *names(), *_registered})
    if taken:
        raise ValueError(
            f"{', '.join(taken)} is the name of another policy: give yours a name of its own",
        )
    _registered.update(policies)
    try:
        yield
    finally:
        for name in policies:
            del _registered[name]


def registered_source(name: str) -> str | None:
    """Return the source of a policy that is given as an object.

    None for all others, which have files.
    """
    base, _ = parse(name)
    if base in _registered:
        return _registered[base].source
    return None


def names() -> tuple[str, ...]:
    """Return the names of all presets and installed policies."""
    return tuple(sorted({*PRESETS, *_installed(tuple(sys.path))}))


@cache
def _installed(_path: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the places of the policies that installed packages have, by name.

    They are read once for each search path, since that takes milliseconds.
    """
    points = entry_points(group=GROUP)
    places = {}
    for name in points.names:
        places[name] = sorted({point.value for point in points.select(name=name)})
    return places


def default_name(env_id: str) -> str:
    """Return the name of the policy to use for an env without a reason for another.

    Raises:
        ValueError: If no default is named for the env.

    Example:
        >>> default_name("ata_gym/TaskRace-v0")
        'race'
    """
    if env_id not in DEFAULTS:
        raise ValueError(
            f"no default policy is named for {env_id}, only for {' and '.join(DEFAULTS)}",
        )
    return DEFAULTS[env_id]


def full_name(name: str, env_id: str = next(iter(DEFAULTS))) -> str:
    """Return the name of a policy, and for "default" the name of an env's default policy.

    The hyperparameters that follow the name are kept.

    Args:
        name: A name, maybe with hyperparameters.
        env_id: The env; by default ``ata_gym/TaskAllocation-v0``.

    Raises:
        ValueError: If no default is named for the env.

    Example:
        >>> full_name("default:explore=0"), full_name("ata")
        ('distribution-learner:explore=0', 'ata')
        >>> full_name("default", "ata_gym/TaskRace-v0")
        'race'
    """
    base, _ = parse(name)
    if base == "default":
        return default_name(env_id) + name.removeprefix(base)
    return name


def explain_default(env: Env) -> str:
    """Return which policy ``make("default", env)`` makes, and why, in a line.

    Raises:
        ValueError: If no default is named for the env.

    Example:
        >>> import ata_gym
        >>> explain_default(gym.make("ata_gym/TaskRace-v0", scenario="icml2025-regret"))[:80]
        'default: race plays ata_gym/TaskRace-v0 with 20 workers, B = 5 and price 0: it c'
    """
    setting = Setting.from_env(env)
    env_id = id_of(env)
    return (
        f"default: {default_name(env_id)} plays {env_id} with {setting.n} workers, B ="
        f" {setting.budget} and price {setting.price:g}: it costs the least, or nearly, of all"
        " learners on the leaderboard's sets of scenarios, where workers stay as they are and"
        " where they change"
    )


def parse(name: str) -> tuple[str, dict[str, Any]]:
    """Split ``name:key=value:...`` into the name and its hyperparameters.

    A value is a literal of Python, or text; nan and inf are numbers, too.

    Raises:
        ValueError: If a hyperparameter is no ``key=value``, or is given twice.

    Example:
        >>> parse("ata:alpha=inf")
        ('ata', {'alpha': inf})
        >>> parse("package.module:Class:file=prior.npz:size=4")
        ('package.module:Class', {'file': 'prior.npz', 'size': 4})
        >>> parse("package.module:Class")
        ('package.module:Class', {})
    """
    if not isinstance(name, str):
        raise ValueError(  # noqa: TRY004
            f'a policy is named by a text such as "ata" or "ata:alpha=0.5", not by {name!r}',
        )
    # the first hyperparameter's key ends the head, since ``package.module:Class`` has a colon, too
    head, equals, tail = name.partition("=")
    if not equals:
        return name, {}
    base, _, first_key = head.rpartition(":")
    hyperparameters: dict[str, Any] = {}
    for assignment in f"{first_key}={tail}".split(":"):
        key, equals, value = assignment.partition("=")
        if not (base and equals and key.isidentifier() and key not in hyperparameters):
            raise ValueError(
                f"hyperparameters follow a policy's name as :key=value, each once; {name!r} is"
                " not so",
            )
        try:
            hyperparameters[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            number = value.lower().lstrip("+-") in {"nan", "inf"}
            if number:
                hyperparameters[key] = float(value)
            else:
                hyperparameters[key] = value
    return base, hyperparameters


def load(name: str) -> PolicyMaker:
    """Return the preset or policy class of a name, or of ``package.module:Class``.

    Hyperparameters in the name are ignored. "default" is the default of TaskAllocation-v0.

    Raises:
        ValueError: If there is none (the message names the nearest one), if it is no policy, if its
            module cannot be imported, or if two packages have one of that name.
    """
    name, _ = parse(full_name(name))
    if name in _registered:
        return _registered[name].maker
    if ":" in name:
        maker = load_object("policy", name)
    else:
        if name in PRESETS:
            ours = ["ata_policies"]
        else:
            ours = []
        places = ours + _installed(tuple(sys.path)).get(name, [])
        if not places:
            raise unknown("policy", name, names())
        if len(places) > 1:
            raise ValueError(
                f"several policies are named {name!r}, in {' and '.join(places)}: say which as"
                " package.module:Class",
            )
        if ours:
            maker = PRESETS[name]
        else:
            maker = load_object("policy", places[0])
    if not (isinstance(maker, Preset) or (isinstance(maker, type) and issubclass(maker, Policy))):
        raise ValueError(  # noqa: TRY004
            f"{name} is no policy: make it a subclass of AllocationPolicy or DispatchPolicy",
        )
    return maker


def is_of_zoo(policy: PolicyMaker) -> bool:
    """Return whether a preset or class is of this package, whose tests compare what it decides.

    Example:
        >>> is_of_zoo(load("ata"))
        True
    """
    return policy.__module__.startswith("ata_policies.")


def make(name: str, env: Env, seed: int = 0, **hyperparameters: Any) -> Policy:
    """Make the policy of that name for a single or a vector env.

    Large kernels that are not compiled yet are compiled in other processes meanwhile.

    Args:
        name: One of ``names``, ``package.module:Class``, or "default", with hyperparameters (see
            ``parse``). The logger "ata_policies" says at level INFO which policy the default is,
            and why (see ``explain_default``).
        env: Tells the number of workers, the budget, the price, the pool, and published numbers.
        seed: The seed of the policy's own randomness; row e of a vector env has ``seed + e``.
        hyperparameters: Such as ``alpha`` of ATA; of a composed policy also ``memory``,
            ``estimate`` and ``rule``.

    Raises:
        ValueError: If there is no such policy or hyperparameter, a needed one cannot be found, or
            the policy plays another env, or the env with other observations or actions.

    Example:
        >>> import ata_gym
        >>> env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
        >>> observation, _ = env.reset(seed=0)
        >>> policy = make("thompson", env, memory="restarting", rule="beta")
        >>> allocation, state = policy.predict(observation)
        >>> int(allocation.sum())
        5
    """
    env_id = id_of(env)
    _check_own_actions(env, env_id)
    policy = make_for(name, Setting.from_env(env), env_id, seed, **hyperparameters)
    if parse(name)[0] == "default":
        _LOG.info(explain_default(env))
    return policy


def make_for(
    name: str,
    setting: Setting,
    env_id: str,
    seed: int = 0,
    **hyperparameters: Any,
) -> Policy:
    """Make the policy of that name for a setting, without an env.

    Args:
        name: As for ``make``.
        setting: What may be known of the scenario.
        env_id: The env that the policy is to play.
        seed: As for ``make``.
        hyperparameters: As for ``make``.

    Raises:
        ValueError: As for ``make``.

    Example:
        >>> make_for("default", Setting(n=4, budget=16), "ata_gym/TaskRace-v0").summary()[:30]
        'Learns the distributions, and '
    """
    name, name_hyperparameters = parse(full_name(name, env_id))
    maker = load(name)
    check_plays(maker, env_id)
    chosen = {**name_hyperparameters, **hyperparameters}
    try:
        policy = maker(setting, seed=seed, **chosen)
    except TypeError as error:
        raise ValueError(f"policy {name!r} does not take these hyperparameters: {error}") from error
    compile_together(policy.kernels)
    return policy


def _check_own_actions(env: Env, env_id: str) -> None:
    """Raise ValueError unless the env has the actions and the feedback that policies know."""
    bare: Any = env.unwrapped
    action = getattr(env, "single_action_space", env.action_space)
    own_action = getattr(bare, "single_action_space", bare.action_space)
    if not bare.has_default_interface or action != own_action:
        raise ValueError(
            f"policies play the actions and observations that {env_id} has by default, and this env"
            f" has others ({action}): make one without observation=, action= and reward_unit=, and"
            " without wrappers of actions",
        )


def check_plays(policy: PolicyMaker, env_id: str) -> None:
    """Check that the policy plays the env of this id.

    Raises:
        ValueError: If it does not.
    """
    if policy.env_id != env_id:
        raise ValueError(f"{policy.__name__} plays {policy.env_id}, and this env is {env_id}")


def env_ids() -> tuple[str, ...]:
    """Return the ids of the envs that policies play.

    They are the envs with their own observations and actions.
    """
    return tuple(
        env_id
        for env_id, spec in gym.registry.items()
        if spec.namespace == "ata_gym" and not spec.kwargs
    )


def short_name(env_id: str) -> str:
    """Return the short name of an env.

    Example:
        >>> short_name("ata_gym/TaskRace-v0")
        'race'
    """
    return gym.spec(env_id).name.removeprefix("Task").lower()


def ids_by_name() -> dict[str, str]:
    """Return the ids of the envs that policies play, by their short names."""
    return {short_name(env_id): env_id for env_id in env_ids()}


def id_of(env: Env) -> str:
    """Return the id of a single or a vector env, however it was made and wrapped.

    Raises:
        ValueError: If it is an env of another project.

    Example:
        >>> import ata_gym
        >>> id_of(gym.make_vec("ata_gym/TaskRace-v0", num_envs=2, scenario="icml2025-regret"))
        'ata_gym/TaskRace-v0'
    """
    ours = [gym.spec(env_id) for env_id in env_ids()]
    ids: dict[Any, str] = {spec.entry_point: spec.id for spec in ours}
    ids |= {spec.vector_entry_point: spec.id for spec in ours}
    # an env may be of a subclass of ours
    for kind in type(getattr(env, "unwrapped", None)).__mro__:
        env_id = ids.get(f"{kind.__module__}:{kind.__qualname__}")
        if env_id is not None:
            return env_id
    raise not_an_env(env)
