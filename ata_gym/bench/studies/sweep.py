"""Sweeps: the same policies on one scenario, with a parameter at several values."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from matplotlib.ticker import NullLocator

from ata_gym.bench.experiment import Experiment, plural
from ata_gym.bench.report import style
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.summary_tables import over_seeds, show
from ata_gym.bench.report.table import LEFT, Table, html, markdown, right
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policies import Policies, by_name
from ata_gym.bench.runner.results import Results
from ata_gym.bench.studies.comparison import Plan, play_plans
from ata_gym.scenarios import Scenario, resolve
from ata_gym.scenarios.published import with_workers
from ata_gym.utils.atomic import file_name
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES
from ata_policies.lb_bsp.cpu import PREDICTORS
from ata_policies.presets import Preset
from ata_policies.registry import Given, load, parse

_SIZES = ("budget", "price", "rounds")
"""The parameters that are arguments of an experiment."""

_OF_EXPERIMENTS = (*_SIZES, "workers")
"""The parameters that are not hyperparameters of policies."""

_INTERVAL = ("mean", "low", "high")

_PARTS = {"estimate": ESTIMATES, "memory": MEMORIES, "rule": RULES, "predictor": PREDICTORS}
"""The hyperparameters that name a part of a policy, which has some of its own."""


class Point(NamedTuple):
    """What policies did at one value of the parameter."""

    value: Any
    """A number, or a text."""
    folder: str
    """The name of its folder in the folder of the sweep."""
    names: dict[str, str]
    """For each policy, by the name that was given, the name under which it played."""
    results: Results


class Sweep(NamedTuple):
    """What policies did at each value of a parameter; a notebook shows it as a table."""

    title: str
    parameter: str
    quantity: str
    """What is compared: runtime, or cost where worker time has a price.

    If OFTA played, it is the ratio to the same quantity of OFTA.
    """
    points: list[Point]

    def table(self) -> pl.DataFrame:
        """Means over seeds of ``quantity`` after all rounds, and their 95 % intervals.

        The columns are policy, value, mean, low, high. Means of ratios are geometric. A policy that
        has failed has no row.
        """
        rows = []
        for value, _, names, results in self.points:
            if results.parts[0].experiment.scenario.price > 0:
                quantity = "cost"
            else:
                quantity = "runtime"
            if "ofta" in names:
                quantity += "/ofta"
            if len(results.failures) < len(names):
                summary = results.table().filter(quantity=quantity)
            else:
                summary = pl.DataFrame()
            policy_by_name = {name: policy for policy, name in names.items()}
            rows += [
                (policy_by_name[row["policy"]], value, *map(row.get, _INTERVAL))
                for row in summary.to_dicts()
            ]
        # types for a table without rows, and for columns without a number
        kinds = {"policy": pl.String, **dict.fromkeys(_INTERVAL, pl.Float64)}
        return pl.DataFrame(
            rows,
            ["policy", "value", *_INTERVAL],
            schema_overrides=kinds,
            orient="row",
        )

    def plot(self) -> style.Picture:
        """A picture with a line for each policy, and its intervals."""
        table = self.table()
        values = [point.value for point in self.points]
        numbers = isinstance(values[0], Real)
        # texts stand side by side, at 0, 1, 2, ...
        if numbers:
            position_by_value = dict(zip(values, values, strict=True))
        else:
            position_by_value = dict(zip(values, range(len(values)), strict=True))
        with style.figure(6.5, 3.8) as picture:
            axes = picture.subplots()
            for policy, line in style.lines([*self.points[0].names]).items():
                rows = table.filter(policy=policy)
                positions = [position_by_value[value] for value in rows["value"]]
                mean = rows["mean"].to_numpy()
                errors = mean - rows["low"].to_numpy(), rows["high"].to_numpy() - mean
                axes.errorbar(
                    positions,
                    mean,
                    errors,
                    label=policy,
                    marker="o",
                    markersize=4,
                    capsize=3,
                    **line,
                )
            style.logarithmic(axes.yaxis)
            if numbers and max(values) >= 10 * min(values) > 0:
                scale = "log"
            else:
                scale = "linear"
            axes.set(xscale=scale, xlabel=self.parameter, title=self.quantity)
            axes.set_xticks([*position_by_value.values()], [*map(str, values)])
            axes.xaxis.set_minor_locator(NullLocator())
            picture.legend(loc="outside right upper", handlelength=2.6)
        return picture

    def report(self, out: Path) -> Report:
        """Leave the table and the picture in the folder of the sweep."""
        table = self.table()
        shown = self._shown()
        files = write(out, {"sweep.md": markdown([shown]), "sweep.csv": table})
        pictures = style.save(self.plot(), out / "plots" / "sweep", self.title)
        return Report(table, [shown], files, pictures)

    def _shown(self) -> Table:
        cells = {
            (policy, value): show(mean, high)
            for policy, value, mean, _, high in self.table().rows()
        }
        values = [point.value for point in self.points]
        rows = [
            (name, *(cells.get((name, value), "-") for value in values))
            for name in self.points[0].names
        ]
        seeds = self.points[0].results.parts[0].experiment.seeds
        title = f"{self.title}\n{self.quantity}, {over_seeds(seeds)}"
        return Table(
            title,
            {"policy": LEFT, **right(f"{self.parameter}\n{value}" for value in values)},
            rows,
        )

    def _repr_html_(self) -> str:
        return html([self._shown()])


def sweep(
    policies: Policies,
    scenario: str | Scenario,
    parameter: str,
    values: Sequence[Any],
    *,
    out: str | Path | None = None,
    command: Sequence[str] = (),
    **options: Any,
) -> Sweep:
    """Play policies on a scenario at several values of one parameter, all values side by side.

    Args:
        policies: The policies, as for ``run``.
        scenario: A scenario or its name.
        parameter: Budget, price, rounds, workers (their number, in a published scenario, whose
            workers follow a formula of it), or a hyperparameter, such as alpha of ata: policies
            that do not have it play as they are.
        values: The values of the parameter, numbers or texts; each counts once.
        out: A folder with a folder for each value, which holds what ``run`` leaves, and may go on
            from.
        command: The words by which a page says how to repeat this; by default this call.
        options: Rounds, seeds, seed, budget, price, jobs, save_every, rerun_changed and runner, as
            for ``run``.

    Raises:
        ValueError: Where ``run`` raises one, and if no policy has the hyperparameter.

    Example:
        >>> from ata_gym import bench
        >>> size = {"rounds": 20, "seeds": 2, "jobs": 1}
        >>> found = bench.sweep("ofta,uta", "five-workers", "budget", [4, 8], **size)
        >>> found.table().filter(policy="uta")["mean"].round(2).to_list()
        [2.04, 2.35]
    """
    policies_by_name = by_name(policies)
    values = [*{str(value): value for value in values}.values()]
    sizes: dict[str, Any] = {"seeds": options.pop("seeds", 8)}
    sizes |= {name: options.pop(name) for name in (*_SIZES, "seed") if name in options}
    if not values:
        raise ValueError(f"name at least one value of {parameter}")
    if not all(isinstance(value, Real) for value in values):
        values = [*map(str, values)]
    takers = _takers(parameter, policies_by_name)
    if sizes.get(parameter):
        raise ValueError(
            f"{parameter} is what is swept: leave its other value, {sizes[parameter]}, out",
        )
    resolved = resolve(scenario, budget=sizes.get("budget"), price=sizes.get("price"))
    effort = Effort(**options)
    scenario_name = resolved.name or "a scenario without a name"
    plans: list[Plan] = []
    names: list[dict[str, str]] = []
    for value in values:
        if parameter == "workers":
            played = with_workers(resolved, value)
        else:
            played = resolved
        size = dict(sizes)
        if parameter in _SIZES:
            size[parameter] = value
        played_names = {name: name for name in policies_by_name}
        played_names |= {
            name: f"{name}:{parameter}={value}" for name in policies_by_name if name in takers
        }
        names.append(played_names)
        folder = file_name(f"{parameter}-{value}")
        plans.append(Plan(Experiment.on_scenario(played, **size), [*played_names.values()], folder))
    call = (
        f"bench.sweep({[*policies_by_name]}, {scenario_name!r}, {parameter!r}, {values},"
        " out='results/sweep')"
    )
    page_command = command or ["python", "-c", f"from ata_gym import bench; {call}"]
    outcomes = zip(
        values,
        plans,
        names,
        play_plans(plans, policies_by_name, effort, out, page_command),
        strict=True,
    )
    points = [
        Point(value, plan.folder, played_names, results)
        for value, plan, played_names, results in outcomes
    ]
    if any(plan.experiment.scenario.price > 0 for plan in plans):
        quantity = "cost"
    else:
        quantity = "runtime"
    if "ofta" in policies_by_name:
        quantity += " / OFTA"
    about = f"{scenario_name} by {parameter}, {plural(sizes['seeds'], 'seed')}"
    return Sweep(about, parameter, quantity, points)


def _takers(parameter: str, policies: Mapping[str, Given | None]) -> set[str]:
    """The names of the policies that have a hyperparameter; none where the experiment has it.

    Raises:
        ValueError: If none has it, and it is no parameter of an experiment either.
    """
    if parameter in _OF_EXPERIMENTS:
        return set()
    hyperparameters = {
        name: _hyperparameters(name, given_policy) for name, given_policy in policies.items()
    }
    takers = {name for name, available in hyperparameters.items() if parameter in available}
    if not takers:
        sweepable = ", ".join(sorted({*_OF_EXPERIMENTS}.union(*hyperparameters.values())))
        raise ValueError(
            f"none of {', '.join(policies)} has a hyperparameter {parameter!r}; what can be swept:"
            f" {sweepable}",
        )
    return takers


def _hyperparameters(name: str, given_policy: Given | None) -> set[str]:
    """The hyperparameters of a policy and of the parts that it is made of."""
    build: Any
    if given_policy is None:
        build = load(name)
    else:
        build = given_policy.maker
    chosen = parse(name)[1]
    if isinstance(build, Preset):
        build, chosen = build.build, {**build.hyperparameters, **chosen}
    parts: list[Any] = [
        choices[chosen[kind]]
        for kind, choices in _PARTS.items()
        if str(chosen.get(kind)) in choices
    ]
    own_names = {
        parameter.name
        for parameter in signature(build).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    return own_names.union(*({field.name for field in fields(part)} for part in parts)) - {"seed"}
