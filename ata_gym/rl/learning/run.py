"""The training of an agent from beginning to end: it is trained, compared on seeds that it never saw, and reported."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import ata_gym.rl.needs_sb3  # noqa: F401 - before what needs torch

import polars as pl

from ata_gym.bench.experiment import store
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import USUAL, Effort
from ata_gym.bench.experiment.provenance import Provenance, merged, provenance, provenance_of
from ata_gym.bench.experiment.store import Folder, discard, finished, read_frame, write_frame
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.report import Report
from ata_gym.rl.learning.experiment import AGENT, Learned, Learning, names_in, play, playable
from ata_gym.rl.learning.report import report
from ata_gym.rl.learning.specification import policy_name
from ata_gym.rl.learning.training import agent_file, make_agent, rollout, train, training_files
from ata_gym.training.studies.trajectory import deterministic
from ata_gym.utils.errors import named_failure
from ata_gym.utils.manifest import read_listed

Progress = Callable[[str, int], None]
"""Called with a part of the work, "references", "training" or "test", and how much of it is done."""


class Study(NamedTuple):
    """What ``run`` leaves."""

    report: Report
    learned: Learned
    policy: str  # the name of the trained agent for ``ata-gym bench`` and ``ata_policies.make``


def run(learning: Learning, out: Path, effort: Effort = USUAL, warn: Callable[[str], None] = warnings.warn) -> Study:
    """Train an agent and compare it with the policies, with progress bars; tables and the picture are left in ``out``.

    After a kill the same call goes on where it stopped, with the same result. ``warn`` gets a sentence if more
    evaluations were asked for than there can be. ValueError if the algorithm does not take the hyperparameters, or the
    folder holds something else, or results of other code.
    """
    agent = make_agent(learning)  # it refuses hyperparameters before there is a folder
    between = rollout(learning, agent)
    agent.env.close()
    folder = store.open_folder(out, learning.config())
    played = [provenance(name, Learning.__module__) for name in learning.references()]
    made_by = merged(provenance_of(train.__module__), *played)
    splits = {name: (folder.result(name),) for name in ("validation", "test")}
    files = {"training": training_files(folder), **splits}
    store.check_code([store.Made(part, paths, made_by) for part, paths in files.items()], effort.rerun_changed)
    if between * learning.evaluations > learning.steps:
        warn(
            f"{learning.evaluations} evaluations were asked for, and a rollout of {between:,} steps is longer than the "
            "steps between two: give fewer --rows, or a smaller n_steps as --hyperparameter"
        )
    compared = len(learning.references())
    bars = {"references": compared, "training": learning.steps, "test": compared + 1}
    checkpoint = files["training"][-1]  # the first one is written before the first step
    withdrawn = store.withdrawn_on_failure(folder, checkpoint, folder.result("validation"))
    failure = named_failure(f"the training of {learning.agent.algorithm}")
    with withdrawn, failure, progress_bars(bars) as update:
        learned = learn(learning, folder, made_by, lambda part, done: update(part, min(done, learning.steps)), effort)
    name = policy_name(learning.agent.env, out)
    return Study(report(learning, learned, folder.path), learned, name)


def learn(
    learning: Learning, folder: Folder, made_by: Provenance, progress: Progress = lambda _part, _done: None,
    effort: Effort = USUAL,
) -> Learned:  # fmt: skip
    """Train to the last step, from a checkpoint if there is one, and play the best agent on the test seeds.

    In the end the folder holds ``agent.zip``, as Stable-Baselines3 writes it, the curve, and what was played on both
    splits. KeyboardInterrupt after a checkpoint, if Ctrl-C or SIGTERM came.
    """
    with deterministic():
        agent, (names, left_out) = make_agent(learning), playable(learning)
        told = partial(progress, "references")
        validation = _references(folder.result("validation"), names, learning.validation, made_by, told)
        curve, ends, checkpoint = training_files(folder)
        if finished(curve):
            discard(checkpoint)  # of a run that was killed between the two
        else:
            train(learning, folder, agent, validation, made_by, partial(progress, "training"), effort.save_every)
        progress("training", learning.steps)
        test = _references(folder.result("test"), names, learning.test, made_by, partial(progress, "test"))
        if AGENT not in names_in(test):
            agent.set_parameters(BytesIO(read_listed(agent_file(folder.path))), device="cpu")
            mine = play(learning.agent.player(agent, agent.env.bare), learning.test)
            test = pl.concat([mine, read_frame(ends), test])
            write_frame(folder.result("test"), test, made_by)
        progress("test", len(learning.references()) + 1)
        agent.env.close()
    return Learned(read_frame(curve), validation, test, left_out)


def _references(
    path: Path, names: Sequence[str], experiment: Experiment, made_by: Provenance, progress: Callable[[int], None]
) -> pl.DataFrame:  # what the references did on the seeds of a split, from its file if it is there
    if not finished(path):
        frames = []
        for name in names:
            frames.append(play(name, experiment))
            progress(len(frames))
        write_frame(path, pl.concat(frames), made_by)
    progress(len(names))
    return read_frame(path)
