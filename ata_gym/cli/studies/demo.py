"""``ata-gym demo``: the whole project in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli.console import say, say_files
from ata_gym.cli.options import PUBLISHED, Effort, Out, Seeds
from ata_gym.cli.studies.bench import run_and_report
from ata_gym.cli.training.train import train

_SCENARIO = "icml2025-cifar100"
_TRAINED = "gta,ofta,ata-empirical-icml,uta"  # training is short: ata has not begun to learn by then


def demo(
    out: Out = Path("demo"),
    rounds: Annotated[int, typer.Option(help="Rounds of the published scenario, which has 750,000.")] = 100_000,
    seeds: Seeds = 8,
) -> None:
    """Run the published policies and the default one on the published scenario, and train a small model on clocks."""
    from ata_gym.bench.experiment.experiment import Experiment  # noqa: PLC0415 - it takes a second to import
    from ata_policies.registry import default_name  # noqa: PLC0415

    newer = default_name("ata_gym/TaskAllocation-v0")
    say(f"The five published policies and {newer}, the default, on {_SCENARIO}: runtime, worker time and regret.\n")
    experiment = Experiment.on_scenario(_SCENARIO, rounds=rounds, seeds=seeds)
    made = run_and_report(experiment, f"{PUBLISHED},{newer}", out / "bench", Effort(rerun_changed=True))
    ratios = made.summary.filter(policy=newer)
    runtime, worker_time = (
        ratios.filter(quantity=f"{name}/ofta")["mean"].item() for name in ("runtime", "total_worker_time")
    )
    say(
        f"\n{newer} learns the task times from scratch: {runtime:.3f} of the runtime and {worker_time:.3f} of the "
        "worker time of OFTA, which knows their means from the start."
    )
    say("\nA small network on real images of digits: one training run, its loss against the runtime of each policy.\n")
    train(scenario=_SCENARIO, policies=f"{_TRAINED},{newer}", out=out / "training", rerun_changed=True)
    say()
    say_files("all pictures", sorted(path for path in out.rglob("plots/*") if path.suffix in (".png", ".svg")))
