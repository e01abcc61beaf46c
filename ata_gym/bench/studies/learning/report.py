"""The report on a training: the agent beside other policies on test seeds, and its curve."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import NOUNS, SAID, beside, more_or_less, with_intervals
from ata_gym.bench.report.report import Report, legend, write
from ata_gym.bench.report.statistics import Estimate, estimates
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.studies.learning import experiment
from ata_gym.bench.studies.learning.experiment import (
    AGENT,
    END,
    START,
    UNIFORM,
    Learned,
    Learning,
    names_in,
    ratios,
    values,
)


def report(learning: Learning, learned: Learned, folder: Path) -> Report:
    """Compare the best agent with the references, and write tables and the picture.

    Args:
        learning: The training as data.
        learned: Its results.
        folder: The folder for the files.
    """
    test = learned.test
    curve = learned.curve
    agent = learning.agent
    scenario = learning.scenario
    roles = {role: name for role, name in learning.roles().items() if name in names_in(test)}
    name = scenario.name or "a scenario of one's own"
    description = (
        f"{agent.algorithm} with {agent.action} in {agent.env}, {name}, price {scenario.price:g}"
    )
    role_text = ", ".join(f"{role} is {name}" for role, name in roles.items())
    title = (
        f"{description}\n{plural(learning.test_rows, 'test seed')}, geometric means; {role_text}"
    )
    titles = (
        "after\nsteps",
        *(f"{NOUNS[quantity]}\n/ {role}" for quantity, role in compared(roles)),
    )
    rows = [(name, *cells) for name, cells in comparison(test, curve, roles).items()]
    table = Table(title, {"policy": LEFT, **right(titles)}, rows)
    summary = summarise(test)
    files = write(folder, {"table.md": markdown([table]), "table.csv": summary, "curve.csv": curve})
    left_out = [f"left out: {name} ({reason})" for name, reason in learned.left_out.items()]
    remark = "\n".join([lead(agent.env, test, curve, roles), *left_out])
    return Report(
        summary, [table], files, draw(learned, description, folder / "learning"), remark=remark
    )


def summarise(test: pl.DataFrame) -> pl.DataFrame:
    """Geometric means of the ratios on the same seeds, with 95 % intervals.

    The columns are policy, quantity, over, mean, low and high.

    Args:
        test: Rows of ``SCHEMA`` for the test seeds.
    """
    rows = [
        (name, quantity, reference, ratio)
        for name in names_in(test)
        for quantity in ("cost", "runtime", "total_worker_time")
        for reference, ratio in ratios(test, test.filter(policy=name), quantity).items()
    ]
    return estimates(rows, ["policy", "quantity", "over"])


def compared(roles: Mapping[str, str]) -> list[tuple[str, str]]:
    """The ratios that are shown: a quantity, and the role of the policy that divides it.

    Args:
        roles: The policies by their roles.
    """
    pairs = [("cost", role) for role in roles]
    pairs += [("runtime", "uniform"), ("total_worker_time", "uniform")]
    return [(quantity, role) for quantity, role in pairs if role in roles]


def comparison(
    test: pl.DataFrame,
    curve: pl.DataFrame,
    roles: Mapping[str, str],
) -> dict[str, list[str]]:
    """The cells of each policy: its steps of training, if any, and the ratios of ``compared``.

    Args:
        test: Rows of ``SCHEMA`` for the test seeds.
        curve: A row for each evaluation.
        roles: The policies by their roles.
    """
    steps = steps_of(curve)
    cells = {}
    for name in names_in(test):
        policy_rows = test.filter(policy=name)
        cells[name] = [f"{steps[name]:,}" if name in steps else "-"]
        for quantity, role in compared(roles):
            mean, _, high = ratios(test, policy_rows, quantity)[roles[role]]
            cells[name].append(show(mean, high))
    return cells


def best_of(curve: pl.DataFrame) -> int:
    """The steps after which the agent was the best on the validation seeds.

    Of several, the first counts.
    """
    return int(curve["steps"][int(curve[curve.columns[1]].arg_min() or 0)])


def steps_of(curve: pl.DataFrame) -> dict[str, int]:
    """The steps of training of each agent on the test seeds: the kept, the first, the last."""
    return {AGENT: best_of(curve), START: 0, END: int(curve["steps"][-1])}


def lead(env: str, test: pl.DataFrame, curve: pl.DataFrame, roles: Mapping[str, str]) -> str:
    """The lines on the kept agent, the first and the last one, by cost on the test seeds.

    Args:
        env: The short name of the env.
        test: Rows of ``SCHEMA`` for the test seeds.
        curve: A row for each evaluation.
        roles: The policies by their roles.
    """
    costs = {"cost": {name: values(test, name, "cost") for name in names_in(test)}}
    steps = steps_of(curve)
    seeds = len(costs["cost"][AGENT])
    labels = {roles["uniform"]: SAID["uta"]}
    if env == "allocation":
        labels[experiment.PUBLISHED] = SAID[experiment.PUBLISHED]
    labels |= {name: f"{name}, the {role}" for role, name in roles.items() if role != "uniform"}
    if steps[AGENT]:
        moment = f"after {steps[AGENT]:,} of {steps[END]:,} steps"
    else:
        moment = "before training, after 0 steps"
    if len(curve) > 1:
        evaluations = f", the best of {len(curve)} evaluations on the validation seeds"
    else:
        evaluations = ""
    uniform_label = {roles["uniform"]: SAID["uta"]}
    (start,), (end,) = (beside(costs, name, uniform_label) for name in (START, END))
    change = more_or_less(Estimate.of_ratio(costs["cost"][END], costs["cost"][START]), "cost")
    lines = [
        f"The agent that is kept is that {moment}{evaluations}. On seeds that it never saw it has",
        *(f"  {line}" for line in beside(costs, AGENT, labels)),
        "What training has changed, on the same seeds:",
        f"  the agent at the start, {start}",
        f"  the agent at the end, {end}",
        f"  the end beside the start: {change}",
    ]
    return with_intervals(lines, seeds)


def draw(learned: Learned, title: str, stem: Path) -> list[Path]:
    """Draw the cost of the agent and of the references over the cost of the uniform policy.

    Costs are on the validation seeds.

    Args:
        learned: The results of a training.
        title: Metadata of the picture.
        stem: The path of the files without an ending.
    """
    names = names_in(learned.validation)
    styles = style.lines(names)
    steps = learned.curve["steps"].to_numpy()
    with style.figure(7.5, 3.8) as picture:
        axes = picture.subplots()
        costs = learned.curve[f"cost/{UNIFORM}"].to_numpy()
        colour = style.OKABE_ITO[0]
        axes.plot(steps, costs, color=colour, marker="o", markersize=3, label="agent", zorder=3)
        axes.scatter(
            [best_of(learned.curve)],
            [costs.min()],
            s=64,
            facecolor="white",
            edgecolor=colour,
            zorder=4,
        )
        for name in names:
            policy_rows = learned.validation.filter(policy=name)
            axes.axhline(
                ratios(learned.validation, policy_rows)[UNIFORM][0], label=name, **styles[name]
            )
        axes.set(
            xlabel="steps of training (circle: the agent that is kept)",
            title=f"cost / cost of {UNIFORM}",
        )
        axes.margins(x=0.02)
        legend(picture, axes)
        axes.yaxis.set_major_formatter("{x:.3g}")
        return style.save(picture, stem, title)
