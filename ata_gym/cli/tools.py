"""Commands that check policies, results and what is installed, and say how to cite it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import say, say_json

if TYPE_CHECKING:
    from ata_gym.cluster.doctor import Finding, State


def check(
    policy: Annotated[
        str,
        options.named_policy(help="A policy, or package.module:Class; :key=value may follow."),
    ],
    scenario: Annotated[
        str | None,
        options.scenario_option(
            help="The scenario to play; by default small ones of 5, 12 and 1 workers.",
        ),
    ] = None,
    data: options.Data = None,
    rounds: Annotated[
        int,
        typer.Option(help="Rounds to play, in two episodes; a long one has 25 times as many."),
    ] = 40,
    json: options.Json = False,
) -> None:
    """Find the faults of a policy of your own.

    The policy is played, and each fault is described in one sentence. The exit code is 1 if there
    is a fault.

    ```
    ata-gym check my_package.my_module:MyPolicy
    ata-gym check my_package.my_module:MyPolicy --rounds 200 --json
    ```
    """
    import gymnasium as gym

    from ata_gym.scenarios.recorded import find_scenario
    from ata_gym.utils.errors import named_failure
    from ata_policies import load
    from ata_policies.checking.check import examine

    if scenario is None and data is not None:
        raise ValueError("--data only goes with --scenario")
    if scenario is None:
        env = None
    else:
        chosen_scenario = find_scenario(scenario, data)
        env = gym.make(load(policy).env_id, scenario=chosen_scenario)
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


def doctor(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="A results folder, or one that holds some."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HOST:PORT",
            help="A running Ray cluster, also ray://HOST:PORT.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Say what works here, in a results folder or on a cluster.

    Without DIR and --address: packages, kernels, devices and process groups of this machine, and
    what to install. With DIR, each file is checked against the checksum written with it, except
    measured times, pages, logs and files of your own. With --address: whether the cluster can be
    joined, and has the same code on each node. The exit code is 1 if something is broken.

    ```
    ata-gym doctor
    ata-gym doctor results
    ata-gym doctor --address 10.0.0.1:6379 --json
    ```
    """
    from ata_gym.cluster.doctor import examine, print_findings

    if folder is not None and address is not None:
        raise ValueError("give either DIR or --address, and not both")
    findings: Iterable[Finding]
    if folder is not None:
        findings = _folder_findings(folder)
    elif address is not None:
        from ata_gym.cluster.on_ray.examination import cluster_findings

        findings = cluster_findings(address)
    else:
        findings = examine()
    raise typer.Exit(print_findings(findings, json))


def _folder_findings(folder: Path) -> Iterator[Finding]:
    """The damaged and missing files of results, and how many were checked."""
    from ata_gym.bench.store.folder import verify
    from ata_gym.cluster.doctor import Finding

    files = verify(folder)
    faults = [checked for checked in files if checked.fault]
    for checked in faults:
        yield Finding(str(checked.file), "broken", checked.fault)
    state: State
    if faults:
        state = "broken"
    else:
        state = "ok"
    yield Finding(str(folder), state, f"{len(files)} files checked, {len(faults)} damaged")


def cite() -> None:
    """Print the software and the paper as BibTeX.

    ```
    ata-gym cite
    ```
    """
    from ata_gym.bench.report.page.citation import bibtex

    say(bibtex())
