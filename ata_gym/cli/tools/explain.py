"""``ata-gym explain``: what is behind the decision of a policy after some rounds."""

from __future__ import annotations

from typing import Annotated, Any

import gymnasium as gym
import typer

import ata_policies
from ata_gym.bench.progress import progress_bars
from ata_gym.cli import completion, options
from ata_gym.cli.console import say, say_json, show
from ata_gym.utils.errors import named_failure
from ata_gym.utils.validation import unknown, whole_number
from ata_policies.explanation import Explanation
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
        str,
        typer.Option(
            help="The env whose default is meant: allocation, race or dispatch.", autocompletion=completion.env
        ),
    ] = "allocation",
    data: options.Data = None,
    rounds: Annotated[int, typer.Option(help="Rounds to play.")] = 200,
    price: Annotated[float, typer.Option(help="What one unit of worker time costs in units of runtime.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The seed of the episode.")] = 0,
    workers: Annotated[int, typer.Option(help="The largest number of workers to show.")] = 25,
    json: options.Json = False,
) -> None:
    """Play some rounds, and explain the policy's last decision.

    The explanation holds the plan, and what the policy believes of each worker. In a program,
    `print(policy.explain(state))` gives the same for a run of your own.

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
    explanation, clocks = _play(policy, envs, rounds, seed)
    if json:
        say_json({"about": experiment.about, **_as_data(explanation), **clocks})
        return
    say(f"round {explanation.round} of {experiment.about}: {explanation.policy}")
    if explanation.plan:
        say(f"plan: {explanation.plan}")
    columns = dict.fromkeys(explanation.columns, LEFT) | right(explanation.columns[:-1])
    show(Table("", columns, explanation.rows(workers)))
    for remark in explanation.remarks(workers):
        say(remark)
    say(f"runtime {clocks['runtime']:.6g}, worker time {clocks['total_worker_time']:.6g}")


def _play(
    policy: str, envs: gym.vector.VectorEnv[Any, Any, Any], rounds: int, seed: int
) -> tuple[Explanation, dict[str, float]]:
    """What a policy explains in the last of some rounds, and the clocks then."""
    (observation, _), played = envs.reset(seed=seed), 0
    state: Any = None
    with named_failure(f"the policy {policy}"), progress_bars({policy: rounds}) as progress:
        made = ata_policies.make(policy, envs, seed=seed)
        while played < rounds:
            action, state = decide(made, envs, observation, state)
            observation, _, _, _, info = envs.step(action)
            played = int(state.round[0])
            progress(policy, played)
        return made.explain(state), {name: float(info[name][0]) for name in ("runtime", "total_worker_time")}


def _as_data(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON can hold it."""
    workers = {
        "mean": explanation.mean.tolist(),
        "evidence": explanation.evidence.tolist(),
        "tasks": None if explanation.tasks is None else explanation.tasks.tolist(),
        "away": explanation.away.tolist(),
        "untried": explanation.untried.tolist(),
    }
    about = {"policy": explanation.policy, "round": explanation.round, "plan": explanation.plan}
    return about | {"workers": workers}
