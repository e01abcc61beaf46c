"""The report on a training and its page: the agent beside other policies on the test seeds, and how it learned."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.experiment.store import Folder, finished, read_frame
from ata_gym.bench.page.experiment_page import facts, front_chart, origin, spread
from ata_gym.bench.page.note import Note, about_experiment
from ata_gym.bench.page.sections import Chart, Column, Page, Player, Tables, TableView, View
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import NOUNS, SAID, beside, more_or_less, with_intervals
from ata_gym.bench.report.report import Report, legend, write
from ata_gym.bench.report.statistics import Estimate, estimates
from ata_gym.bench.report.summary_tables import over_seeds, show
from ata_gym.bench.report.table import LEFT, Cell, Table, markdown, right
from ata_gym.rl.learning import experiment
from ata_gym.rl.learning.experiment import AGENT, END, START, UNIFORM, Learned, Learning, names_in, ratios, values
from ata_gym.scenarios.card import Card


def report(learning: Learning, learned: Learned, folder: Path) -> Report:
    """Compare the best agent with the references, and leave tables and the picture in the folder."""
    test, curve, agent, scenario = learned.test, learned.curve, learning.agent, learning.scenario
    roles = {role: name for role, name in learning.roles().items() if name in names_in(test)}
    name = scenario.name or "a scenario of one's own"
    told = f"{agent.algorithm} with {agent.action} in {agent.env}, {name}, price {scenario.price:g}"
    said = ", ".join(f"{role} is {name}" for role, name in roles.items())
    title = f"{told}\n{plural(learning.test_rows, 'test seed')}, geometric means; {said}"
    titles = ("after\nsteps", *(f"{NOUNS[quantity]}\n/ {role}" for quantity, role in compared(roles)))
    rows = [(name, *(cell.text for cell in cells)) for name, cells in comparison(test, curve, roles).items()]
    table, summary = Table(title, {"policy": LEFT, **right(titles)}, rows), summarise(test)
    files = write(folder, {"table.md": markdown([table]), "table.csv": summary, "curve.csv": curve})
    left_out = [f"left out: {name} ({reason})" for name, reason in learned.left_out.items()]
    remark = "\n".join([lead(agent.env, test, curve, roles), *left_out])
    return Report(summary, [table], files, draw(learned, told, folder / "learning"), remark=remark)


def summarise(test: pl.DataFrame) -> pl.DataFrame:
    """Columns policy, quantity, over, mean, low, high: geometric means of ratios on the same seeds, 95 % intervals."""
    rows = [
        (name, quantity, over, ratio)
        for name in names_in(test)
        for quantity in ("cost", "runtime", "total_worker_time")
        for over, ratio in ratios(test, test.filter(policy=name), quantity).items()
    ]
    return estimates(rows, ["policy", "quantity", "over"])


def compared(roles: Mapping[str, str]) -> list[tuple[str, str]]:
    """The ratios that are shown: a quantity, and the role of the policy whose quantity divides it."""
    shown = [*(("cost", role) for role in roles), ("runtime", "uniform"), ("total_worker_time", "uniform")]
    return [(quantity, role) for quantity, role in shown if role in roles]


def comparison(test: pl.DataFrame, curve: pl.DataFrame, roles: Mapping[str, str]) -> dict[str, list[Cell]]:
    """For each policy the steps of training, where it was trained, and the ratios of ``compared``."""
    steps, found = steps_of(curve), {}
    for name in names_in(test):
        mine = test.filter(policy=name)
        found[name] = [Cell(f"{steps[name]:,}", steps[name]) if name in steps else Cell("-")]
        for quantity, role in compared(roles):
            mean, _, high = ratios(test, mine, quantity)[roles[role]]
            found[name].append(Cell(show(mean, high), mean))
    return found


def best_of(curve: pl.DataFrame) -> int:
    """The steps after which the agent was the best on the validation seeds, the first if there are several."""
    return int(curve["steps"][int(curve[curve.columns[1]].arg_min() or 0)])


def steps_of(curve: pl.DataFrame) -> dict[str, int]:
    """The steps of training that each agent on the test seeds had: the one that is kept, the first and the last."""
    return {AGENT: best_of(curve), START: 0, END: int(curve["steps"][-1])}


def lead(env: str, test: pl.DataFrame, curve: pl.DataFrame, roles: Mapping[str, str]) -> str:
    """The agent that is kept, those at the start and at the end, and the ratio of these, by cost on the test seeds."""
    costs = {"cost": {name: values(test, name, "cost") for name in names_in(test)}}
    steps, seeds = steps_of(curve), len(costs["cost"][AGENT])
    published = {experiment.PUBLISHED: SAID[experiment.PUBLISHED]}
    words = {roles["uniform"]: SAID["uta"], **(published if env == "allocation" else {})}
    words |= {name: f"{name}, the {role}" for role, name in roles.items() if role != "uniform"}
    kept = f"after {steps[AGENT]:,} of {steps[END]:,} steps" if steps[AGENT] else "before training, after 0 steps"
    many = f", the best of {len(curve)} evaluations on the validation seeds" if len(curve) > 1 else ""
    uniform = {roles["uniform"]: SAID["uta"]}
    (start,), (end,) = (beside(costs, name, uniform) for name in (START, END))
    change = more_or_less(Estimate.of_ratio(costs["cost"][END], costs["cost"][START]), "cost")
    lines = [
        f"The agent that is kept is that {kept}{many}. On seeds that it never saw it has",
        *(f"  {line}" for line in beside(costs, AGENT, words)),
        "What training has changed, on the same seeds:",
        f"  the agent at the start, {start}",
        f"  the agent at the end, {end}",
        f"  the end beside the start: {change}",
    ]
    return with_intervals(lines, seeds)


def draw(learned: Learned, title: str, stem: Path) -> list[Path]:
    """Draw the cost on the validation seeds over that of the uniform policy, beside those of the other references."""
    names = names_in(learned.validation)
    looks, steps = style.lines(names), learned.curve["steps"].to_numpy()
    with style.figure(7.5, 3.8) as picture:
        axes = picture.subplots()
        own, colour = learned.curve[f"cost/{UNIFORM}"].to_numpy(), style.OKABE_ITO[0]
        axes.plot(steps, own, color=colour, marker="o", markersize=3, label="agent", zorder=3)
        axes.scatter([best_of(learned.curve)], [own.min()], s=64, facecolor="white", edgecolor=colour, zorder=4)
        for name in names:
            mine = learned.validation.filter(policy=name)
            axes.axhline(ratios(learned.validation, mine)[UNIFORM][0], label=name, **looks[name])
        axes.set(xlabel="steps of training (circle: the agent that is kept)", title=f"cost / cost of {UNIFORM}")
        axes.margins(x=0.02)
        legend(picture, axes)
        axes.yaxis.set_major_formatter("{x:.3g}")
        return style.save(picture, stem, title)


def about(learning: Learning, command: str) -> Note:
    """What the page needs to know of a training; ``command`` plays the agent."""
    agent, scenario = learning.agent, learning.scenario
    told = {"env": agent.env, "algorithm": agent.algorithm, "action": agent.action, "seed": str(agent.seed)}
    told |= {name: str(value) for name, value in agent.hyperparameters.items()}
    card = Card(AGENT, "The agent that was trained, as it was best on the validation seeds.", told, "", command)
    return {
        **about_experiment(learning.test, dict.fromkeys(learning.references())),
        "title": f"{agent.algorithm} in {agent.env} on {scenario.name or 'a scenario of one’s own'}",
        "env": agent.env,
        "steps": learning.steps,
        "roles": learning.roles(),
        "agent": card.to_data(),
    }


def page(folder: Path, note: Note) -> Page:
    """The page of a training; ValueError if it has not finished."""
    store = Folder(folder)
    files = [store.result(name) for name in ("curve", "validation", "test")]
    if not all(map(finished, files)):
        raise ValueError(
            f"the training in {folder} has not finished: run the command again, and it goes on where it stopped: "
            f"{shlex.join(note['command'])}"
        )
    curve, validation, test = map(read_frame, files)
    kinds = {one["name"]: one["kind"] for one in note["policies"]}
    players = [Player(name, kinds.get(name, "learner")) for name in names_in(test)]
    places = {player.name: place for place, player in enumerate(players)}
    roles = {role: name for role, name in note["roles"].items() if name in places}
    sections: list[Tables | Chart] = [
        _overview(test, curve, roles, kinds),
        _curve(curve, validation, places),
        _front(test, places, note["seeds"]),
        spread(_spreads(test, places)),
    ]
    sizes = [("steps of training", f"{note['steps']:,}"), *facts(note)]
    cards = [note["scenario"], note["agent"], *(one["card"] for one in note["policies"])]
    said = lead(note["env"], test, curve, roles)
    return Page("learn", note["title"], said, sizes, players, sections, cards, note["command"], origin(files))


def _overview(test: pl.DataFrame, curve: pl.DataFrame, roles: Mapping[str, str], kinds: Mapping[str, str]) -> Tables:
    found = comparison(test, curve, roles).items()
    rows = [[Cell(name), Cell(kinds.get(name, "trained")), *cells] for name, cells in found]
    titles = [f"{NOUNS[quantity]}\n/ {roles[role]}" for quantity, role in compared(roles)]
    note = (
        f"Ratios on the same test seeds: {over_seeds(test['seed'].n_unique(), 'the geometric mean')}; less is better. "
        f"Cost is runtime + price x worker time. {AGENT} is kept, as it was best on the validation seeds; {START} has "
        f"not been trained, and {END} was trained to the last step. Click on a title to sort."
    )
    columns = [Column("policy", False), Column("kind", False), *map(Column, ("after\nsteps", *titles))]
    return Tables("overview", "The agent beside the policies", note, [TableView(columns, rows)])


def _curve(curve: pl.DataFrame, validation: pl.DataFrame, places: Mapping[str, int]) -> Chart:
    steps = curve["steps"].to_numpy()
    series = [
        {"p": places[AGENT], "x": steps, "mean": curve[f"cost/{UNIFORM}"].to_numpy(), "half": None, "points": True}
    ]
    for name in names_in(validation):
        level = ratios(validation, validation.filter(policy=name))[UNIFORM][0]
        if name in places:
            series.append({"p": places[name], "x": steps[[0, -1]], "mean": [level, level], "half": None})
    note = (
        f"The cost on the validation seeds over that of {UNIFORM}, after so many steps; the other policies do not "
        "learn between episodes, and are lines."
    )
    settings = {"x": "steps of training", "y": f"cost / that of {UNIFORM}", "logX": False, "logY": False}
    data = {"x": [], "series": series}
    return Chart("curve", "How the agent learned: lower is better", note, "curves", [View(data)], settings)


def _front(test: pl.DataFrame, places: Mapping[str, int], seeds: int) -> Chart:
    points = []
    for name in names_in(test):
        x, y = (ratios(test, test.filter(policy=name), one)[UNIFORM] for one in ("total_worker_time", "runtime"))
        points.append({"p": places[name], "x": x, "y": y})
    made = front_chart([View({"points": points})], f" / that of {UNIFORM}", seeds)
    return made._replace(settings={**made.settings, "half": False})


def _spreads(test: pl.DataFrame, places: Mapping[str, int]) -> Sequence[View]:
    views = []
    for quantity, words in NOUNS.items():
        uniform = values(test, UNIFORM, quantity)
        series = [{"p": places[name], "values": values(test, name, quantity) / uniform} for name in names_in(test)]
        views.append(View({"x": f"{words} / that of {UNIFORM}", "series": series}, {"quantity": words}))
    return views
