"""What a prior is worth: ATA without one, with a right one and with a wrong one. The protocol is ours."""

from dataclasses import replace
from pathlib import Path

import gymnasium as gym

import ata_policies
from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import Effort, on_this_machine
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report import style
from ata_gym.bench.report.report import Report, curve, write
from ata_gym.bench.report.statistics import Estimate, estimates, values
from ata_gym.bench.report.summary_tables import over_seeds, show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.study import Studied, run
from ata_gym.scenarios import Scenario
from ata_policies.beliefs.moments import Totals
from ata_policies.beliefs.prior import read_prior, save_prior
from ata_policies.presets import PRESETS
from ata_policies.registry import Given, given
from ata_policies.steps import play

SCENARIO, ROUNDS, TASKS = "icml2025-regret", 100_000, 1_000
_POLICY, _RIGHT, _WRONG = "ata-icml", "right-prior", "wrong-prior"
_SEED = 10**6  # of the earlier run; others than those of the figure

_OURS = (
    f"Ours: the scenario, the constants of ICML with the true norms of the workers ({_POLICY}), and the priors: "
    f"{TASKS:,} tasks of each worker in an earlier run of other seeds, and the same with the workers in reverse, so that "
    "the slowest seems the fastest. The paper's protocol and figures are not known to us: nothing is compared."
)


def reproduce(experiment: Experiment, out: Path, effort: Effort) -> Studied:
    """Make the priors in a folder, and play ATA with and without them."""
    claimed = claim(out)
    tens = tuple(10**k for k in range(2, 10) if 10**k < experiment.rounds)
    with given(_priors(experiment.scenario, out)):  # which other processes do not find
        here = effort._replace(jobs=1, runner=on_this_machine)
        made = run(replace(experiment, also=tens), ["ofta", _POLICY, _RIGHT, _WRONG], out, here, report)
    del claimed
    return made


def _priors(scenario: Scenario, out: Path) -> dict[str, Given]:
    """ATA with each prior, which is kept in a file of the folder."""
    earlier = replace(scenario, budget=scenario.pool.n, horizon=TASKS + 1)  # one task for each worker in a round
    env = gym.make("ata_gym/TaskAllocation-v0", scenario=earlier)
    *_, last = play(ata_policies.make("uta", env), env, _SEED)
    counts, totals = last.state.belief
    found = {}
    for name, order in ((_RIGHT, slice(None)), (_WRONG, slice(None, None, -1))):
        path = out / f"{name}.csv"
        save_prior(path, Totals(counts[:, order], totals[:, order]))
        chosen = {**PRESETS[_POLICY].hyperparameters, "memory": "prior", "prior": read_prior(path)}
        preset = replace(PRESETS[_POLICY], name=name, hyperparameters=chosen)
        found[name] = Given(preset, path.read_text("utf-8"))
    return found


def report(experiment: Experiment, policies: list[str], folder: Folder) -> Report:
    """The runtime over that of OFTA after 100, 1,000, ... rounds, and its picture."""
    records = folder.results(policies)
    rounds = records["round"].unique().sort().to_numpy()
    times = {policy: values(records, policy, "runtime") for policy in policies}
    shown = {int(k): place for place, k in enumerate(rounds) if k in {*experiment.also, rounds[-1]}}
    found = estimates(
        [
            (p, k, Estimate.of_ratio(of[:, at], times["ofta"][:, at]))
            for p, of in times.items()
            for k, at in shown.items()
        ],
        ["policy", "round"],
    )
    rows = [(p, *(show(*row) for row in found.filter(policy=p).select("mean", "high").rows())) for p in policies]
    about = f"runtime / OFTA after so many rounds of {experiment.about}, {over_seeds(experiment.seeds)}"
    table = Table(about, {"policy": LEFT, **right(f"{k:,}" for k in shown)}, rows)
    files = write(folder.path, {"prior.md": markdown([table]), "prior.csv": found})
    with style.figure(6.5, 3.8) as picture:
        axes = picture.subplots()
        for policy, line in style.lines(policies).items():
            curve(axes, rounds, times[policy] / times["ofta"], line, label=policy)
        axes.set(xscale="log", xlabel="round", title="runtime / OFTA")
        style.plain_numbers(axes)
        style.logarithmic(axes.yaxis)
        picture.legend(loc="outside right upper", handlelength=2.6)
        pictures = style.save(picture, folder.path / "plots" / "prior", experiment.about)
    return Report(found, [table], files, pictures, remark=_OURS)
