"""The options that several commands share, and what a shell completes in them.

Groups of options give the scenario or the experiment that they describe.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ata_gym.bench.studies.paper.figures import PUBLISHED_POLICIES
from ata_gym.cli.console import say, say_error
from ata_gym.training.problem import problem_names
from ata_gym.utils.files.atomic import cut

if TYPE_CHECKING:
    from ata_gym.bench.runner.jobs import Effort
    from ata_gym.scenarios import Scenario

Executor = StrEnum("Executor", ["local", "ray"])
"""What runs the policies of a study."""


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A function that completes a word typed in a shell: it gives the names that begin so."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _policies() -> Iterable[str]:
    from ata_policies import names

    return ("default", *names())


def _scenarios() -> Iterable[str]:
    from ata_gym.scenarios import scenario_names
    from ata_gym.scenarios.recorded import RECORDINGS

    return (*scenario_names(), *RECORDINGS)


def _envs() -> Iterable[str]:
    from ata_policies.registry import ids_by_name

    return ids_by_name()


def _last_of_several(incomplete: str) -> list[str]:
    """The completions of policies that are separated by commas.

    Example:
        >>> _last_of_several("uta,ata-i")
        ['uta,ata-icml']
    """
    before, comma, last = incomplete.rpartition(",")
    return [
        f"{before}{comma}{name}" for name in complete_policy(last) if name not in before.split(",")
    ]


complete_policy = completing(_policies)
complete_scenario = completing(_scenarios)
complete_problem = completing(problem_names)
complete_env = completing(_envs)

PUBLISHED = ",".join(PUBLISHED_POLICIES)
"""The five policies of the published figures."""

COMPARED = f"{PUBLISHED},default"
"""The policies that are compared by default."""


def _folder(name: str | Path) -> Path:
    if not str(name).strip():
        say_error("--out must name a folder, not ''")
        raise typer.Exit(2)
    return Path(name)


def results_folder(out: Path | None, *parts: str) -> Path:
    """The folder ``out``, or without it one under results/ that is named by these parts."""
    if out is None:
        return Path("results", cut("-".join(parts)))
    return out


folder_option = partial(typer.Option, parser=_folder, metavar="FOLDER")
Out = Annotated[
    Path | None,
    folder_option(help="The results folder; by default in results/, named after the options."),
]
OutForPictures = Annotated[
    Path | None,
    folder_option(help="Write pictures into this folder, and show nothing live."),
]
named_policy = partial(typer.Argument, autocompletion=complete_policy)
named_scenario = partial(typer.Argument, autocompletion=complete_scenario)
scenario_option = partial(typer.Option, autocompletion=complete_scenario)
RequiredScenario = Annotated[
    str,
    scenario_option(help="A named scenario; `ata-gym scenarios` lists them."),
]
Data = Annotated[Path | None, typer.Option(help="The folder with the file of a recorded scenario.")]
Budget = Annotated[
    int | None,
    typer.Option(help="Results B that a round needs; by default the scenario's."),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        help="Rounds to play; by default the scenario's horizon, or as many as the trace holds.",
    ),
]
policies_option = partial(typer.Option, autocompletion=_last_of_several)
Policies = Annotated[
    str,
    policies_option(
        help="Names of policies, separated by commas; package.module:Class is one of yours.",
    ),
]
Seeds = Annotated[int, typer.Option(help="Episodes, side by side, of consecutive seeds.")]
LossCurve = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.csv",
        help=(
            "A loss to draw against runtime: columns round, rising from 0 or 1 to the last played,"
            " and loss, the loss after that round."
        ),
    ),
]
_running = partial(typer.Option, rich_help_panel="How it is run")
SaveEvery = Annotated[float, _running(help="Seconds between checkpoints.")]
RerunChanged = Annotated[
    bool,
    _running(
        "--rerun-changed",
        help="Run again what other code has made; otherwise such results are refused.",
    ),
]
ProblemData = Annotated[
    Path | None,
    typer.Option(
        help=(
            "The data that a problem reads: for cifar100 the python or binary archive, its folder,"
            " or an npz."
        ),
    ),
]
ProblemName = Annotated[
    str,
    typer.Option(
        help=(
            f"{', '.join(problem_names())}; or one of yours: package.module:function returns a"
            " problem, torch:package.module:function a module and its data."
        ),
        autocompletion=complete_problem,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document.")]


def unrecorded(name: str, command: str) -> str:
    """The name of a scenario, for a command that plays no recorded ones.

    Raises:
        ValueError: If it is the name of a recorded scenario.
    """
    from ata_gym.scenarios.recorded import RECORDINGS

    if name in RECORDINGS:
        raise ValueError(
            f"the scenario {name} is made of recorded times, which {command} does not play: choose"
            f" another one, or `ata-gym bench --scenario {name} --data FOLDER`",
        )
    return name


def entries_by_column(conditions: Iterable[str]) -> dict[str, list[str]]:
    """Return the entries of options ``--where``, by column; entries of one column add up.

    Args:
        conditions: Texts such as "kind=forward,backward", a column and its entries.

    Raises:
        ValueError: For a text without a column or without an entry.

    Example:
        >>> entries_by_column(["kind=forward,backward", "phase=train", "kind=optimizer"])
        {'kind': ['forward', 'backward', 'optimizer'], 'phase': ['train']}
    """
    entries: dict[str, list[str]] = {}
    for condition in conditions:
        column, _, values = condition.partition("=")
        if not column or not values:
            raise ValueError(f"--where must be COLUMN=ENTRY,..., not {condition!r}")
        entries.setdefault(column, []).extend(values.split(","))
    return entries


def split_names(names: str, kind: str = "policy") -> list[str]:
    """The names in a text, separated by commas, each once.

    Raises:
        ValueError: If there is none.

    Example:
        >>> split_names("ata, uta,ata,")
        ['ata', 'uta']
    """
    unique_names = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not unique_names:
        raise ValueError(f"name at least one {kind}")
    return unique_names


def policy_names(names: str) -> list[str]:
    """The policies in a text, each once; "default" stands for the default of TaskAllocation-v0.

    Raises:
        ValueError: If there is none.

    Example:
        >>> policy_names("ata,default")
        ['ata', 'distribution-learner']
    """
    from ata_policies.registry import full_name

    return [*dict.fromkeys(map(full_name, split_names(names)))]


@dataclass(frozen=True)
class Source:
    """The options that say what is played: a scenario or a trace, and how long."""

    scenario: Annotated[
        str | None,
        scenario_option(help="A named scenario; `ata-gym scenarios` lists them."),
    ] = None
    data: Data = None
    trace: Annotated[
        Path | None,
        typer.Option(help="A file of recorded task times, CSV or Parquet, in place of a scenario."),
    ] = None
    worker_column: Annotated[
        str | None,
        typer.Option(help="The trace's column that names the worker."),
    ] = None
    duration_column: Annotated[
        str | None,
        typer.Option(help="The trace's column of task times."),
    ] = None
    round_column: Annotated[
        str | None,
        typer.Option(help="The trace's column of rounds; without it times are replayed by task."),
    ] = None
    budget: Budget = None
    rounds: Rounds = None
    seeds: Seeds = 8
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0
    unit_costs: Annotated[
        str | None,
        typer.Option(
            help=(
                "What a unit of each worker's time adds to worker time, such as dollars: 3,3,0.4"
            ),
        ),
    ] = None

    def find(self) -> Scenario:
        """The scenario; for a trace, how much it holds is printed.

        Raises:
            FileNotFoundError: If a file is not there.
            ValueError: If options do not go together, one is missing, or a value is not legal.
        """
        from ata_gym.pools import read_trace
        from ata_gym.scenarios import Scenario, recorded, resolve

        if (self.scenario is None) == (self.trace is None):
            raise ValueError("give either --scenario or --trace, and not both")
        if self.scenario is not None:
            columns = ("worker_column", "duration_column", "round_column")
            unused = [f"--{name.replace('_', '-')}" for name in columns if getattr(self, name)]
            if unused:
                raise ValueError(f"{', '.join(unused)} only goes with --trace")
            return resolve(
                recorded.find_scenario(self.scenario, self.data),
                budget=self.budget,
                unit_costs=self._unit_costs(),
            )
        if self.data is not None:
            raise ValueError("--data only goes with --scenario")
        assert self.trace is not None
        worker = self.worker_column
        duration = self.duration_column
        if worker is None or duration is None or self.budget is None:
            raise ValueError("--trace needs --worker-column, --duration-column and --budget")
        pool = read_trace(self.trace, worker=worker, duration=duration, round=self.round_column)
        replayed = Scenario(pool, self.budget, name=self.trace.name, unit_costs=self._unit_costs())
        self._tell(replayed)
        return replayed

    def _unit_costs(self) -> tuple[float, ...] | None:
        try:
            if self.unit_costs is None:
                return None
            return tuple(map(float, self.unit_costs.split(",")))
        except ValueError:
            raise ValueError(
                f"--unit-costs must be numbers separated by commas, not {self.unit_costs!r}",
            ) from None

    def _tell(self, replayed: Scenario) -> None:
        """Print how much a trace holds, and how much of it is played."""
        from ata_gym.bench.experiment import recorded_rounds

        available = recorded_rounds(replayed.pool, replayed.budget)
        if self.rounds is None:
            played = available
        else:
            played = self.rounds
        if self.round_column:
            unit = "rounds"
        else:
            unit = "times as many tasks as a round needs"
        if played > available or not self.round_column:
            suffix = "; a record that ends starts over"
        else:
            suffix = ""
        say(f"{self.trace} holds {available:,} {unit}; {played:,} rounds are played{suffix}")


@dataclass(frozen=True)
class LogReading:
    """The options that say what a log does not: its columns, and which rows and steps count."""

    worker_column: Annotated[
        str | None,
        typer.Option(help="The column that names the worker."),
    ] = None
    duration_column: Annotated[str | None, typer.Option(help="The column of times.")] = None
    round_column: Annotated[
        str | None,
        typer.Option(help="The column that numbers the steps."),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=ENTRY,...",
            help="Rows that count: those with one of these entries; may be repeated, also for one"
            " column.",
        ),
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Finds the columns in the lines of a text, by groups named rank, step and ms (or"
            " us, s, time).",
        ),
    ] = None
    warmup: Annotated[
        int | None,
        typer.Option(help="First steps to leave out; by default those that the data show."),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of ``bench.what_if``.

        Raises:
            ValueError: For a condition that is none.
        """
        return {**vars(self), "where": entries_by_column(self.where or [])}


@dataclass(frozen=True)
class Running:
    """The options that say how the work is done."""

    jobs: Annotated[
        int | None,
        _running(
            help=(
                "How many policies run at once, each in a process; by default all, up to one per"
                " processor."
            ),
        ),
    ] = None
    save_every: SaveEvery = 10.0
    workers: Annotated[
        Executor,
        _running(
            "--workers",
            help="Where policies run: in processes of this machine, or on a Ray cluster.",
        ),
    ] = Executor.local
    address: Annotated[
        str | None,
        _running(
            metavar="auto|HOST:PORT",
            help=(
                "With --workers ray: a running cluster of which this machine is a node; else one is"
                " started here."
            ),
        ),
    ] = None
    rerun_changed: RerunChanged = False

    def effort(self) -> Effort:
        """How the work is done.

        Raises:
            ValueError: For a number or an address that makes no sense.
        """
        from ata_gym.bench.runner.jobs import Effort, on_this_machine
        from ata_gym.cluster.on_ray.connection import check_address, quiet_ray
        from ata_gym.cluster.on_ray.sweeps.sweep import play_on_ray
        from ata_gym.utils.validation import whole_number

        if self.jobs is not None:
            whole_number("jobs", self.jobs)
        if not self.save_every >= 0:
            raise ValueError(f"save-every must be at least 0 seconds, not {self.save_every}")
        if self.workers is Executor.ray:
            quiet_ray("--workers ray")
            if self.address is not None:
                check_address(self.address, "--address")
        elif self.address is not None:
            raise ValueError("--address only goes with --workers ray")
        if self.workers is Executor.local:
            runner = on_this_machine
        else:
            runner = partial(play_on_ray, address=self.address)
        return Effort(self.jobs, self.save_every, self.rerun_changed, runner)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the single options of each group among its parameters.

    A group is a dataclass such as ``Source``. Typer reads options from the signature, and knows no
    groups: so the function that it gets has one parameter for each field of a group.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            single_hints = get_type_hints(hints[name], include_extras=True)
            parameters += [
                parameter.replace(
                    name=option.name, default=option.default, annotation=single_hints[option.name]
                )
                for option in fields(hints[name])
            ]
        else:
            parameters.append(parameter.replace(annotation=hints[name]))

    @wraps(command)
    def called(**arguments: Any) -> None:
        for name, group in groups.items():
            arguments[name] = group(
                **{option.name: arguments.pop(option.name) for option in fields(group)}
            )
        command(**arguments)

    # single options of a group may have a default before a parameter without one: by name only
    wrapper: Any = called
    wrapper.__signature__ = inspect.Signature(
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters],
    )
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
