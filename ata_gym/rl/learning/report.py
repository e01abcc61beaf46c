"""The report on a training: the agent beside other policies on the test seeds, and how it learned."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import NOUNS, SAID, beside, more_or_less, with_intervals
from ata_gym.bench.report.report import Report, legend, write
from ata_gym.bench.report.statistics import Estimate, estimates
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.rl.learning import experiment
from ata_gym.rl.learning.experiment import AGENT, END, START, UNIFORM, Learned, Learning, names_in, ratios, values


def report(learning: Learning, learned: Learned, folder: Path) -> Report:
    """Compare the best agent with the references, and leave tables and the picture in the folder."""
    test, curve, agent, scenario = learned.test, learned.curve, learning.agent, learning.scenario
    roles = {role: name for role, name in learning.roles().items() if name in names_in(test)}
    name = scenario.name or "a scenario of one's own"
    told = f"{agent.algorithm} with {agent.action} in {agent.env}, {name}, price {scenario.price:g}"
    said = ", ".join(f"{role} is {name}" for role, name in roles.items())
    title = f"{told}\n{plural(learning.test_rows, 'test seed')}, geometric means; {said}"
    titles = ("after\nsteps", *(f"{NOUNS[quantity]}\n/ {role}" for quantity, role in compared(roles)))
    rows = [(name, *cells) for name, cells in comparison(test, curve, roles).items()]
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


def comparison(test: pl.DataFrame, curve: pl.DataFrame, roles: Mapping[str, str]) -> dict[str, list[str]]:
    """For each policy the steps of training, where it was trained, and the ratios of ``compared``."""
    steps, found = steps_of(curve), {}
    for name in names_in(test):
        mine = test.filter(policy=name)
        found[name] = [f"{steps[name]:,}" if name in steps else "-"]
        for quantity, role in compared(roles):
            mean, _, high = ratios(test, mine, quantity)[roles[role]]
            found[name].append(show(mean, high))
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
        *(f"  {line}" for line in beside(costs, AGENT, words)), "What training has changed, on the same seeds:",
        f"  the agent at the start, {start}", f"  the agent at the end, {end}",
        f"  the end beside the start: {change}",
    ]  # fmt: skip
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
