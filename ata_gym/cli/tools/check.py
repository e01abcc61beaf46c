"""``ata-gym check``: whether a policy keeps its contract."""

from __future__ import annotations

from typing import Annotated

import gymnasium as gym
import typer

import ata_policies
from ata_gym.cli import completion, options
from ata_gym.cli.console import say, say_json
from ata_gym.scenarios.recorded import find_scenario
from ata_gym.utils.errors import named_failure
from ata_policies.checking.check import examine


def check(
    policy: Annotated[
        str,
        typer.Argument(
            help="A policy's name, or package.module:Class; :key=value may follow.", autocompletion=completion.policy
        ),
    ],
    scenario: Annotated[
        str | None,
        typer.Option(
            help="The scenario to play; by default small ones of 5, 12 and 1 workers.",
            autocompletion=completion.scenario,
        ),
    ] = None,
    data: options.Data = None,
    rounds: Annotated[int, typer.Option(help="Rounds to play, in each of two episodes.")] = 40,
    json: options.Json = False,
) -> None:
    """Find the faults of a policy of your own.

    The policy is played, and each fault is described in one sentence. The exit code is 1 if there is a fault.

    ```
    ata-gym check my_package.my_module:MyPolicy
    ata-gym check my_package.my_module:MyPolicy --rounds 200 --json
    ```
    """
    if scenario is None and data is not None:
        raise ValueError("--data only goes with --scenario")
    found = None if scenario is None else find_scenario(scenario, data)
    env = None if found is None else gym.make(ata_policies.load(policy).env_id, scenario=found)
    with named_failure(f"the policy {policy}"):
        faults, advice = examine(policy, env, rounds)
    if json:
        say_json({"policy": policy, "faults": faults, "advice": advice})
    else:
        for kind, sentences in (("fault", faults), ("advice", advice)):
            for sentence in sentences:
                say(f"{kind}: {sentence}")
        if not faults:
            say(f"{policy} keeps the contract of a policy")
    if faults:
        raise typer.Exit(1)
