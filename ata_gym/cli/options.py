"""The options that several commands share, what a shell completes in them, and the experiment that they describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ata_policies
from ata_gym.cli.console import say, say_error
from ata_gym.cluster.on_ray.connection import check_address, quiet_ray
from ata_gym.pools import read_trace
from ata_gym.scenarios import scenario_names
from ata_gym.scenarios.recorded import RECORDINGS
from ata_gym.training.problem import problem_names
from ata_gym.utils.validation import whole_number
from ata_policies.registry import ids_by_name

if TYPE_CHECKING:
    from ata_gym.bench.experiment.jobs import Effort
    from ata_gym.scenarios import Scenario as ScenarioData


class Where(StrEnum):
    """Where the policies of a study run."""

    local = "local"
    ray = "ray"


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What completes a word that is typed in a shell: the names that begin with it."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _last_of_several(incomplete: str) -> list[str]:
    """What completes policies that are separated by commas.

    >>> _last_of_several("uta,ata-i")
    ['uta,ata-icml']
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_policy(last) if name not in before.split(",")]


complete_policy = completing(ata_policies.names)
complete_scenario = completing(lambda: (*scenario_names(), *RECORDINGS))
complete_problem = completing(problem_names)
complete_env = completing(ids_by_name)

PUBLISHED = "gta,ofta,ata-empirical,ata,uta"  # the five policies of the published figures


def _folder(name: str | Path) -> Path:
    """The path of a folder; an empty name, which would be the current folder, is refused."""
    if not str(name).strip():
        say_error("--out must name a folder, not ''")
        raise typer.Exit(2)
    return Path(name)


_out = partial(typer.Option, parser=_folder, metavar="FOLDER")
Out = Annotated[Path, _out(help="The results folder.")]
OutOrDefault = Annotated[Path | None, _out(help="The results folder; by default one under results/.")]
OutForPictures = Annotated[Path | None, _out(help="Write pictures into this folder, and show nothing live.")]
_named = partial(typer.Option, autocompletion=complete_scenario)
Scenario = Annotated[str | None, _named(help="A named scenario; `ata-gym scenarios` lists them.")]
OneScenario = Annotated[str, _named(help="A named scenario; `ata-gym scenarios` lists them.")]
Data = Annotated[Path | None, typer.Option(help="The folder with the file of a recorded scenario.")]
Trace = Annotated[
    Path | None, typer.Option(help="A file of recorded task times, CSV or Parquet, in place of a scenario.")
]
WorkerColumn = Annotated[str | None, typer.Option(help="The trace's column that names the worker.")]
DurationColumn = Annotated[str | None, typer.Option(help="The trace's column of task times.")]
RoundColumn = Annotated[
    str | None, typer.Option(help="The trace's column of rounds; without it times are replayed by task.")
]
Budget = Annotated[int | None, typer.Option(help="Results B that a round needs; by default the scenario's.")]
Rounds = Annotated[
    int | None, typer.Option(help="Rounds to play; by default the scenario's horizon, or as many as the trace holds.")
]
Seed = Annotated[int, typer.Option(help="The first seed.")]
policies_option = partial(typer.Option, autocompletion=_last_of_several)
Policies = Annotated[
    str, policies_option(help="Names of policies, separated by commas; package.module:Class is one of yours.")
]
Seeds = Annotated[int, typer.Option(help="Episodes, side by side, of neighbouring seeds.")]
_running = partial(typer.Option, rich_help_panel="How it is run")
Jobs = Annotated[
    int | None,
    _running(help="How many policies run at once, each in a process; by default all, up to one per processor."),
]
SaveEvery = Annotated[float, _running(help="Seconds between checkpoints.")]
Workers = Annotated[
    Where, _running("--workers", help="Where policies run: in processes of this machine, or on a Ray cluster.")
]
Address = Annotated[
    str | None,
    _running(
        metavar="auto|HOST:PORT",
        help="With --workers ray: a running cluster of which this machine is a node; by default one is started here.",
    ),
]
RerunChanged = Annotated[
    bool, _running("--rerun-changed", help="Play anew what other code has played; otherwise such results are refused.")
]
ProblemData = Annotated[
    Path | None,
    typer.Option(
        help="The data that a problem reads: for cifar100 the python or binary archive, its folder, or an npz."
    ),
]
ProblemName = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(problem_names())}; or one of yours: package.module:function returns a problem, "
        "torch:package.module:function a module and its data.",
        autocompletion=complete_problem,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document.")]


def unrecorded(name: str, command: str) -> str:
    """The name of a scenario, for a command that plays no recorded ones: ValueError for the name of such a one."""
    if name in RECORDINGS:
        raise ValueError(
            f"the scenario {name} is made of recorded times, which {command} does not play: choose another one, or "
            f"`ata-gym bench --scenario {name} --data FOLDER`"
        )
    return name


def split_names(names: str, what: str = "policy") -> list[str]:
    """The names in a text, each once; ValueError if there is none.

    >>> split_names("ata, uta,ata,")
    ['ata', 'uta']
    """
    found = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not found:
        raise ValueError(f"name at least one {what}")
    return found


def checked_effort(
    jobs: int | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    workers: Where = Where.local,
    address: str | None = None,
) -> Effort:
    """How the work of a command is done; ValueError for a number or an address that makes no sense."""
    from ata_gym.bench.experiment.jobs import Effort, on_this_machine  # noqa: PLC0415 - these imports take a second
    from ata_gym.cluster.on_ray.sweeps.sweep import play_on_ray  # noqa: PLC0415

    if jobs is not None:
        whole_number("jobs", jobs)
    if not save_every >= 0:
        raise ValueError(f"save-every must be at least 0 seconds, not {save_every}")
    if workers is Where.ray:
        quiet_ray("--workers ray")
        if address is not None:
            check_address(address, "--address")
    elif address is not None:
        raise ValueError("--address only goes with --workers ray")
    runner = on_this_machine if workers is Where.local else partial(play_on_ray, address=address)
    return Effort(jobs, save_every, rerun_changed, runner)


def find_scenario(
    scenario: str | None,
    data: Path | None,
    trace: Path | None,
    columns: tuple[str | None, str | None, str | None],
    budget: int | None,
    rounds: int | None,
) -> ScenarioData:
    """The scenario that the options of a command describe; of a trace it says how much it holds.

    The columns are those of worker, duration and round. FileNotFoundError is raised if a recorded scenario or a trace
    is not there, ValueError if the options do not fit together.
    """
    from ata_gym.bench.experiment.experiment import recorded_rounds  # noqa: PLC0415 - it takes a second
    from ata_gym.scenarios import Scenario, recorded, resolve  # noqa: PLC0415

    if (scenario is None) == (trace is None):
        raise ValueError("give either --scenario or --trace, and not both")
    if trace is None:
        names = ("--worker-column", "--duration-column", "--round-column")
        unused = [name for name, value in zip(names, columns, strict=True) if value]
        if unused:
            raise ValueError(f"{', '.join(unused)} only goes with --trace")
        assert scenario is not None
        return resolve(recorded.find_scenario(scenario, data), budget=budget)
    if data is not None:
        raise ValueError("--data only goes with --scenario")
    worker, duration, by = columns
    if worker is None or duration is None or budget is None:
        raise ValueError("--trace needs --worker-column, --duration-column and --budget")
    replayed = Scenario(read_trace(trace, worker=worker, duration=duration, round=by), budget, name=trace.name)
    held = recorded_rounds(replayed.pool, budget)
    played = held if rounds is None else rounds
    what = "rounds" if by else "times as many tasks as a round needs"
    over = "; a record that ends starts over" if played > held or not by else ""
    say(f"{trace} holds {held:,} {what}; {played:,} rounds are played{over}")
    return replayed
