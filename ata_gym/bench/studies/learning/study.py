"""The training of an agent, and its comparison on seeds that were never used before."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import ata_gym.rl.needs_sb3  # noqa: F401 - before the modules that need torch

import polars as pl

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report.report import Report
from ata_gym.bench.runner.jobs import USUAL, Effort
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.runner.results import Failure, Results
from ata_gym.bench.runner.study import Study, play as play_study
from ata_gym.bench.store import folder as store
from ata_gym.bench.store.folder import Folder, discard, finished, read_frame, write_frame
from ata_gym.bench.store.note import about_experiment, nothing_finished, read_note, write_note
from ata_gym.bench.store.provenance import Provenance, merged, provenance, provenance_of
from ata_gym.bench.studies.learning.experiment import (
    AGENT,
    Evaluations,
    Learning,
    names_in,
    play,
    playable,
)
from ata_gym.bench.studies.learning.report import NOTE, report_on
from ata_gym.bench.studies.learning.training import (
    agent_file,
    make_agent,
    rollout,
    train,
    training_files,
)
from ata_gym.models.determinism import deterministic
from ata_gym.rl.specification import AgentSpec
from ata_gym.scenarios import Scenario, resolve
from ata_gym.utils.errors import named_failure
from ata_gym.utils.files.manifest import read_checked
from ata_gym.utils.validation import whole_number

Progress = Callable[[str, int], None]
"""A function of a part of the work and how much of it is done.

The parts are "references", "training" and "test".
"""


def learn(
    env: str = "allocation",
    scenario: str | Scenario = "drawn-6-v1",
    *,
    price: float | None = None,
    rounds: int | None = None,
    algorithm: str = "ppo",
    action: str | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    steps: int = 500_000,
    rows: int = 128,
    seed: int = 0,
    evaluations: int = 20,
    validation: int = 64,
    test: int = 256,
    out: str | os.PathLike[str] | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    command: Sequence[str] = (),
) -> Results:
    """Train an agent of Stable-Baselines3 or sb3-contrib, and compare it with the policies.

    It is compared on other seeds, with a uniform allocation, ATA, the default policy and an oracle
    that knows the workers.

    Args:
        env: The short name of the env: allocation, race or dispatch.
        scenario: A scenario or its name. Those called drawn-... are for agents.
        price: What one unit of worker time costs in units of runtime; by default the scenario's.
        rounds: The rounds of an episode, by default the scenario's horizon.
        algorithm: The algorithm: ppo, a2c, maskable-ppo or dqn.
        action: The form of actions: shares or assign in allocation, shares in a race, dispatch or
            start in dispatch; by default the first one that the algorithm takes.
        hyperparameters: The hyperparameters of the algorithm; others are as in ``PPO_SETTINGS`` for
            ppo, or as in the library.
        steps: The steps of training, over all rows.
        rows: The episodes side by side in training.
        seed: The seed of the agent, and of the first row in training.
        evaluations: The evaluations in training, evenly spaced.
        validation: The number of seeds of each evaluation; the best agent on them is kept.
        test: The number of seeds on which that agent is played at the end.
        out: A folder for the results and the agent, from which ``bench.run`` plays it as
            ``ata_gym.rl.agent:LearnedAgent:folder=...``; a call that was interrupted goes on from
            there. Without it nothing is left on the disk, and the agent is lost.
        save_every: Seconds between checkpoints.
        rerun_changed: Whether to train anew what was trained by other code, which is refused
            otherwise.
        command: The words by which the page says how to repeat this; by default this call.

    Returns:
        Results on the test seeds, whose table has the columns scenario, policy, quantity, over (the
        policy that divides), mean, low and high.

    Raises:
        ValueError: If there is no such env, scenario or algorithm, it does not take the action or
            the hyperparameters, a number is out of its range, or the folder holds something else.
        MissingExtraError: If the extra ``rl`` is not installed.

    Example:
        >>> from ata_gym import bench
        >>> short = {"n_steps": 8, "batch_size": 16}
        >>> size = {"rounds": 5, "rows": 4, "steps": 64, "evaluations": 1, "test": 2}
        >>> results = bench.learn("allocation", hyperparameters=short, validation=2, **size)
        >>> results.table().filter(policy="agent", quantity="cost")["over"].to_list()[-1]
        'dynamic-oracle'
    """
    for name, number in (("validation", validation), ("test", test)):
        whole_number(name, number)
    spec = AgentSpec(env, algorithm, action or "", seed, dict(hyperparameters or {}))
    resolved = resolve(scenario, price=price, horizon=rounds)
    learning = Learning(spec, resolved, steps, rows, evaluations, validation, test)
    sizes = {
        "price": price,
        "rounds": rounds,
        "algorithm": algorithm,
        "action": action,
        "hyperparameters": dict(hyperparameters or {}) or None,
        "steps": steps,
        "rows": rows,
        "seed": seed,
        "evaluations": evaluations,
        "validation": validation,
        "test": test,
    }
    options = "".join(f", {name}={value!r}" for name, value in sizes.items() if value is not None)
    call = f"bench.learn({env!r}, {resolved.name!r}{options}, out='results/learned')"
    page_command = command or ["python", "-c", f"from ata_gym import bench; {call}"]
    effort = Effort(save_every=save_every, rerun_changed=rerun_changed)
    references = dict.fromkeys(learning.references())
    return play_study(AgentTraining(references, learning), out, effort, page_command)


@dataclass(frozen=True)
class AgentTraining(Study):
    """The training of an agent, which is compared with the policies."""

    name: ClassVar[str] = "learn"

    learning: Learning

    def check(self) -> None:
        # the agent refuses wrong hyperparameters
        make_agent(self.learning).env.close()

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        learning = self.learning
        spec = learning.agent
        store.open_folder(folder, learning.config())
        _, refusals = playable(learning)
        about = about_experiment(learning.test, self.policies)
        note = {
            **about,
            "remarks": [*about["remarks"], *_too_few_rollouts(learning)],
            "env": spec.env,
            "algorithm": spec.algorithm,
            "action": spec.action,
            "hyperparameters": json.dumps(dict(spec.hyperparameters)),
            "steps": learning.steps,
            "rows": learning.rows,
            "validation_rows": learning.validation_rows,
            "roles": learning.roles(),
            "refusals": refusals,
        }
        write_note(folder, self.name, command, note)
        return []

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        """Train the agent to the last step, and play it and the references on the test seeds."""
        del jobs
        learning = self.learning
        opened = Folder(folder)
        played_by = [provenance(name, Learning.__module__) for name in learning.references()]
        made_by = merged(provenance_of(train.__module__), *played_by)
        splits = {name: (opened.result(name),) for name in ("validation", "test")}
        files = {"training": training_files(opened), **splits}
        store.check_code(
            [store.Product(part, paths, made_by) for part, paths in files.items()],
            effort.rerun_changed,
        )
        refusals = read_note(folder, NOTE)["refusals"]
        references = [name for name in learning.references() if name not in refusals]
        totals = {
            "references": len(references),
            "training": learning.steps,
            "test": len(references) + 1,
        }
        # The first checkpoint is written before the first step.
        checkpoint = files["training"][-1]
        withdrawn = store.withdrawn_on_failure(opened, checkpoint, opened.result("validation"))
        failure = named_failure(f"the training of {learning.agent.algorithm}")
        with withdrawn, failure, progress_bars(totals) as update:
            train_and_test(
                learning,
                opened,
                references,
                made_by,
                lambda part, done: update(part, min(done, totals[part])),
                effort,
            )
        return {}

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, NOTE)
        opened = Folder(folder)
        files = [opened.result(name) for name in Evaluations._fields]
        frames = [read_frame(file) for file in files if finished(file)]
        # the references are played on the test seeds before the agent is
        if len(frames) < len(files) or AGENT not in names_in(frames[-1]):
            raise nothing_finished("the training has not finished", folder, note)
        return report_on(note, Evaluations(*frames), store.origin(files))


def _too_few_rollouts(learning: Learning) -> list[str]:
    """A sentence if more evaluations were asked for than there are rollouts."""
    agent = make_agent(learning)
    rollout_steps = rollout(learning, agent)
    agent.env.close()
    if rollout_steps * learning.evaluations <= learning.steps:
        return []
    return [
        f"{learning.evaluations} evaluations were asked for, and a rollout of {rollout_steps:,}"
        " steps is longer than the steps between two: give fewer --rows, or a smaller n_steps as"
        " --hyperparameter",
    ]


def train_and_test(
    learning: Learning,
    folder: Folder,
    references: Sequence[str],
    made_by: Provenance,
    progress: Progress = lambda _part, _done: None,
    effort: Effort = USUAL,
) -> None:
    """Train to the last step, and play the best agent on the test seeds.

    The training goes on from a checkpoint if there is one. In the end the folder holds
    ``agent.zip``, as Stable-Baselines3 writes it, the curve, and the results on both splits.

    Args:
        learning: The training as data.
        folder: The results folder.
        references: The references that can play.
        made_by: The code that the results come from.
        progress: Called with a part of the work and how much of it is done.
        effort: How often the training is saved.

    Raises:
        KeyboardInterrupt: After a checkpoint, if Ctrl-C or SIGTERM came.
    """
    with deterministic():
        agent = make_agent(learning)
        path = folder.result("validation")
        report_progress = partial(progress, "references")
        validation = _play_references(
            path, references, learning.validation, made_by, report_progress
        )
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
        test = _play_references(path, references, learning.test, made_by, report_progress)
        if AGENT not in names_in(test):
            agent.set_parameters(BytesIO(read_checked(agent_file(folder.path))), device="cpu")
            agent_results = play(learning.agent.policy_class(agent, agent.env.bare), learning.test)
            test = pl.concat([agent_results, read_frame(ends), test])
            write_frame(path, test, made_by)
        progress("test", len(references) + 1)
        agent.env.close()


def _play_references(
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
