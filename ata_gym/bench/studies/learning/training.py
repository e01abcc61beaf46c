"""A training of Stable-Baselines3 with evaluations between rollouts.

After a kill it goes on where it stopped.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any
from zipfile import ZipFile, ZipInfo

import ata_gym.rl.needs_sb3  # noqa: F401 - before the modules that need torch

import numpy as np
import polars as pl
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure

from ata_gym.bench.store.folder import Folder, begin, discard, write_frame
from ata_gym.bench.store.provenance import Provenance
from ata_gym.bench.studies.learning.experiment import END, START, Learning, play, ratios
from ata_gym.models.checkpoint import pack, unpack
from ata_gym.rl.sb3.vec_env import make_vec_env
from ata_gym.utils.files.manifest import write_listed
from ata_gym.utils.files.sealed import load_checkpoint, save_checkpoint
from ata_gym.utils.process.signals import stop_requested


def agent_file(folder: Path) -> Path:
    """The path of the trained agent in a results folder."""
    return folder / "agent.zip"


_RUN_ATTRIBUTES = (
    "start_time",
    "ep_info_buffer",
    "ep_success_buffer",
    "tensorboard_log",
    "_total_timesteps",
    "_num_timesteps_at_start",
    "_last_obs",
    "_last_episode_starts",
    "_last_original_obs",
)
"""The attributes of a run that Stable-Baselines3 keeps in its agent.

They depend on the clock, and on where the run was killed.
"""


def save_agent(agent: Any, path: Path) -> None:
    """Write an agent as ``agent.save`` does, but the same bytes for the same agent.

    ``load`` of its class reads the file. The dates in the archive, the addresses of objects in its
    descriptions, and the attributes of the run are left out.

    Args:
        agent: The agent.
        path: The path of the archive.
    """
    # Sampling has drawn from the generator of the space.
    agent.observation_space.seed(agent.seed)
    agent.save(content := BytesIO(), exclude=_RUN_ATTRIBUTES)
    with ZipFile(content) as original, ZipFile(path, "w") as archive:
        for name in original.namelist():
            member = original.read(name)
            if name == "data":
                descriptions = {
                    key: _without_address(value) for key, value in json.loads(member).items()
                }
                member = json.dumps(descriptions, indent=4).encode()
            # A ``ZipInfo`` has a fixed date.
            archive.writestr(ZipInfo(name), member)


def _without_address(value: Any) -> Any:
    """The description of an object without its address: its pickle and its type are read."""
    if not isinstance(value, dict) or ":serialized:" not in value:
        return value
    return {key: value[key] for key in (":type:", ":serialized:")}


def training_files(folder: Folder) -> tuple[Path, Path, Path]:
    """The paths of the curve, the results of the first and the last agent, and the checkpoint."""
    checkpoint = folder.path / "checkpoints" / "training.pt"
    return folder.result("curve"), folder.result("ends"), checkpoint


def make_agent(learning: Learning) -> Any:
    """Make the untrained agent on its rows.

    Args:
        learning: The training as data.

    Raises:
        ValueError: If the algorithm does not take the hyperparameters.
    """
    spec = learning.agent
    envs = make_vec_env(spec.env_id, learning.rows, scenario=learning.scenario, **spec.form())
    return spec.make(envs)


def rollout(learning: Learning, agent: Any) -> int:
    """The steps over all rows between two moments at which the agent may be evaluated."""
    if hasattr(agent, "rollout_buffer"):
        steps = agent.n_steps
    else:
        steps = agent.train_freq.frequency
    return int(steps) * learning.rows


def train(
    learning: Learning,
    folder: Folder,
    agent: Any,
    validation: pl.DataFrame,
    made_by: Provenance,
    progress: Callable[[int], None],
    save_every: float,
) -> None:
    """Train to the end, and write the best agent, the curve and the results of two agents.

    The two agents are the first and the last one, on the test seeds.

    Args:
        learning: The training as data.
        folder: The results folder.
        agent: The untrained agent.
        validation: Rows of ``SCHEMA`` of the references on the validation seeds.
        made_by: The code that the results come from.
        progress: Called with the steps that are done.
        save_every: Seconds between two checkpoints.
    """
    curve, ends, checkpoint = training_files(folder)
    start_weights = _weights(agent)
    agent.set_logger(configure(str(folder.path / "tensorboard"), ["tensorboard"]))
    with stop_requested() as stop:
        callback = _BetweenRollouts(
            learning, agent, validation, checkpoint, progress, stop, save_every
        )
        if not callback.resume():
            begin(checkpoint, made_by)
        agent.learn(
            learning.steps - agent.num_timesteps,
            callback=callback,
            reset_num_timesteps=False,
        )
        # The end of the block raises the interrupt that was held back.
        if callback.stopped:
            return
        callback.evaluate_if_due(last=True)
        agent.logger.close()
        agent_policy = learning.agent.policy_class(agent, agent.env.bare)
        played = []
        for name, weights in ((START, start_weights), (END, _weights(agent))):
            agent.policy.load_state_dict(weights)
            played.append(play(agent_policy, learning.test, name))
        write_frame(ends, pl.concat(played), made_by)
        agent.policy.load_state_dict(callback.best)
        write_listed(agent_file(folder.path), partial(save_agent, agent))
        write_frame(curve, pl.DataFrame(callback.curve), made_by)
        discard(checkpoint)


def _weights(agent: Any) -> dict[str, Any]:
    """A copy of the weights."""
    return {name: tensor.clone() for name, tensor in agent.policy.state_dict().items()}


@dataclass(eq=False)
class _BetweenRollouts(BaseCallback):
    """A callback that evaluates the agent where it is due, and saves the state of a training.

    Stable-Baselines3's ``EvalCallback`` compares with no reference on the same seeds, and from its
    ``CheckpointCallback`` a training does not go on with the same numbers: it keeps no env and no
    random generator.
    """

    learning: Learning
    agent: Any
    validation: pl.DataFrame
    saved: Path
    progress: Callable[[int], None]
    stop: Callable[[], bool]
    save_every: float
    stopped: bool = False
    curve: list[dict[str, float]] = field(default_factory=list)
    best: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self._agent_policy = self.learning.agent.policy_class(self.agent, self.agent.env.bare)
        self._last_save = perf_counter()

    def resume(self) -> bool:
        """Go on from a checkpoint, and return whether there is one."""
        tree = load_checkpoint(self.saved, unpack)
        if tree is None:
            return False
        self.curve = tree["curve"]
        self.best = tree["best"]
        restore(self.agent, tree["run"])
        return True

    def evaluate_if_due(self, last: bool = False) -> bool:
        """Evaluate the agent on the validation seeds if it is due, and return whether it was.

        The random draws of the training stay as they were.

        Args:
            last: Whether the training has ended, so that an evaluation is due in any case.
        """
        steps = self.agent.num_timesteps
        if self.curve:
            last_steps = self.curve[-1]["steps"]
        else:
            last_steps = -1
        due = self.learning.due
        if steps == last_steps or (
            last_steps >= 0 and not last and due(steps) == due(int(last_steps))
        ):
            return False
        generator = torch.get_rng_state()
        estimates = ratios(self.validation, play(self._agent_policy, self.learning.validation))
        torch.set_rng_state(generator)
        costs = {f"cost/{name}": mean for name, (mean, _, _) in estimates.items()}
        reference = next(iter(costs))
        if not self.curve or costs[reference] < min(
            evaluation[reference] for evaluation in self.curve
        ):
            self.best = _weights(self.agent)
        self.curve.append({"steps": steps, **costs})
        for name, ratio in costs.items():
            self.agent.logger.record(f"validation/{name}", ratio)
        self.agent.logger.dump(steps)
        return True

    def _on_rollout_start(self) -> None:
        """Evaluate and save, where it is due."""
        evaluated = self.evaluate_if_due()
        self.stopped = self.stop()
        if evaluated or self.stopped or perf_counter() - self._last_save >= self.save_every:
            tree = {"curve": self.curve, "best": self.best, "run": run_state(self.agent)}
            save_checkpoint(self.saved, pack(tree))
            self._last_save = perf_counter()

    def _on_step(self) -> bool:
        """Report progress, and return whether the training goes on."""
        self.progress(self.num_timesteps)
        return not self.stopped


_COUNTERS = (
    "num_timesteps",
    "_n_updates",
    "_n_calls",
    "_episode_num",
    "_current_progress_remaining",
)
_BUFFER_ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def run_state(agent: Any) -> dict[str, Any]:
    """The state of the agent, its env, its replay buffer and all its random generators."""
    agent.save(weights := BytesIO())
    kind, words, *rest = np.random.get_state()  # noqa: NPY002 - Stable-Baselines3 draws from it
    assert kind == "MT19937"
    tree = {
        "counters": {name: getattr(agent, name) for name in _COUNTERS if hasattr(agent, name)},
        # The archive also holds the state of the optimizer.
        "weights": np.frombuffer(bytearray(weights.getvalue()), np.uint8),
        "torch": torch.get_rng_state(),
        "numpy": {"words": words, "rest": json.dumps(rest)},
        "space": json.dumps(agent.action_space.np_random.bit_generator.state),
        "env": agent.env.bare.checkpoint(),
        "observation": agent._last_obs,
        "starts": agent._last_episode_starts,
    }
    buffer = getattr(agent, "replay_buffer", None)
    if isinstance(buffer, ReplayBuffer):
        if buffer.full:
            size = buffer.buffer_size
        else:
            size = buffer.pos
        tree["buffer"] = {"pos": buffer.pos, "full": buffer.full}
        tree["buffer"] |= {name: getattr(buffer, name)[:size] for name in _BUFFER_ARRAYS}
    return tree


def restore(agent: Any, tree: dict[str, Any]) -> None:
    """Bring an agent that was made in the same way to a state of :func:`run_state`.

    Its ``learn`` then goes on from there.

    Args:
        agent: The agent, which is changed.
        tree: The state, loaded from a checkpoint.
    """
    for name, value in tree["counters"].items():
        setattr(agent, name, value)
    agent.set_parameters(BytesIO(tree["weights"].numpy().tobytes()), device="cpu")
    agent.env.reset()
    agent.env.bare.restore({name: tensor.numpy() for name, tensor in tree["env"].items()})
    agent._last_obs = tree["observation"].numpy()
    agent._last_episode_starts = tree["starts"].numpy()
    if "buffer" in tree:
        content = tree["buffer"]
        buffer = agent.replay_buffer
        buffer.pos = content["pos"]
        buffer.full = content["full"]
        for name in _BUFFER_ARRAYS:
            getattr(buffer, name)[: len(content[name])] = content[name].numpy()
    # The generators come last, since what is above may draw from them.
    torch.set_rng_state(tree["torch"])
    words = tree["numpy"]["words"].numpy()
    np.random.set_state(("MT19937", words, *json.loads(tree["numpy"]["rest"])))  # noqa: NPY002
    agent.action_space.np_random.bit_generator.state = json.loads(tree["space"])
