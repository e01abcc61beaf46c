"""What ``render`` gives in each mode, on every id, alone and in vector envs, and Gymnasium's videos
of it.
"""

import subprocess
import sys
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordVideo

import ata_gym  # noqa: F401 - registers the ids
from ata_gym.changes import Spot
from ata_gym.pools import deterministic
from ata_gym.utils import extras
from ata_gym.utils.extras import MissingExtraError
from tests.envs.playing import DISPATCH, IDS, RACE

SHAPE = (540, 960, 3)


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = pytest.importorskip("pygame")
    pauses: list[int] = []

    class Clock:
        def tick(self, frames_per_second: int) -> None:
            pauses.append(frames_per_second)

    monkeypatch.setattr(pygame.time, "Clock", Clock)
    pygame.pauses = pauses
    yield pygame
    pygame.display.quit()
    del pygame.pauses


@pytest.mark.usefixtures("window")
def test_gymnasiums_checker_renders_in_every_mode() -> None:
    env = gym.make(DISPATCH, render_mode="rgb_array")
    assert (set(env.metadata["render_modes"]), env.metadata["render_fps"]) == (
        {"ansi", "rgb_array", "human"},
        4,
    )
    check_env(env.unwrapped, skip_render_check=False)
    env.close()


def test_frames_are_pixels_of_one_shape_that_show_what_happened() -> None:
    env = gym.make(DISPATCH, scenario="changing-spot", render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    frames: list[Any] = [env.render()]
    for _ in range(2):
        env.step(env.action_space.sample())
        frames.append(env.render())
    assert {(frame.dtype, frame.shape) for frame in frames} == {(np.dtype(np.uint8), SHAPE)}
    assert all((one != other).any() for one, other in pairwise(frames))
    assert (env.render() == frames[-1]).all()


def test_gymnasium_records_videos(tmp_path: Path) -> None:
    moviepy = pytest.importorskip("moviepy")
    env = RecordVideo(
        gym.make(DISPATCH, horizon=1, budget=2, render_mode="rgb_array"),
        str(tmp_path / "video"),
    )
    env.reset(seed=0)
    steps = 0
    while not env.step(env.action_space.sample())[3]:
        steps += 1
    env.close()
    (file,) = (tmp_path / "video").glob("*.mp4")
    with moviepy.VideoFileClip(str(file)) as clip:
        assert (clip.size, clip.fps) == ([SHAPE[1], SHAPE[0]], 4)
        assert clip.n_frames == steps + 2
        assert clip.get_frame(0).std() > 1  # not blank


def test_a_window_is_drawn_by_each_reset_and_step_until_it_is_closed(window: Any) -> None:
    env = gym.make(DISPATCH, render_mode="human")
    assert window.display.get_surface() is None
    env.reset(seed=0)
    assert window.display.get_surface().get_size() == SHAPE[1::-1]
    empty = window.surfarray.array3d(window.display.get_surface())
    env.step(env.action_space.sample())
    assert (window.surfarray.array3d(window.display.get_surface()) != empty).any()
    assert env.render() is None
    assert window.pauses == [4, 4, 4]
    env.close()
    assert window.display.get_surface() is None
    env.close()


def test_the_text_of_a_small_round() -> None:
    env = gym.make(
        RACE,
        pool=deterministic([1.0, 2.0, 6.0]),
        budget=3,
        changes=[Spot(0.5, 0.5)],
        price=0.5,
        render_mode="ansi",
    )
    env.reset(seed=0)
    assert str(env.render()).splitlines()[:2] == [
        "No round was played yet",
        "a round needs 3 results of 3 workers",
    ]
    away = env.unwrapped.conditions().death_time == 0.0  # type: ignore[attr-defined]
    assert away.tolist() == [False, False, True]
    env.step(np.array([1, 3, 3]))
    bars = "█" * 11 + "▉" + "·" * 34, ("█" * 22 + "▉") * 2, " " * 46
    assert str(env.render()).splitlines() == [
        "Round 1: 4 until 3 results were in",
        "worker time 5, runtime so far 4, price 0.5",
        " worker tasks                                                 estimate      mean",
        f"      0     1 {bars[0]}         1         1",
        f"      1     3 {bars[1]}         2         2",
        f"      2     3 {bars[2]}         -      away",
        "█ done  ▒ cancelled  · waiting",
    ]


NAMED = (
    "icml2025-mixed-n150",
    "icml2025-quadratic-square-n459",
    "changing-spot",
    "changing-load-swap",
)


@pytest.mark.parametrize(("name", "env_id"), list(zip(NAMED, cycle(IDS), strict=False)))
def test_texts_fit_a_terminal(env_id: str, name: str) -> None:
    env = gym.make(env_id, scenario=name, render_mode="ansi")
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
        lines = str(env.render()).splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 22
        assert lines[0].startswith("Round ")


def test_of_a_thousand_workers_the_busiest_are_shown_and_the_others_counted() -> None:
    env: Any = gym.make(
        RACE,
        pool=deterministic(np.arange(1.0, 1001.0).tolist()),
        budget=40,
        render_mode="ansi",
    )
    env.reset(seed=0)
    action = np.zeros(1000, np.int64)
    action[100:140] = 1
    env.step(action)
    lines = env.render().splitlines()
    assert "+ 984 workers: 24 busy, 960 idle" in lines
    assert [int(line[:7]) for line in lines[3:19]] == list(range(124, 140))


def test_without_a_mode_nothing_is_rendered_and_a_warning_says_how() -> None:
    env: Any = gym.make(RACE).unwrapped
    with pytest.warns(
        UserWarning,
        match=r'gymnasium.make\("ata_gym/TaskRace-v0", render_mode="rgb_array"\)',
    ):
        assert env.render() is None
    with pytest.raises(ValueError, match='make the env with render_mode="ansi"'):
        env.timeline()
    with pytest.warns(UserWarning, match="make_vec"):
        assert gym.make_vec(RACE, num_envs=2).render() is None


@pytest.mark.parametrize("wrong", ["depth_array", ["ansi"]])
def test_an_unknown_mode_is_refused(wrong: Any) -> None:
    make = gym.envs.registration.load_env_creator(gym.spec(RACE).entry_point)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError,
        match="render_mode must be None, 'ansi', 'rgb_array' or 'human', not",
    ):
        make(render_mode=wrong)
    for other in (wrong, "human"):  # rows of a native vector env have no windows
        with pytest.raises(
            ValueError,
            match="render_mode must be None, 'ansi' or 'rgb_array', not",
        ):
            gym.make_vec(RACE, num_envs=2, render_mode=other)


@pytest.mark.parametrize(
    ("mode", "module"),
    [("rgb_array", "matplotlib"), ("human", "matplotlib"), ("human", "pygame")],
)
def test_a_missing_package_is_named_with_its_extra(
    mode: str,
    module: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = extras.importlib.import_module

    def without(name: str) -> Any:
        if name == module:
            raise ModuleNotFoundError(name=module)
        return found(name)

    monkeypatch.setattr(extras.importlib, "import_module", without)
    with pytest.raises(
        MissingExtraError,
        match=rf'render_mode="{mode}" needs {module}: pip install "ata-gym\[render\]"',
    ):
        gym.make(RACE, render_mode=mode)


def test_text_needs_the_base_alone() -> None:
    code = """
import sys, gymnasium, ata_gym
env = gymnasium.make("ata_gym/TaskDispatch-v0", render_mode="ansi")
env.reset(seed=0)
env.step(env.action_space.sample())
assert env.render().startswith("Round 1")
print(*{name.partition(".")[0] for name in sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "pygame", "PIL", "rich"} & set(done.stdout.split())
