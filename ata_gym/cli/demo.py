"""``ata-gym demo``: the whole project in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli.console import say, say_files
from ata_gym.cli.options import PUBLISHED, Out, Seeds
from ata_gym.cli.studies.bench import bench
from ata_gym.cli.training.train import train

_SCENARIO = "icml2025-cifar100"
_TRAINED = "gta,ofta,ata-empirical-icml,uta"  # training is short: ata has not begun to learn by then


def demo(
    out: Out = Path("demo"),
    rounds: Annotated[int, typer.Option(help="Rounds of the published scenario, which has 750,000.")] = 100_000,
    seeds: Seeds = 8,
) -> None:
    """Run the published policies and ours, and train a model.

    The defaults of allocation and of races run beside the published policies, on their scenario; the model is a small
    network on real images of digits. Tables and pictures are left in a folder, here demo/.

    ```
    ata-gym demo
    ata-gym demo --rounds 10000 --out results/demo
    ```
    """
    from ata_policies.registry import DEFAULTS  # noqa: PLC0415

    learner, race = DEFAULTS["ata_gym/TaskAllocation-v0"], DEFAULTS["ata_gym/TaskRace-v0"]
    say(f"The five published policies on {_SCENARIO}, and two of ours: {learner}, which waits for all that it has")
    say(f"started, and {race}, which cancels what is late. Runtime, worker time and regret:\n")
    names = f"{PUBLISHED},{learner},{race}"
    bench(out / "bench", scenario=_SCENARIO, policies=names, rounds=rounds, seeds=seeds, rerun_changed=True)
    say(f"\n{learner} learns the task times from scratch, and OFTA knows their means; none is faster than GTA.")
    say("\nA small network on real images of digits: one training run, its loss against the runtime of each policy.\n")
    train(scenario=_SCENARIO, policies=f"{_TRAINED},{learner}", out=out / "training", rerun_changed=True)
    say()
    say_files("all pictures", sorted(path for path in out.rglob("plots/*") if path.suffix in (".png", ".svg")))
