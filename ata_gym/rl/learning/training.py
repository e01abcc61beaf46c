"""A training of Stable-Baselines3 with evaluations between rollouts, which goes on where it was if it is killed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any
from zipfile import ZipFile, ZipInfo

import ata_gym.rl.needs_sb3  # noqa: F401 - before what needs torch

import numpy as np
import polars as pl
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure

from ata_gym.bench.experiment.provenance import Provenance
from ata_gym.bench.experiment.store import Folder, begin, discard, write_frame
from ata_gym.rl.learning.experiment import END, START, Learning, play, ratios
from ata_gym.rl.sb3.vec_env import make_vec_env
from ata_gym.training.models.checkpoint import pack, unpack
from ata_gym.utils.manifest import write_listed
from ata_gym.utils.sealed import load_checkpoint, save_checkpoint
from ata_gym.utils.signals import stop_requested


def agent_file(folder: Path) -> Path:
    """The trained agent in a results folder."""
    return folder / "agent.zip"


_OF_RUN = (
    *("start_time", "ep_info_buffer", "ep_success_buffer", "tensorboard_log"),
    *("_total_timesteps", "_num_timesteps_at_start", "_last_obs", "_last_episode_starts", "_last_original_obs"),
)
"""What Stable-Baselines3 keeps of a run beside its agent; it hangs on the clock, and on where the run was killed."""


def save_agent(agent: Any, path: Path) -> None:
    """Write an agent as ``agent.save`` does, for ``load`` of its class, but the same bytes for the same agent.

    The dates in the archive, the addresses of objects in its descriptions, and what is of the run are left out.
    """
    agent.observation_space.seed(agent.seed)  # sampling has drawn from it
    agent.save(content := BytesIO(), exclude=_OF_RUN)
    with ZipFile(content) as written, ZipFile(path, "w") as archive:
        for name in written.namelist():
            part = written.read(name)
            if name == "data":
                whole = json.loads(part)
                part = json.dumps({key: _described(value) for key, value in whole.items()}, indent=4).encode()
            archive.writestr(ZipInfo(name), part)


def _described(value: Any) -> Any:  # what is read of an object: its pickle, and its type
    if not isinstance(value, dict) or ":serialized:" not in value:
        return value
    return {key: value[key] for key in (":type:", ":serialized:")}


def training_files(folder: Folder) -> tuple[Path, Path, Path]:
    """The curve, what the first and the last agent do on the test seeds, and the checkpoint."""
    return folder.result("curve"), folder.result("ends"), folder.path / "checkpoints" / "training.pt"


def make_agent(learning: Learning) -> Any:
    """The untrained agent on its rows. ValueError if the algorithm does not take the hyperparameters."""
    spec = learning.agent
    return spec.make(make_vec_env(spec.env_id, learning.rows, scenario=learning.scenario, **spec.form()))


def rollout(learning: Learning, agent: Any) -> int:
    """Steps over all rows between two moments at which the agent may be evaluated."""
    steps = agent.n_steps if hasattr(agent, "rollout_buffer") else agent.train_freq.frequency
    return int(steps) * learning.rows


def train(
    learning: Learning, folder: Folder, agent: Any, validation: pl.DataFrame, made_by: Provenance,
    progress: Callable[[int], None], save_every: float,
) -> None:  # fmt: skip
    """Train to the end; leave the best agent, the curve, and what the first and the last agent do on the test seeds."""
    curve, ends, saved = training_files(folder)
    start = _weights(agent)
    agent.set_logger(configure(str(folder.path / "tensorboard"), ["tensorboard"]))
    with stop_requested() as stop:
        between = _BetweenRollouts(learning, agent, validation, saved, progress, stop, save_every)
        if not between.go_on():
            begin(saved, made_by)
        agent.learn(learning.steps - agent.num_timesteps, callback=between, reset_num_timesteps=False)
        if between.stopped:
            return  # the end of the block raises what was held back
        between.evaluate_if_due(last=True)
        agent.logger.close()
        player, played = learning.agent.player(agent, agent.env.bare), []
        for name, weights in ((START, start), (END, _weights(agent))):
            agent.policy.load_state_dict(weights)
            played.append(play(player, learning.test, name))
        write_frame(ends, pl.concat(played), made_by)
        agent.policy.load_state_dict(between.best)
        write_listed(agent_file(folder.path), partial(save_agent, agent))
        write_frame(curve, pl.DataFrame(between.curve), made_by)
        discard(saved)


def _weights(agent: Any) -> dict[str, Any]:
    return {name: part.clone() for name, part in agent.policy.state_dict().items()}


@dataclass(eq=False)
class _BetweenRollouts(BaseCallback):
    """Evaluates the agent where it is due, and saves all that a training remembers.

    Stable-Baselines3's ``EvalCallback`` compares with no reference on the same seeds, and from its
    ``CheckpointCallback`` a training does not go on with the same numbers: it keeps no env and no random generator.
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
        self._player = self.learning.agent.player(self.agent, self.agent.env.bare)
        self._last_save = perf_counter()

    def go_on(self) -> bool:
        """Go on from a checkpoint, if there is one."""
        tree = load_checkpoint(self.saved, unpack)
        if tree is None:
            return False
        self.curve, self.best = tree["curve"], tree["best"]
        restore(self.agent, tree["run"])
        return True

    def evaluate_if_due(self, last: bool = False) -> bool:
        """Evaluate the agent on the validation seeds, if it is time; the draws of the training stay as they were."""
        steps, done = self.agent.num_timesteps, self.curve[-1]["steps"] if self.curve else -1
        due = self.learning.due
        if steps == done or (done >= 0 and not last and due(steps) == due(int(done))):
            return False
        generator = torch.get_rng_state()
        compared = ratios(self.validation, play(self._player, self.learning.validation))
        torch.set_rng_state(generator)
        point = {f"cost/{name}": mean for name, (mean, _, _) in compared.items()}
        first = next(iter(point))
        if not self.curve or point[first] < min(earlier[first] for earlier in self.curve):
            self.best = _weights(self.agent)
        self.curve.append({"steps": steps, **point})
        for name, ratio in point.items():
            self.agent.logger.record(f"validation/{name}", ratio)
        self.agent.logger.dump(steps)
        return True

    def _on_rollout_start(self) -> None:
        evaluated, self.stopped = self.evaluate_if_due(), self.stop()
        if evaluated or self.stopped or perf_counter() - self._last_save >= self.save_every:
            tree = {"curve": self.curve, "best": self.best, "run": remembered(self.agent)}
            save_checkpoint(self.saved, pack(tree))
            self._last_save = perf_counter()

    def _on_step(self) -> bool:
        self.progress(self.num_timesteps)
        return not self.stopped


_COUNTERS = ("num_timesteps", "_n_updates", "_n_calls", "_episode_num", "_current_progress_remaining")
_OF_BUFFER = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def remembered(agent: Any) -> dict[str, Any]:
    """The agent, its env, its replay buffer, and the states of all random generators that it draws from."""
    agent.save(weights := BytesIO())
    kind, words, *rest = np.random.get_state()  # noqa: NPY002 - Stable-Baselines3 draws from it
    assert kind == "MT19937"
    tree = {
        "counters": {name: getattr(agent, name) for name in _COUNTERS if hasattr(agent, name)},
        "weights": np.frombuffer(bytearray(weights.getvalue()), np.uint8),  # with the state of the optimizer
        "torch": torch.get_rng_state(),
        "numpy": {"words": words, "rest": json.dumps(rest)},
        "space": json.dumps(agent.action_space.np_random.bit_generator.state),
        "env": agent.env.bare.checkpoint(),
        "observation": agent._last_obs,
        "starts": agent._last_episode_starts,
    }
    buffer = getattr(agent, "replay_buffer", None)
    if isinstance(buffer, ReplayBuffer):
        used = buffer.buffer_size if buffer.full else buffer.pos
        tree["buffer"] = {"pos": buffer.pos, "full": buffer.full}
        tree["buffer"] |= {name: getattr(buffer, name)[:used] for name in _OF_BUFFER}
    return tree


def restore(agent: Any, tree: dict[str, Any]) -> None:
    """Put an agent that was made in the same way where :func:`remembered` was called; its ``learn`` goes on there."""
    for name, value in tree["counters"].items():
        setattr(agent, name, value)
    agent.set_parameters(BytesIO(tree["weights"].numpy().tobytes()), device="cpu")
    agent.env.reset()
    agent.env.bare.restore({name: part.numpy() for name, part in tree["env"].items()})
    agent._last_obs = tree["observation"].numpy()
    agent._last_episode_starts = tree["starts"].numpy()
    if "buffer" in tree:
        kept, buffer = tree["buffer"], agent.replay_buffer
        buffer.pos, buffer.full = kept["pos"], kept["full"]
        for name in _OF_BUFFER:
            getattr(buffer, name)[: len(kept[name])] = kept[name].numpy()
    torch.set_rng_state(tree["torch"])
    words = tree["numpy"]["words"].numpy()
    np.random.set_state(("MT19937", words, *json.loads(tree["numpy"]["rest"])))  # noqa: NPY002
    agent.action_space.np_random.bit_generator.state = json.loads(tree["space"])
