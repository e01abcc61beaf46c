"""``ata-gym check``: whether a policy keeps its contract."""

from __future__ import annotations

from typing import Annotated

import gymnasium as gym
import typer

import ata_policies
from ata_gym.cli.console import named_failure, say
from ata_policies.checking.check import examine


def check(
    policy: Annotated[str, typer.Argument(help="A policy's name, or package.module:Class; :key=value may follow.")],
    scenario: Annotated[
        str | None, typer.Option(help="The scenario to play; by default small ones of 5, 12 and 1 workers.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds to play, in two episodes.")] = 40,
) -> None:
    """Play a policy and write one sentence for each fault found; exit code 1 if there is one.

    ```
    ata-gym check my_package.my_module:MyPolicy
    ```
    """
    env = None if scenario is None else gym.make(ata_policies.load(policy).env_id, scenario=scenario)
    with named_failure(f"the policy {policy}"):
        faults, advice = examine(policy, env, rounds)
    for kind, sentences in (("fault", faults), ("advice", advice)):
        for sentence in sentences:
            say(f"{kind}: {sentence}")
    if faults:
        raise typer.Exit(1)
    say(f"{policy} keeps the contract of a policy")
