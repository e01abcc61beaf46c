"""``ata-gym explain``: what a policy thinks after some rounds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import ata_policies
from ata_gym.bench.progress import progress_bars
from ata_gym.cli import completion, options
from ata_gym.cli.console import say, say_json, show
from ata_gym.utils.errors import named_failure
from ata_gym.utils.validation import unknown, whole_number
from ata_policies.registry import ids_by_name
from ata_policies.steps import decide


def explain(
    scenario: options.OneScenario,
    policy: Annotated[
        str,
        typer.Option(
            help="A policy's name, package.module:Class, or default: then --env says of which env.",
            autocompletion=completion.policy,
        ),
    ] = "default",
    env: Annotated[
        str, typer.Option(help="Whose default: allocation, race or dispatch.", autocompletion=completion.env)
    ] = "allocation",
    data: options.Data = None,
    rounds: Annotated[int, typer.Option(help="Rounds to play.")] = 200,
    price: Annotated[float, typer.Option(help="What one unit of worker time costs in units of runtime.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the episode.")] = 0,
    workers: Annotated[int, typer.Option(help="Workers to show at most.")] = 25,
    json: options.Json = False,
) -> None:
    """Play some rounds, and tell what a policy thinks.

    Told is what is behind the last decision: the plan, and what is thought of each worker. In a program,
    `print(policy.explain(state))` tells the same of a run of your own.

    ```
    ata-gym explain --scenario changing-spot --rounds 500
    ata-gym explain --scenario icml2025-cifar100 --env race --price 0.1
    ```
    """
    from ata_gym.bench.experiment.experiment import Experiment  # noqa: PLC0415 - it takes a second
    from ata_gym.bench.report.table import LEFT, Table, right  # noqa: PLC0415
    from ata_gym.scenarios.recorded import find_scenario  # noqa: PLC0415

    ids = ids_by_name()
    if env not in ids:
        raise unknown("env", env, ids)
    whole_number("workers", workers)
    experiment = Experiment.on_scenario(find_scenario(scenario, data), rounds=rounds, seeds=1, seed=seed, price=price)
    envs = experiment.make_envs(ids[env] if policy == "default" else ata_policies.load(policy).env_id)
    if policy == "default" and not json:
        say(ata_policies.explain_default(envs))
    (observation, _), played = envs.reset(seed=seed), 0
    state: Any = None
    with named_failure(f"the policy {policy}"), progress_bars({policy: rounds}) as progress:
        made = ata_policies.make(policy, envs, seed=seed)
        while played < rounds:
            action, state = decide(made, envs, observation, state)
            observation, _, _, _, info = envs.step(action)
            played = int(state.round[0])
            progress(policy, played)
        told = made.explain(state)
    if json:
        say_json(
            {
                "about": experiment.about,
                "policy": told.policy,
                "round": told.round,
                "plan": told.plan,
                "workers": {
                    "mean": told.mean.tolist(),
                    "evidence": told.evidence.tolist(),
                    "tasks": None if told.tasks is None else told.tasks.tolist(),
                    "away": told.away.tolist(),
                    "untried": told.untried.tolist(),
                },
                "runtime": float(info["runtime"][0]),
                "total_worker_time": float(info["total_worker_time"][0]),
            }
        )
        return
    say(f"round {told.round} of {experiment.about}: {told.policy}")
    if told.plan:
        say(f"plan: {told.plan}")
    columns = dict.fromkeys(told.columns, LEFT) | right(told.columns[:-1])
    show(Table("", columns, told.rows(workers)))
    for remark in told.remarks(workers):
        say(remark)
    say(f"runtime {info['runtime'][0]:.6g}, worker time {info['total_worker_time'][0]:.6g}")
