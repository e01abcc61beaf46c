import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ata_gym.training.studies.curves import draw, goal, lay, smooth

LOSSES = [2.0, 1.0, 0.5, 0.02, 0.4]


def trajectory(losses):
    return pl.DataFrame({"round": range(len(losses) + 1), "loss": [None, *losses]})


def clocks(rounds, **speeds):
    return pl.concat(
        pl.DataFrame(
            {
                "policy": policy,
                "round": rounds,
                "runtime": speed * np.array(rounds),
                "total_worker_time": 10.0 * speed * np.array(rounds),
                "regret": 0.0,
            }
        )
        for policy, speed in speeds.items()
    )


@given(st.lists(st.floats(0, 10), min_size=1, max_size=200))
def test_smoothing_is_the_mean_of_the_last_rounds(losses):
    window = max(1, len(losses) // 30)
    expected = [np.mean(losses[max(0, k - window) : k]) for k in range(1, len(losses) + 1)]
    np.testing.assert_allclose(smooth(pl.Series(losses, dtype=pl.Float64)), expected, atol=1e-9)


def test_each_policy_gets_the_one_curve_on_its_own_clock():
    curves = lay(trajectory(LOSSES), clocks([1, 2, 5], slow=3.0, fast=1.0))
    assert curves["policy"].to_list() == ["slow"] * 3 + ["fast"] * 3
    assert curves["loss"].to_list() == [2.0, 1.0, 0.4] * 2
    assert curves["runtime"].to_list() == [3.0, 6.0, 15.0, 1.0, 2.0, 5.0]
    assert curves["total_worker_time"].to_list() == [30.0, 60.0, 150.0, 10.0, 20.0, 50.0]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (LOSSES, (0.02, 4)),  # a hundredth of the first
        ([2.0, 1.0, 1.5], (1.0, 2)),  # the lowest
        ([1.0], (1.0, 1)),
        ([1.0, 3.0], (1.0, 1)),
        ([-1.0, -3.0], (-0.01, 1)),
    ],
)
def test_the_goal(losses, expected):
    assert goal(lay(trajectory(losses), clocks(range(1, len(losses) + 1), a=1.0, b=2.0))) == expected


@pytest.mark.parametrize("losses", [LOSSES, [1.0], [0.5, 0.0, -0.5]])
def test_pictures(tmp_path, losses):
    curves = lay(trajectory(losses), clocks(range(1, len(losses) + 1), ata=1.0, mine=2.0))
    files = draw(curves, "a title", tmp_path / "loss")
    assert [file.name for file in files] == ["loss.png", "loss.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    before = files[1].read_bytes()
    draw(curves, "a title", tmp_path / "loss")
    assert files[1].read_bytes() == before
