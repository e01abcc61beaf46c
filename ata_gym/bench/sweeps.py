"""Sweeps: the same policies on one scenario with a parameter at several values, and how they fare at each."""

from collections.abc import Sequence
from dataclasses import fields
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from matplotlib.ticker import NullLocator

from ata_gym.bench.benchmark import Plan, play_plans
from ata_gym.bench.experiment.experiment import Experiment, plural
from ata_gym.bench.experiment.jobs import Effort
from ata_gym.bench.given import Policies, by_name
from ata_gym.bench.report import style
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.summary_tables import over_seeds, show
from ata_gym.bench.report.table import LEFT, Table, html, markdown, right
from ata_gym.bench.results import Results
from ata_gym.scenarios import Scenario, resolve
from ata_gym.scenarios.published import with_workers
from ata_gym.utils.atomic import file_name
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES
from ata_policies.lb_bsp.cpu import PREDICTORS
from ata_policies.presets import Preset
from ata_policies.registry import Given, load, parse

_OF_EXPERIMENTS = ("budget", "price", "rounds", "workers")  # the parameters that are not hyperparameters of policies
_INTERVAL = ("mean", "low", "high")
_PARTS = {"estimate": ESTIMATES, "memory": MEMORIES, "rule": RULES, "predictor": PREDICTORS}
"""The hyperparameters that name a part of a policy, which has some of its own."""


class Point(NamedTuple):
    """What policies did at one value of the parameter."""

    value: Any  # a number, or a text
    folder: str  # in that of the sweep
    names: dict[str, str]  # the names under which they played, by those that were given
    results: Results


class Sweep(NamedTuple):
    """What policies did at each value of a parameter; a notebook shows it as a table."""

    title: str
    parameter: str
    quantity: str  # what is compared: runtime, or cost where worker time has a price; over that of OFTA if it played
    points: list[Point]

    def table(self) -> pl.DataFrame:
        """Columns policy, value, mean, low, high: ``quantity`` after all rounds, means over seeds, 95 % intervals.

        Means of ratios are geometric. A policy that has failed has no row.
        """
        rows = []
        for value, _, names, results in self.points:
            priced = results.parts[0].experiment.scenario.price > 0
            quantity = ("cost" if priced else "runtime") + "/ofta" * ("ofta" in names)
            found = results.table().filter(quantity=quantity) if len(results.failures) < len(names) else pl.DataFrame()
            called = {name: policy for policy, name in names.items()}
            rows += [(called[one["policy"]], value, *map(one.get, _INTERVAL)) for one in found.to_dicts()]
        kinds = {"policy": pl.String, **dict.fromkeys(_INTERVAL, pl.Float64)}  # where there is no row or interval
        return pl.DataFrame(rows, ["policy", "value", *_INTERVAL], schema_overrides=kinds, orient="row")

    def plot(self) -> style.Picture:
        """A picture with a line for each policy, and its intervals."""
        table, values = self.table(), [point.value for point in self.points]
        numbers = isinstance(values[0], Real)
        places = dict(zip(values, values if numbers else range(len(values)), strict=True))
        with style.figure(6.5, 3.8) as picture:
            axes = picture.subplots()
            for policy, line in style.lines([*self.points[0].names]).items():
                mine = table.filter(policy=policy)
                across, mean = [places[value] for value in mine["value"]], mine["mean"].to_numpy()
                bars = mean - mine["low"].to_numpy(), mine["high"].to_numpy() - mean
                axes.errorbar(across, mean, bars, label=policy, marker="o", markersize=4, capsize=3, **line)
            style.logarithmic(axes.yaxis)
            wide = numbers and max(values) >= 10 * min(values) > 0
            axes.set(xscale="log" if wide else "linear", xlabel=self.parameter, title=self.quantity)
            axes.set_xticks([*places.values()], [*map(str, values)])
            axes.xaxis.set_minor_locator(NullLocator())
            picture.legend(loc="outside right upper", handlelength=2.6)
        return picture

    def report(self, out: Path) -> Report:
        """Leave the table and the picture in the folder of the sweep."""
        table, shown = self.table(), self._shown()
        files = write(out, {"sweep.md": markdown([shown]), "sweep.csv": table})
        return Report(table, [shown], files, style.save(self.plot(), out / "plots" / "sweep", self.title))

    def _shown(self) -> Table:
        found = {(policy, value): show(mean, high) for policy, value, mean, _, high in self.table().rows()}
        values = [point.value for point in self.points]
        rows = [(name, *(found.get((name, value), "-") for value in values)) for name in self.points[0].names]
        seeds = self.points[0].results.parts[0].experiment.seeds
        title = f"{self.title}\n{self.quantity}, {over_seeds(seeds)}"
        return Table(title, {"policy": LEFT, **right(f"{self.parameter}\n{value}" for value in values)}, rows)

    def _repr_html_(self) -> str:
        return html([self._shown()])


def sweep(
    policies: Policies, scenario: str | Scenario, parameter: str, values: Sequence[Any], *,
    out: str | Path | None = None, command: Sequence[str] = (), **options: Any,
) -> Sweep:  # fmt: skip
    """Play policies on a scenario with one parameter at each of several values, all values side by side.

    - ``parameter``: budget, price, rounds, workers (their number, in a published scenario, whose workers follow a
      formula of it), or a hyperparameter, such as alpha of ata: policies that do not have it play as they are.
    - ``out``: a folder with a folder for each value, which holds what ``run`` leaves, and may go on from.
    - ``options``: rounds, seeds, seed, budget, price, jobs, save_every, rerun_changed and runner, as of ``run``.

    ValueError as of ``run``, and if no policy has the hyperparameter.

    >>> from ata_gym import bench
    >>> found = bench.sweep("ofta,uta", "five-workers", "budget", [4, 8], rounds=20, seeds=2, jobs=1)
    >>> found.table().filter(policy="uta")["mean"].round(2).to_list()
    [2.04, 2.35]
    """
    given, values = by_name(policies), [*{str(value): value for value in values}.values()]
    sizes: dict[str, Any] = {"seeds": options.pop("seeds", 8)}
    sizes |= {name: options.pop(name) for name in ("rounds", "budget", "price", "seed") if name in options}
    if not values:
        raise ValueError(f"name at least one value of {parameter}")
    values = values if all(isinstance(value, Real) for value in values) else [*map(str, values)]
    taken = {name: _hyperparameters(name, own) for name, own in given.items()}
    takers = {name for name, those in taken.items() if parameter in those} - {*_OF_EXPERIMENTS}
    if not takers and parameter not in _OF_EXPERIMENTS:
        known = ", ".join(sorted({*_OF_EXPERIMENTS}.union(*taken.values())))
        raise ValueError(f"none of {', '.join(given)} has a hyperparameter {parameter!r}; what can be swept: {known}")
    if sizes.get(parameter):
        raise ValueError(f"{parameter} is what is swept: leave its other value, {sizes[parameter]}, out")
    found, effort = resolve(scenario, budget=sizes.get("budget"), price=sizes.get("price")), Effort(**options)
    title, plans, names = found.name or "a scenario without a name", list[Plan](), list[dict[str, str]]()
    for value in values:
        played = with_workers(found, value) if parameter == "workers" else found
        size = sizes | ({parameter: value} if parameter in ("budget", "price", "rounds") else {})
        names.append({name: f"{name}:{parameter}={value}" if name in takers else name for name in given})
        folder = file_name(f"{parameter}-{value}")
        plans.append(Plan(Experiment.on_scenario(played, **size), [*names[-1].values()], folder))
    call = f"bench.sweep({[*given]}, {title!r}, {parameter!r}, {values}, out='results/sweep')"
    words = command or ["python", "-c", f"from ata_gym import bench; {call}"]
    each = zip(values, plans, names, play_plans(plans, given, effort, out, words), strict=True)
    points = [Point(value, plan.folder, called, results) for value, plan, called, results in each]
    priced = any(plan.experiment.scenario.price > 0 for plan in plans)
    quantity = ("cost" if priced else "runtime") + " / OFTA" * ("ofta" in given)
    return Sweep(f"{title} by {parameter}, {plural(sizes['seeds'], 'seed')}", parameter, quantity, points)


def _hyperparameters(name: str, own: Given | None) -> set[str]:
    build: Any = load(name) if own is None else own.maker
    chosen = parse(name)[1]
    if isinstance(build, Preset):
        build, chosen = build.build, {**build.hyperparameters, **chosen}
    parts: list[Any] = [known[chosen[kind]] for kind, known in _PARTS.items() if str(chosen.get(kind)) in known]
    of_its_own = {one.name for one in signature(build).parameters.values() if one.kind is one.KEYWORD_ONLY}
    return of_its_own.union(*({field.name for field in fields(part)} for part in parts)) - {"seed"}
