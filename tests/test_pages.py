import json
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import typer.main

import ata_policies
from ata_gym.cli import app
from ata_gym.scenarios import scenario_names
from ata_gym.scenarios.recorded import RECORDINGS
from docs import (
    adaptive_k,
    latencies,
    linear_regret,
    local_steps,
    newest_methods,
    other_policies,
    tables,
)

ROOT = Path(__file__).parents[1]
FOLDERS = ("ata_gym", "policies", "tests", "notebooks", "docs", "findings")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))],
)
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
WRITTEN = [path for path in (*PAGES, *NOTEBOOKS) if ".ipynb_checkpoints" not in path.parts]
SOURCES = {
    f"/{path.relative_to(ROOT).as_posix()}"
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
}
CODE = [
    *ROOT.glob("*.toml"),
    *ROOT.glob("*.py"),
    *(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in {".py", ".ipynb", ".html", ".js", ".css", ".sh"}
    ),
]
"""Files in which a name must stand that a page writes as code."""
FOREIGN = {"AsyncVectorEnv"}
"""Names of other packages that pages speak of and no code here uses."""
COMMANDS: dict[str, Any] = dict(typer.main.get_command(app).commands)

WIDEST = 150  # characters of a line of prose


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    return "\n\n".join("".join(cell["source"]) for cell in cells)


FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text) if language in languages]


def targets(text: str) -> Iterator[str]:
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    found = re.findall(r"\]\(([^()\s]+)\)", prose) + re.findall(
        r"<img[^>]* src=\"([^\"]+)\"",
        prose,
    )
    yield from (target for target in found if not re.match(r"[a-z]+:", target))


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


ENTRY_POINTS = {"ata_gym.policies"}  # groups, which look like modules


def spans(text: str) -> list[str]:
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCE.sub("", text))]


def is_there(dotted: str) -> bool:
    """Whether a module has a name, as its file says: importing all of them would take long, and
    need every extra.
    """
    parts = dotted.split(".")
    for k in range(len(parts), 0, -1):
        folder = ROOT / ("policies" if parts[0] == "ata_policies" else "") / Path(*parts[:k])
        if folder.is_dir():
            file = folder / "__init__.py"
        else:
            file = folder.with_suffix(".py")
        if file.is_file():
            return k == len(parts) or bool(
                re.search(rf"\b{parts[k]}\b", file.read_text(encoding="utf-8")),
            )
    return False


def broken_links(page: Path) -> Iterator[str]:
    for target in targets(text_of(page)):
        where, _, heading = target.partition("#")
        if where:
            found = (page.parent / where).resolve()
        else:
            found = page
        known = found.exists() and found.is_relative_to(ROOT)
        if not known or (heading and heading not in anchors(text_of(found))):
            yield target


def unknown_names(page: Path) -> Iterator[str]:
    for span in set(spans(text_of(page))):
        dotted = re.match(r"(?:ata_gym|ata_policies)(?:\.[A-Za-z_]\w*)+", span)
        if dotted and dotted[0] not in ENTRY_POINTS and not is_there(dotted[0]):
            yield span
        file = span.partition("::")[0]
        named = re.fullmatch(r"(?!my_)[\w/]+/\w+\.py(::\w+)?", span)
        if named and not any(f"/{file}" in path for path in SOURCES):
            yield span
        if re.fullmatch(r"[A-Za-z_][\w.]*(\(\))?", span) and not span.startswith("my_"):
            words = set(re.findall(r"\w+", span))
            if not words <= all_words() | FOREIGN and not (ROOT / span).exists():
                yield span


@cache
def all_words() -> frozenset[str]:
    """The words of all files that are no pages: code, configuration, notebooks and templates."""
    texts = (path.read_text("utf-8") for path in CODE)
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def commands(text: str) -> Iterator[tuple[str, bool]]:
    """Every call of ``ata-gym``, and whether it is in a block of shell or in a span of code."""
    shell = "\n".join(blocks(text, "sh", "")).replace("\\\n", " ")
    for line in shell.splitlines():
        yield from (
            (part.strip(), True)
            for part in re.split(r"(?=\bata-gym )|;", line)
            if part.startswith("ata-gym ")
        )
    yield from ((span, False) for span in spans(text) if span.startswith("ata-gym "))


def fault_of(call: str, complete: bool) -> str | None:
    """What the command line would say of a call; None if nothing. The call is read, not run."""
    name, *words = shlex.split(call, comments=True)[1:]
    if name in {"--help", "-h"}:
        return None
    if name not in COMMANDS:
        return f"{call}: no such command"
    try:
        read = COMMANDS[name].make_context(name, words).params
    except Exception as error:  # of click, or of the copy of click that typer has
        # the answer is whole, as for --list-methods
        if isinstance(error, typer.Exit):
            return None
        # such as "--trace" without a file
        partial = type(error).__name__ in {"MissingParameter", "BadOptionUsage"}
        if partial and not complete:
            return None
        return f"{call}: {error}"
    known = {
        "scenario": {*scenario_names(), *RECORDINGS},
        "policies": {*ata_policies.names(), "default"},
    }
    for option, names in known.items():
        written = [part.partition(":")[0] for part in str(read.get(option) or "").split(",")]
        unknown = [
            word for word in written if re.fullmatch(r"[a-z][a-z\d-]*", word) and word not in names
        ]
        if unknown:
            return f"{call}: no {option} named {unknown}"
    return None


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_what_a_page_speaks_of_exists(page: Path) -> None:
    faults = [fault_of(call, complete) for call, complete in commands(text_of(page))]
    assert not [*broken_links(page), *unknown_names(page), *filter(None, faults)]
    if page in PAGES:
        lines = FENCE.sub("", text_of(page)).splitlines()
    else:
        lines = []
    assert not [line for line in lines if len(line) > WIDEST and not line.startswith("|")]


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    absent = "allo" + "catte"  # in two parts, or it would stand here
    (tmp_path / "page.md").write_text(f"`allocate` and `{absent}()`")
    assert list(unknown_names(tmp_path / "page.md")) == [f"{absent}()"]
    assert is_there("ata_gym.rl.torchrl.make_env")
    assert not is_there("ata_gym.rl.torchrl.make_envs")
    assert not is_there("ata_gym.pool")
    assert "no such command" in str(fault_of("ata-gym banch --out results", complete=True))
    assert "--rownds" in str(fault_of("ata-gym bench --out results --rownds 5", complete=False))
    assert "out" in str(fault_of("ata-gym pretrain", complete=True))
    assert "utah" in str(fault_of("ata-gym bench --out results --policies utah,gta", complete=True))
    assert sum(1 for page in WRITTEN for _ in commands(text_of(page))) > 50


PYTHON = [page for page in PAGES if blocks(text_of(page), "python")]

SAID: dict[str, Callable[[dict[str, Any]], bool]] = {
    "README.md": lambda names: (
        names["agent"].num_timesteps == 6_400
        and names["allocator"].rounds == 10
        and "Averages" in names["results"].table()["policy"]
    ),
    "policies/README.md": lambda names: names["shares"] == {"gpu0": 6, "gpu1": 5, "cpu": 5},
    "notebooks/cluster/README.md": lambda names: (
        len(names["done"].values) == 8 and names["allocator"].rounds == 10
    ),
    "notebooks/agents/README.md": lambda names: names["agent"].num_timesteps == 6_400,
}
"""What pages say of the names in their Python."""


@pytest.mark.parametrize("page", PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(
    page: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What a page writes does not stay in the checkout.
    monkeypatch.chdir(tmp_path)
    python = blocks(text_of(page), "python")
    text = "\n".join(python)
    names = {"__name__": "page"}
    if re.search(r"\bmy_|stable_baselines3|ata_gym\.cluster", text):
        names |= your_own(request)
    if "stable_baselines3" in text:
        pytest.importorskip("stable_baselines3")
    if "ata_gym.cluster" in text:  # a process group of one rank
        torch = pytest.importorskip("torch")
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{tmp_path}/store",
            rank=0,
            world_size=1,
        )
        request.addfinalizer(torch.distributed.destroy_process_group)
    if "RayRunner" in text:
        pytest.importorskip("ray")
        from ata_gym.cluster import connect_ray

        request.addfinalizer(connect_ray(num_cpus=2, object_store_memory=80 * 2**20).shutdown)
    for number, block in enumerate(python, 1):
        for long, short in (
            ("rounds=1000)", "rounds=20, jobs=1)"),
            ("learn(500_000)", "learn(6_400)"),
        ):
            block = block.replace(long, short)  # noqa: PLW2901 - the same in less time
        exec(compile(block, f"{name_of(page)}, block {number}", "exec"), names)
    assert SAID.get(name_of(page), bool)(names)


def your_own(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a reader has: a model, its data and its loss.

    Torch gets one thread, as networks are small.
    """
    torch = pytest.importorskip("torch")
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(1)
    samples = torch.utils.data.TensorDataset(torch.randn(64, 5), torch.arange(64) % 3)
    model = torch.nn.Linear(5, 3)
    return {
        "my_data": samples,
        "my_loader": torch.utils.data.DataLoader(samples, batch_size=8),
        "my_model": model,
        "my_module": torch.nn.Linear(5, 3),
        "my_optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "my_loss": torch.nn.functional.cross_entropy,
    }


def test_the_readme_fits_on_a_few_screens() -> None:
    text = text_of(ROOT / "README.md")
    assert len(text.splitlines()) <= 130
    python = blocks(text, "python")
    assert len(python) == 4  # a round, and a door for each kind of user
    assert all(len([line for line in block.splitlines() if line.strip()]) <= 10 for block in python)


def test_every_table_that_a_command_makes_stands_in_its_page() -> None:
    known = {folder for page in PAGES for folder, _ in tables.commands(text_of(page))}
    made = [one for page in PAGES for one in tables.MADE.finditer(text_of(page))]
    assert len(made) > 3
    assert all(
        one["table"].count("\n") > 2 and one["file"].rpartition("/")[0] in known for one in made
    )


def test_tables_are_made_again_from_the_files_of_their_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (
        "```sh\nata-gym bench --policies uta \\\n    --out results/a  # quick\nata-gym bench --data"
        " $NOWHERE --out results/b\n```\n\n<!-- results/a/table.md: Cost -->\n| old"
        " |\n|---|\n\nProse.\n\n<!-- results/b/table.md: Cost -->\n| b |\n"
    )
    monkeypatch.delenv("NOWHERE", raising=False)
    assert dict(tables.commands(page)) == {
        "results/a": tables.Command(["bench", "--policies", "uta", "--out", "results/a"], ""),
        "results/b": tables.Command(
            ["bench", "--data", "$NOWHERE", "--out", "results/b"],
            "$NOWHERE",
        ),
    }
    file = (
        "## Title\n\nRegret\n| x |\n|---|\n\nCost of all,\nin seconds\n| new |\n|---|\n| 1"
        " |\n\nmore\n"
    )
    again, lines = tables.made_again(page, {"results/a/table.md": file})
    assert again == page.replace("| old |\n|---|\n", "| new |\n|---|\n| 1 |\n")
    assert lines == ["changed results/a/table.md: Cost"]
    assert tables.made_again(again, {"results/a/table.md": file}) == (
        again,
        ["same    results/a/table.md: Cost"],
    )
    with pytest.raises(ValueError, match="no table there has a title that begins with 'Costs'"):
        tables.table(file, "Costs")


def test_a_table_that_a_command_prints_is_printed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    text = (
        "One\n\n<!-- printed by: python -c \"print('said', '| new |', sep='\\\\n')\" -->\n| old"
        " |\n\nTwo\n"
    )
    new, lines = tables.printed_again(text)
    assert new == text.replace("old", "new")
    assert [line.split()[0] for line in (*lines, *tables.printed_again(new)[1])] == [
        "changed",
        "same",
    ]
    assert tables.printed_again("<!-- printed by: python $NOWHERE -->\n| old |\n")[1][0].endswith(
        "set NOWHERE",
    )


def test_the_table_of_the_newest_methods_tells_who_goes_astray() -> None:
    ends = {
        case: newest_methods.end(case, 9.0, seed=0, gradients=300)
        for case in ("asgd", "rescaled-asgd, times known")
    }
    assert ends["rescaled-asgd, times known"] < 0.2 * ends["asgd"]


def test_the_table_of_local_steps_reads_the_loss_of_the_last_round_that_has_ended() -> None:
    curve = [(0.0, 8.0), (2.0, 4.0), (5.0, 3.0)]
    times = np.array([0.0, 1.9, 2.0, 4.0, 9.0])
    assert local_steps.loss_at(curve, times).tolist() == [8.0, 8.0, 4.0, 4.0, 3.0]
    world = local_steps.worlds()["quadratic"]._replace(goal=3.0)
    reached = local_steps.reached(world, [curve, curve[:2]])
    assert reached.tolist() == [5.0, np.inf]
    assert local_steps.cell(reached, 0.1) == "in 1 of 2; 0.1"
    assert local_steps.ratio(reached, reached[:1]) == "-"
    rounds = [
        [*local_steps.losses(world._replace(until=300.0), f"local-sgd, {way}", 0.2, 0)]
        for way in ("equal", "proportional")
    ]
    # A round of equal steps waits for 8 steps of the slowest worker, at 4 each.
    assert len(rounds[0]) < 0.7 * len(rounds[1])
    assert local_steps.trial(world, "local-sgd, equal", 1e9, 0) == (np.inf, np.inf)


def test_the_table_of_linear_regret_counts_the_tasks_of_the_slower_worker() -> None:
    assert linear_regret.play("ofta", 1.0, rounds=40, rows=3) == (0.0, 0.0, 0)
    # which draws one of the two in each round
    tenth, whole, stay = linear_regret.play(
        "uta",
        1.0,
        rounds=400,
        rows=8,
    )
    assert 0.7 < tenth / (0.5 * 0.5 * 40) < 1.3
    assert 0.9 < whole / (0.5 * 0.5 * 400) < 1.1
    assert stay == 0


def test_the_table_of_latencies_compares_what_a_loop_is_told() -> None:
    assert latencies._whole(np.array([1.0, 3.0]), 4.0).tolist() == [4.0, 4.0]
    pool = latencies.drawn_pool(20.0, 0)
    least = latencies.oracle_runtime(pool, 0, 40)
    apart, alone = (latencies.runtime(pool, way, 0, 40) for way in ("apart", "tasks"))
    assert least < apart < alone


def test_the_errors_of_the_growing_k_are_those_of_sgd() -> None:
    schedule = adaptive_k.progress(adaptive_k.NUMBERS)
    assert schedule.errors[-1] <= adaptive_k.ERRORS[-1] < schedule.errors[-2]
    assert (np.diff(schedule.numbers) >= 0).all()
    assert {*schedule.numbers.tolist()} == {*adaptive_k.NUMBERS}
    rng = np.random.default_rng(0)
    h = adaptive_k.CURVATURES
    x = np.full((4000, h.size), adaptive_k.START**0.5)
    for i, k in enumerate(schedule.numbers):
        x -= adaptive_k.STEP * (h * x + rng.standard_normal(x.shape) / k**0.5)
        if i % 40 == 0:
            assert (x**2 @ h / 2).mean() == pytest.approx(schedule.errors[i], rel=0.05)
    with pytest.raises(ValueError, match=r"no number of rounds gets to an error of 0\.02"):
        adaptive_k.progress((1, 2))


def test_what_was_learned_with_one_k_counts_for_the_next() -> None:
    numbers = np.array([1] * 40 + [8] * 20)
    (rival, rival_busy), (bounds, busy) = (
        adaptive_k.costs(name, numbers, 3) for name in (f"{adaptive_k.RIVAL}kl-lcb", "kl-lcb")
    )
    # A single task goes to the worker of the lowest bound, once all were tried in some order.
    tried = slice(adaptive_k.N - 1, 40)
    assert rival[:, tried] == pytest.approx(bounds[:, tried])
    assert (rival[:, -1] != bounds[:, -1]).any()
    assert (rival <= rival_busy + 1e-9).all()
    assert (bounds <= busy + 1e-9).all()
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=3, scenario="five-workers", budget=2)
    larger = gym.make_vec(
        "ata_gym/TaskAllocation-v0", num_envs=3, scenario="five-workers", budget=4
    )
    policy, next_policy = (ata_policies.make("kl-lcb", each) for each in (envs, larger))
    action, state = policy.predict(envs.reset(seed=0)[0])
    observation = adaptive_k.with_room(envs.step(action)[0], 4)
    _, state = next_policy.predict(observation, state)
    assert (state.belief.counts == action).all()
    chosen = adaptive_k.lowest_bounds(next_policy, state, 3)
    assert (chosen.sum(axis=1) == 3).all()
    assert chosen.max() == 1
    assert not (chosen[action > 0]).any(), "workers never tried have the lowest bounds"


def test_the_table_of_other_policies_has_what_a_log_says_beside_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_policies, "ROUNDS", 80)
    monkeypatch.setattr(other_policies, "RUNS", 2)
    path = tmp_path / "times.csv"
    rows = other_policies.rows_of("scheduler", 1, path)
    assert len(rows) == 2 * len(other_policies.OTHERS)
    truth = [
        other_policies.play(name, 10_000 + seed) for name in ("uta", "scheduler") for seed in (0, 1)
    ]
    ratio = np.mean(truth[:2], axis=0) / np.mean(truth[2:], axis=0)
    assert [row[2] for row in rows[:2]] == [f"{value:.3f}" for value in ratio]
    # of the scheduler's log, how likely each decision was is known beforehand
    rng = np.random.default_rng(0)
    decisions = [other_policies.scheduled(rng, True) for _ in range(2_000)]
    assert np.mean([tasks["d"] for tasks, _ in decisions]) == pytest.approx(0.8, abs=0.04)
    for tasks, propensities in decisions[:20]:
        others = [name for name in "abc" if not tasks[name]]
        assert propensities.allocation == pytest.approx(0.8 / 3 if others else 0.2)
        assert propensities.workers["a"] == pytest.approx(0.2 + 0.8 * 2 / 3)
