"""The picture: labels are readable wherever the points lie."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from matplotlib.text import Text

from ata_gym.bench.leaderboard import front as fronts
from ata_gym.bench.leaderboard.ranking import RUNTIME, WORKER_TIME
from ata_gym.bench.report import style


@pytest.mark.parametrize(("crowd", "spread"), [(1, 1.0), (20, 0.0), (45, 0.2)])
def test_labels_lie_on_no_other_and_inside_the_axes(crowd, spread):
    rng = np.random.default_rng(crowd)
    with style.figure(8.0, 6.2) as picture:
        axes = picture.subplots()
        labelled = []
        for k in range(crowd):
            x, y = np.exp(spread * rng.normal(size=2))
            axes.plot(x, y, "o")
            labelled.append((f"some-policy-{k}", "black", x, y))
        fronts._scales(axes)
        picture.draw_without_rendering()
        picture.set_layout_engine("none")
        notes = fronts.place_labels(picture, axes, labelled)
        renderer = picture.canvas.get_renderer()
        for note in notes:
            note.update_positions(renderer)
        texts = [Text.get_window_extent(note, renderer) for note in notes]
        room = axes.get_window_extent(renderer)
    assert len(texts) == crowd
    assert not any(one.overlaps(other) for one, other in combinations(texts, 2))
    assert all(room.x0 <= box.x0 <= box.x1 <= room.x1 and room.y0 <= box.y0 <= box.y1 <= room.y1 for box in texts)


def test_points_of_all_three_envs_are_drawn(tmp_path):
    rows = [
        (env, price, f"{env}-{kind}", kind, runtime * (1 + price), 2.0 / (1 + price))
        for env, runtime in (("TaskAllocation", 1.0), ("TaskRace", 0.7), ("TaskDispatch", 0.6))
        for kind in ("learner", "oracle", "baseline")
        for price in (0.0, 0.1)
    ]
    points = pl.DataFrame(rows, ["env", "price", "policy", "kind", RUNTIME, WORKER_TIME], orient="row")
    pictures = [fronts.draw(points, "test", tmp_path / name) for name in "ab"]
    assert [path.read_bytes() for path in pictures[0]] == [path.read_bytes() for path in pictures[1]]
