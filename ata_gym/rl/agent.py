"""Trained agents as policies with a name: ``ata_gym.rl.agent:LearnedAgent:folder=DIR``.

It needs the extra ``rl``.
"""

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from ata_gym.envs.interface.worker_features import WorkerMemory
from ata_gym.pools import deterministic
from ata_gym.rl.specification import AgentSpec, policy_name
from ata_gym.scenarios import SPLITS
from ata_gym.typing import Ints
from ata_gym.utils.extras import require
from ata_gym.utils.files.json_files import fields, nullable, parse_object, text
from ata_gym.utils.files.manifest import read_checked
from ata_gym.utils.files.sealed import DamagedError
from ata_gym.utils.validation import flag, whole_number
from ata_policies.observations import Observation
from ata_policies.policy import DispatchPolicy, Policy, State
from ata_policies.registry import ids_by_name
from ata_policies.setting import Setting


class LearnedAgent(Policy):
    """The agent in a folder of ``ata-gym learn``; it plays without its own randomness.

    It reads ``config.json`` and the weights in ``agent.zip``, which runs no code. Agents of ppo and
    a2c play with any number of workers and any budget. An agent that was trained where workers pay
    a latency sees latencies; to others a latency is a part of the task times.

    Args:
        setting: What the policy knows of the scenario.
        seed: Seed of the policy, which has no effect on its actions.
        folder: The folder of the trained agent.

    Raises:
        ValueError: If there is no trained agent, it plays another env, or it has a network for
            another number of workers or another budget.
        MissingExtraError: If the extra ``rl`` is not installed.
    """

    source = "an agent trained by `ata-gym learn`"
    constants = "its weights"
    assumes = "workers like those that it was trained on"
    priced = True
    nonstationary = True
    # The agent was chosen on the seeds of the split "validation", so these count as trained on.
    trained_on = range(SPLITS["train"].start, SPLITS["validation"].stop)
    belief = WorkerMemory

    def __init__(self, setting: Setting, *, seed: int = 0, folder: str) -> None:
        super().__init__(setting, seed=seed)
        self._policy = _policy_class(Path(folder), self.env_id, setting)(setting, seed=seed)
        self.uses_latency = self._policy.uses_latency

    def act(self, state: State, observation: Observation) -> tuple[Ints, State]:
        return self._policy.act(state, observation)


class LearnedRaceAgent(LearnedAgent):
    """The agent in a folder of ``ata-gym learn``, for races; see ``LearnedAgent``."""

    env_id = ids_by_name()["race"]


class LearnedDispatchAgent(LearnedAgent, DispatchPolicy):
    """The agent in a folder of ``ata-gym learn``, for dispatch; see ``LearnedAgent``."""

    env_id = ids_by_name()["dispatch"]


def _policy_class(folder: Path, env_id: str, setting: Setting) -> type[Policy]:
    """The class of policies that play as the agent in the folder does."""
    require("stable_baselines3", extra="rl", purpose="A trained agent")
    from ata_gym.rl.sb3.vec_env import make_vec_env  # noqa: PLC0415 - it imports Stable-Baselines3

    config = _config(folder)
    weights = folder / "agent.zip"
    names = ("env", "algorithm", "action", "seed", "hyperparameters")
    try:
        spec = AgentSpec(**{name: config[name] for name in names})
    except ValueError as error:
        raise _config_error(folder, error) from error
    if spec.env_id != env_id:
        raise ValueError(
            f"the agent in {folder} plays {spec.env_id}: name it {policy_name(spec.env, folder)}",
        )
    if not spec.any_size and (config["n"], config["budget"]) != (setting.n, setting.budget):
        raise ValueError(
            f"the agent in {folder} has a network for {config['n']} workers and a budget of"
            f" {config['budget']}, not for {setting.n} and {setting.budget}",
        )
    # Only the spaces of this env are used, so its workers may be any.
    pool = deterministic([1.0] * setting.n)
    if config["latency"]:
        pool = pool.with_latency(1.0)
    envs = make_vec_env(env_id, 1, pool=pool, budget=setting.budget, **spec.form())
    try:
        agent = spec.make_for_play(envs)
    except ValueError as error:
        raise _config_error(folder, error) from error
    content = BytesIO(read_checked(weights))
    try:
        agent.set_parameters(content, device="cpu")
    # A file of another kind may raise any exception.
    except Exception as error:
        raise ValueError(f"{weights} does not hold the weights of this agent: {error}") from error
    return spec.policy_class(agent, envs.bare)


def _config_error(folder: Path, error: ValueError) -> ValueError:
    """The error of an agent whose configuration is not accepted."""
    return ValueError(f"by its config.json, the agent in {folder} cannot be made: {error}")


_CONFIG = fields(
    {
        "env": text,
        "algorithm": text,
        "action": text,
        "seed": partial(whole_number, least=0),
        "hyperparameters": fields(
            {"policy_kwargs": nullable(fields({}))},
            may_lack=["policy_kwargs"],
        ),
        "n": whole_number,
        "latency": flag,
        "budget": whole_number,
    },
)
"""The check of ``config.json``."""


def _config(folder: Path) -> dict[str, Any]:
    """Read the configuration of the agent in a folder, with ValueError if there is none."""
    path = folder / "config.json"
    message = f"{folder} holds no trained agent"
    if not path.exists() or not (folder / "agent.zip").is_file():
        raise ValueError(f"{message}: give the folder of an `ata-gym learn` that has ended")
    try:
        config = parse_object(read_checked(path))
        _CONFIG("", config)
    except DamagedError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{message}, as {path.name} is not its configuration: {error}") from error
    return config
