import gymnasium as gym
import numpy as np
import pytest

from ata_gym.pools import measured, read_trace, trace


def test_the_recording_of_a_processor():
    pool = measured()
    assert pool == measured("cpu")
    assert pool.n == 8
    assert [len(pool.record(i)) for i in range(8)] == [150] * 8
    assert pool.mean() == pytest.approx(pool.mean()[0] * np.arange(1, 9), rel=0.3)
    assert pool == trace([pool.record(i) for i in range(8)], replay="task")


def test_it_is_what_a_user_would_read_with_polars(request):
    path = request.config.rootpath / "ata_gym" / "pools" / "data" / "measured-cpu.csv"
    assert path.stat().st_size < 60_000
    assert measured() == read_trace(path, worker="worker", duration="duration")


def test_a_record_may_end_the_episode():
    env = gym.make("ata_gym/TaskAllocation-v0", pool=measured(end="truncate"), budget=50)
    env.reset(seed=0)
    steps = [env.step(np.eye(8, dtype=int)[0] * 50)[3] for _ in range(3)]
    assert steps == [False, False, True]


@pytest.mark.parametrize("name", ["gpu", "", "README", "../data/measured-cpu"])
def test_an_unknown_recording_or_end(name):
    with pytest.raises(ValueError, match=rf"there is no recording '{name}'; there is cpu"):
        measured(name)
    with pytest.raises(ValueError, match="end must be"):
        measured(end="never")
