"""``ata-gym demo``: the whole project in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli.console import say, say_files
from ata_gym.cli.options import PUBLISHED, Effort, Out, Seeds
from ata_gym.cli.studies.bench import run_and_report
from ata_gym.cli.studies.train import train

_SCENARIO = "icml2025-cifar100"
_TRAINED = "gta,ofta,ata-empirical-icml,ata,uta"  # training is short, and only the newer constants learn so soon


def demo(
    out: Out = Path("demo"),
    rounds: Annotated[int, typer.Option(help="Rounds of the published scenario, which has 750,000.")] = 100_000,
    seeds: Seeds = 8,
) -> None:
    """Run the published policies on the published scenario, train a small model, draw its loss for each policy."""
    from ata_gym.bench.experiment.experiment import Experiment  # noqa: PLC0415 - it takes a second to import

    say(f"The five published policies on {_SCENARIO}: runtime, worker time and regret.\n")
    run_and_report(
        Experiment.on_scenario(_SCENARIO, rounds=rounds, seeds=seeds),
        PUBLISHED,
        out / "bench",
        Effort(rerun_changed=True),
    )
    say("\nA small network on real images of digits: one training run, its loss against the runtime of each policy.\n")
    train(scenario=_SCENARIO, policies=_TRAINED, out=out / "training", rerun_changed=True)
    say()
    say_files("all pictures", sorted(path for path in out.rglob("plots/*") if path.suffix in (".png", ".svg")))
