"""The training of an agent, its comparison on seeds that it never saw, and the report."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import ata_gym.rl.needs_sb3  # noqa: F401 - before the modules that need torch

import polars as pl

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report.report import Report
from ata_gym.bench.runner.jobs import USUAL, Effort
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.store import folder as store
from ata_gym.bench.store.folder import Folder, discard, finished, read_frame, write_frame
from ata_gym.bench.store.provenance import Provenance, merged, provenance, provenance_of
from ata_gym.bench.studies.learning.experiment import (
    AGENT,
    Learned,
    Learning,
    names_in,
    play,
    playable,
)
from ata_gym.bench.studies.learning.report import report
from ata_gym.bench.studies.learning.training import (
    agent_file,
    make_agent,
    rollout,
    train,
    training_files,
)
from ata_gym.models.determinism import deterministic
from ata_gym.rl.specification import policy_name
from ata_gym.utils.errors import named_failure
from ata_gym.utils.manifest import read_listed

Progress = Callable[[str, int], None]
"""A function of a part of the work and how much of it is done.

The parts are "references", "training" and "test".
"""


class Study(NamedTuple):
    """The results of ``run``."""

    report: Report
    """The report."""
    learned: Learned
    """The results of the training."""
    policy: str
    """The name of the trained agent for ``ata-gym bench`` and ``ata_policies.make``."""


def run(
    learning: Learning,
    out: Path,
    effort: Effort = USUAL,
    warn: Callable[[str], None] = warnings.warn,
) -> Study:
    """Train an agent and compare it with the policies, with progress bars.

    Tables and the picture are left in ``out``. After a kill the same call goes on where it stopped,
    with the same result.

    Args:
        learning: The training as data.
        out: The results folder.
        effort: How the work is done: here how often it is saved, and whether results of other code
            are played again.
        warn: Called with a sentence if more evaluations were asked for than there can be.

    Raises:
        ValueError: If the algorithm does not take the hyperparameters, or the folder holds
            something else, or results of other code.
    """
    # The agent refuses wrong hyperparameters before there is a folder.
    agent = make_agent(learning)
    rollout_steps = rollout(learning, agent)
    agent.env.close()
    folder = store.open_folder(out, learning.config())
    played = [provenance(name, Learning.__module__) for name in learning.references()]
    made_by = merged(provenance_of(train.__module__), *played)
    splits = {name: (folder.result(name),) for name in ("validation", "test")}
    files = {"training": training_files(folder), **splits}
    store.check_code(
        [store.Made(part, paths, made_by) for part, paths in files.items()],
        effort.rerun_changed,
    )
    if rollout_steps * learning.evaluations > learning.steps:
        warn(
            f"{learning.evaluations} evaluations were asked for, and a rollout of"
            f" {rollout_steps:,} steps is longer than the steps between two: give fewer --rows, or"
            " a smaller n_steps as --hyperparameter",
        )
    reference_count = len(learning.references())
    bars = {"references": reference_count, "training": learning.steps, "test": reference_count + 1}
    # The first checkpoint is written before the first step.
    checkpoint = files["training"][-1]
    withdrawn = store.withdrawn_on_failure(folder, checkpoint, folder.result("validation"))
    failure = named_failure(f"the training of {learning.agent.algorithm}")
    with withdrawn, failure, progress_bars(bars) as update:
        learned = learn(
            learning,
            folder,
            made_by,
            lambda part, done: update(part, min(done, learning.steps)),
            effort,
        )
    name = policy_name(learning.agent.env, out)
    return Study(report(learning, learned, folder.path), learned, name)


def learn(
    learning: Learning,
    folder: Folder,
    made_by: Provenance,
    progress: Progress = lambda _part, _done: None,
    effort: Effort = USUAL,
) -> Learned:
    """Train to the last step, and play the best agent on the test seeds.

    The training goes on from a checkpoint if there is one. In the end the folder holds
    ``agent.zip``, as Stable-Baselines3 writes it, the curve, and the results on both splits.

    Args:
        learning: The training as data.
        folder: The results folder.
        made_by: The code that the results come from.
        progress: Called with a part of the work and how much of it is done.
        effort: How often the training is saved.

    Raises:
        KeyboardInterrupt: After a checkpoint, if Ctrl-C or SIGTERM came.
    """
    with deterministic():
        agent = make_agent(learning)
        names, left_out = playable(learning)
        path = folder.result("validation")
        report_progress = partial(progress, "references")
        validation = _references(path, names, learning.validation, made_by, report_progress)
        curve, ends, checkpoint = training_files(folder)
        # A run may have been killed after it wrote the curve, before it discarded the checkpoint.
        if finished(curve):
            discard(checkpoint)
        else:
            report_progress = partial(progress, "training")
            train(learning, folder, agent, validation, made_by, report_progress, effort.save_every)
        progress("training", learning.steps)
        path = folder.result("test")
        report_progress = partial(progress, "test")
        test = _references(path, names, learning.test, made_by, report_progress)
        if AGENT not in names_in(test):
            agent.set_parameters(BytesIO(read_listed(agent_file(folder.path))), device="cpu")
            agent_results = play(learning.agent.player(agent, agent.env.bare), learning.test)
            test = pl.concat([agent_results, read_frame(ends), test])
            write_frame(folder.result("test"), test, made_by)
        progress("test", len(learning.references()) + 1)
        agent.env.close()
    return Learned(read_frame(curve), validation, test, left_out)


def _references(
    path: Path,
    names: Sequence[str],
    experiment: Experiment,
    made_by: Provenance,
    progress: Callable[[int], None],
) -> pl.DataFrame:
    """The results of the references on the seeds of a split, from the file if it is there."""
    if not finished(path):
        frames = []
        for name in names:
            frames.append(play(name, experiment))
            progress(len(frames))
        write_frame(path, pl.concat(frames), made_by)
    progress(len(names))
    return read_frame(path)
