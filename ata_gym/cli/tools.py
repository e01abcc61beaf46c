"""Commands that check policies, results and what is installed, and say how to cite it."""

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import say, say_json, show


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
        typer.Option(help="Rounds to play, in two episodes; one game has 25 times as many."),
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


def verify(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A results folder, or one that holds some."),
    ],
    json: options.Json = False,
) -> None:
    """Check results against the checksums written with them.

    Every file is checked, except measured times, pages, logs and files of your own. The exit code
    is 1 if a file is damaged or missing; the table names it, and says what to do. A run that finds
    a damaged checkpoint sets it aside by itself, and goes on from the one before.

    ```
    ata-gym verify results
    ata-gym verify results --json
    ```
    """
    from ata_gym.bench.report.table import LEFT, WRAP, Table
    from ata_gym.bench.store.folder import verify as check_files

    files = check_files(folder)
    faults = [checked for checked in files if checked.fault]
    if json:
        damaged = [
            {"file": str(damaged_file.file), "fault": damaged_file.fault} for damaged_file in faults
        ]
        say_json({"folder": str(folder), "checked": len(files), "damaged": damaged})
    elif faults:
        rows = [(str(checked.file.relative_to(folder)), checked.fault) for checked in faults]
        show(Table("damaged files", {"file": LEFT, "what is wrong": WRAP}, rows))
    if not json:
        say(f"{folder}: {len(files)} files checked, {len(faults)} damaged")
    if faults:
        raise typer.Exit(1)


def doctor(json: options.Json = False) -> None:
    """Say what is installed, what works, and what to install.

    The doctor looks at packages, kernels, devices and process groups. The exit code is 1 if
    something that is installed is broken. It works where only the base packages are installed, too.

    ```
    ata-gym doctor
    ata-gym doctor --json
    ```
    """
    from ata_gym.cluster.doctor import main

    raise typer.Exit(main(json))


def cite() -> None:
    """Print the software and the paper as BibTeX.

    ```
    ata-gym cite
    ```
    """
    from ata_gym.utils.citation import bibtex

    say(bibtex())
