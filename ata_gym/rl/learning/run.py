"""A training with evaluations between rollouts, which goes on where it was if it is killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import ata_gym.rl.needs_sb3  # noqa: F401 - before what needs torch

import polars as pl
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.provenance import Provenance
from ata_gym.bench.experiment.store import Folder, begin, discard, finished, read_frame, read_json, write_frame
from ata_gym.rl.learning.checkpoint import remembered, restore
from ata_gym.rl.learning.experiment import AGENT, END, START, Learning, names_in, play, play_references, ratios
from ata_gym.rl.sb3.vec_env import make_vec_env
from ata_gym.training.models.checkpoint import pack, unpack
from ata_gym.training.studies.trajectory import deterministic
from ata_gym.utils.manifest import read_listed, write_listed
from ata_gym.utils.sealed import load_checkpoint, save_checkpoint
from ata_gym.utils.signals import stop_requested

Progress = Callable[[str, int], None]
"""Called with a part of the work, "references", "training" or "test", and how much of it is done."""


class Learned(NamedTuple):
    """The results of a training."""

    curve: pl.DataFrame
    """A row for each evaluation: ``steps``, and ``cost/<reference>``, geometric means over the validation seeds."""
    validation: pl.DataFrame
    """What the references did on the validation seeds; columns as ``experiment.SCHEMA``."""
    test: pl.DataFrame
    """What the agents and the references did on the test seeds; the best agent, the first and the last come first."""
    left_out: Mapping[str, str]
    """References that cannot play, and why."""


def parts_of(folder: Folder) -> dict[str, tuple[Path, ...]]:
    """The files that a training makes and checks, by what they are."""
    checkpoint = folder.path / "checkpoints" / "training.pt"
    whole = {name: (folder.result(name),) for name in ("validation", "test")}
    return {"training": (folder.result("curve"), folder.result("ends"), checkpoint), **whole}


def agent_file(folder: Path) -> Path:
    """The trained agent in a results folder."""
    return folder / "agent.zip"


def make_agent(learning: Learning) -> Any:
    """The untrained agent on its rows. ValueError if the algorithm does not take the hyperparameters."""
    spec = learning.agent
    return spec.make(make_vec_env(spec.env_id, learning.rows, scenario=learning.scenario, **spec.form()))


def rollout(learning: Learning, agent: Any) -> int:
    """Steps over all rows between two moments at which the agent may be evaluated."""
    steps = agent.n_steps if hasattr(agent, "rollout_buffer") else agent.train_freq.frequency
    return int(steps) * learning.rows


def learn(
    learning: Learning,
    folder: Folder,
    made_by: Provenance,
    progress: Progress = lambda _part, _done: None,
    save_every: float = 10.0,
) -> Learned:
    """Train to the last step, from a checkpoint if there is one, and play the best agent on the test seeds.

    Parameters
    ----------
    folder
        A results folder of the training's configuration. In the end it holds ``agent.zip``, as Stable-Baselines3 writes
        it, the curve, and what was played on both splits.
    made_by
        Kept beside the results.
    save_every
        Seconds between checkpoints, which are also written at each evaluation.

    Raises
    ------
    ValueError
        If the algorithm does not take the hyperparameters.
    KeyboardInterrupt
        After a checkpoint, if Ctrl-C or SIGTERM came.
    """
    with deterministic():
        agent = make_agent(learning)
        start = _weights(agent)
        references = partial(_references, learning, folder, made_by)
        validation, left_out = references("validation", lambda done: progress("references", done))
        if finished(folder.result("curve")):
            discard(parts_of(folder)["training"][-1])  # of a run that was killed between the two
        else:
            trained = partial(progress, "training")
            _train(learning, folder, agent, start, validation, made_by, trained, save_every)
        progress("training", learning.steps)
        test, also_left_out = references("test", lambda done: progress("test", done))
        if AGENT not in names_in(test):
            agent.set_parameters(BytesIO(read_listed(agent_file(folder.path))), device="cpu")
            mine = play(learning.agent.player(agent, agent.env.bare), learning.test)
            test = pl.concat([mine, read_frame(folder.result("ends")), test])
            write_frame(folder.result("test"), test, {**made_by, **_note(also_left_out)})
        progress("test", len(learning.references()) + 1)
        agent.env.close()
    return Learned(read_frame(folder.result("curve")), validation, test, left_out | also_left_out)


_LEFT_OUT = "left out: "


def _note(left_out: Mapping[str, str]) -> dict[str, str]:
    return {f"{_LEFT_OUT}{name}": reason for name, reason in left_out.items()}


def _references(
    learning: Learning, folder: Folder, made_by: Provenance, split: str, progress: Callable[[int], None]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """What the references did on a split, from its file if it is there, and why some cannot play."""
    path = folder.result(split)
    if not finished(path):
        experiment: Experiment = getattr(learning, split)
        played, left_out = play_references(learning, experiment, progress)
        write_frame(path, played, {**made_by, **_note(left_out)})
    progress(len(learning.references()))
    about = read_json(path.with_suffix(".json"))
    left_out = {key.removeprefix(_LEFT_OUT): str(about[key]) for key in about if key.startswith(_LEFT_OUT)}
    return read_frame(path), left_out


def _train(
    learning: Learning,
    folder: Folder,
    agent: Any,
    start: Mapping[str, Any],
    validation: pl.DataFrame,
    made_by: Provenance,
    progress: Callable[[int], None],
    save_every: float,
) -> None:
    """Train to the end; leave the best agent, the curve, and what the first and the last agent do on the test seeds.

    A checkpoint is left if it was stopped.
    """
    _, ends, saved = parts_of(folder)["training"]
    agent.set_logger(configure(str(folder.path / "tensorboard"), ["tensorboard"]))
    record = _Record(learning, agent, validation, saved)
    tree = load_checkpoint(saved, unpack)
    if tree is None:
        begin(saved, made_by)
    else:
        record.go_on_from(tree)
    with stop_requested() as stop:
        callback = _Between(record, progress, stop, save_every)
        left = learning.steps - agent.num_timesteps
        agent.learn(left, callback=callback, reset_num_timesteps=False)
        if callback.stopped:
            return  # the end of the block raises what was held back
        record.evaluate_if_due(last=True)
        agent.logger.close()
        player, played = learning.agent.player(agent, agent.env.bare), []
        for name, weights in ((START, start), (END, _weights(agent))):
            agent.policy.load_state_dict(weights)
            played.append(play(player, learning.test, name))
        write_frame(ends, pl.concat(played), made_by)
        agent.policy.load_state_dict(record.best)
        write_listed(agent_file(folder.path), agent.save)
        write_frame(folder.result("curve"), pl.DataFrame(record.curve), made_by)
        discard(saved)


def _weights(agent: Any) -> dict[str, Any]:
    """A copy of the weights of an agent."""
    return {name: part.clone() for name, part in agent.policy.state_dict().items()}


class _Record:
    """The evaluations so far, the best agent, and their checkpoint."""

    def __init__(self, learning: Learning, agent: Any, validation: pl.DataFrame, saved: Path) -> None:
        self._learning, self._agent, self._validation, self._saved = learning, agent, validation, saved
        self._player = learning.agent.player(agent, agent.env.bare)
        self.curve: list[dict[str, float]] = []
        self.best: dict[str, Any] = {}

    def go_on_from(self, tree: dict[str, Any]) -> None:
        """Restore a checkpoint."""
        self.curve, self.best = tree["curve"], tree["best"]
        restore(self._agent, tree["run"])

    def save(self) -> None:
        """Write a checkpoint; only between two rollouts."""
        tree = {"curve": self.curve, "best": self.best, "run": remembered(self._agent)}
        save_checkpoint(self._saved, pack(tree))

    def evaluate_if_due(self, last: bool = False) -> bool:
        """Evaluate the agent on the validation seeds, if it is time; the draws of the training stay as they were."""
        steps, done = self._agent.num_timesteps, self.curve[-1]["steps"] if self.curve else -1
        due = self._learning.due
        if steps == done or (done >= 0 and not last and due(steps) == due(int(done))):
            return False
        chance = torch.get_rng_state()
        compared = ratios(self._validation, play(self._player, self._learning.validation))
        torch.set_rng_state(chance)
        point = {f"cost/{name}": mean for name, (mean, _, _) in compared.items()}
        first = next(iter(point))
        if not self.curve or point[first] < min(earlier[first] for earlier in self.curve):
            self.best = _weights(self._agent)
        self.curve.append({"steps": steps, **point})
        for name, ratio in point.items():
            self._agent.logger.record(f"validation/{name}", ratio)
        self._agent.logger.dump(steps)
        return True


class _Between(BaseCallback):
    """Evaluates and saves between two rollouts."""

    def __init__(
        self, record: _Record, progress: Callable[[int], None], stop: Callable[[], bool], save_every: float
    ) -> None:
        super().__init__()
        self._record, self._progress, self._stop, self._save_every = record, progress, stop, save_every
        self._last = perf_counter()
        self.stopped = False

    def _on_rollout_start(self) -> None:
        evaluated, self.stopped = self._record.evaluate_if_due(), self._stop()
        if evaluated or self.stopped or perf_counter() - self._last >= self._save_every:
            self._record.save()
            self._last = perf_counter()

    def _on_step(self) -> bool:
        self._progress(self.num_timesteps)
        return not self.stopped
