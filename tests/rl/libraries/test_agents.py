"""The scripts in notebooks/agents: each runs, and its agent beats uniform; the table there names
tests that exist.

The files of CleanRL run with the changed lines that the page there shows, and print their returns.
"""

import re
import runpy
import sys
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
AGENTS = ROOT / "notebooks" / "agents"
README = AGENTS / "README.md"
NEEDS = {
    "sb3": "stable_baselines3",
    "sb3_contrib": "sb3_contrib",
    "cleanrl": "torch",
    "torchrl": "torchrl",
    "torchrl_wrapper": "torchrl",
    "tianshou": "tianshou",
    "rllib": "tree",
    "agilerl": "agilerl",
    "sbx": "sbx",
    "d3rlpy": "d3rlpy",
    "minari": "minari",
    "skrl": "skrl",
    "rl_games": "rl_games",
    "xuance": "xuance",
}
ELSEWHERE = NEEDS.keys() - {"sb3", "sb3_contrib", "cleanrl"}
"""They have environments of their own."""
# importing TorchRL alone warns
OF_A_SESSION = [
    pytest.mark.library,
    pytest.mark.filterwarnings("default"),
]


def test_each_library_has_one_and_each_is_short() -> None:
    paths = {path.name: path for path in AGENTS.glob("with_*.py")}
    assert paths.keys() == {f"with_{library}.py" for library in NEEDS}
    assert max(len(path.read_text(encoding="utf-8").splitlines()) for path in paths.values()) <= 90


@pytest.mark.parametrize(
    "library",
    [pytest.param(module, marks=OF_A_SESSION if module in ELSEWHERE else ()) for module in NEEDS],
)
def test_each_agent_learns(
    library: str,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    pytest.importorskip(NEEDS[library])
    if library == "rllib":
        request.getfixturevalue("ray")
    runpy.run_path(str(AGENTS / f"with_{library}.py"), run_name="__main__")
    returns = [
        float(number)
        for number in re.findall(r"^\w+: (-\d+\.\d+)$", capsys.readouterr().out, re.MULTILINE)
    ]
    assert len(returns) == 2
    assert returns[0] > 0.97 * returns[1]


PACKAGES = {
    "Stable-Baselines3": "stable_baselines3",
    "RLlib": "ray[rllib]",
    "SBX": "sbx-rl",
    "rl_games": "rl-games",
    "Minari": "minari[create,hdf5]",
}
"""Where a package has another name than its library."""


def rows_of_the_table() -> list[list[str]]:
    lines = README.read_text(encoding="utf-8").splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("| Library | Env |"))
    rows = takewhile(lambda line: line.startswith("|"), lines[first + 2 :])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def test_the_table_names_tests_that_there_are_and_the_versions_installed_for_them() -> None:
    """The versions are in constraints.txt, or in the sessions of nox; some libraries have no
    version of their own.
    """
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8") + (ROOT / "noxfile.py").read_text(
        encoding="utf-8",
    )
    rows = rows_of_the_table()
    assert len(rows) >= 15
    for row in rows:
        library = row[0]
        version = row[3]
        tests = re.findall(r"`(test_\w+)::(test_\w+)`", row[-1])
        assert tests
        for file, test in tests:
            (path,) = (ROOT / "tests").rglob(f"{file}.py")
            assert f"def {test}(" in path.read_text(encoding="utf-8")
        if library != "sb3-contrib" and not library.startswith("CleanRL"):
            name = PACKAGES.get(library, library.lower())
            assert f"{name}=={version}" in pins


CLIENTS = ROOT.parent / "shared" / "clients" / "cleanrl"
SHORT = {
    "ppo": (
        "--total-timesteps",
        "4000",
        "--num-steps",
        "2000",
        "--num-envs",
        "2",
        "--update-epochs",
        "1",
    ),
    "ppo_continuous_action": ("--total-timesteps", "220", "--num-steps", "110"),
    "dqn": ("--total-timesteps", "830", "--learning-starts", "800"),
    "sac_continuous_action": ("--total-timesteps", "110", "--learning-starts", "100"),
}
"""As few steps as end an episode and take a step of the optimiser."""
IDS = {
    "ppo": "TaskDispatch-flat-start",
    "ppo_continuous_action": "TaskRace-flat-shares",
    "dqn": "TaskAllocation-flat-assign",
    "sac_continuous_action": "TaskAllocation-flat-shares",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IDS)
def test_a_file_runs_with_the_lines_of_the_page(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = next(
        line
        for line in README.read_text(encoding="utf-8").splitlines()
        if f"CleanRL's `{name}.py`" in line
    )
    assert IDS[name] in row
    for module in ("torch", "tyro", "tensorboard", "matplotlib"):
        pytest.importorskip(module)
    curves = runpy.run_path(str(AGENTS / "cleanrl_curves.py"))
    assert f"| {len(curves['changed_lines'](name))} lines changed" in row
    if not CLIENTS.is_dir():
        pytest.skip("CleanRL's files (shared/clients/cleanrl beside the checkout) are not here")
    script = tmp_path / f"{name}.py"
    script.write_text(curves["changed"](CLIENTS, name), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(CLIENTS)
    monkeypatch.setattr(
        sys,
        "argv",
        [script.name, "--env-id", f"ata_gym:ata_gym/{IDS[name]}-v0", "--no-cuda", *SHORT[name]],
    )
    runpy.run_path(str(script), run_name="__main__")
    returns = re.findall(r"episodic_return=(-?\d+\.\d+)$", capsys.readouterr().out, re.MULTILINE)
    assert returns
    assert max(map(float, returns)) < 0
    assert list((tmp_path / "runs").rglob("events.out.tfevents*"))
