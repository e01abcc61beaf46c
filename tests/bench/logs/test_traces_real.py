"""Traces of real ranks, which the profiler wrote, beside what was measured by hand inside them."""

import numpy as np
import pytest

from ata_gym.bench.logs import read_log
from tests.bench.logs.stragglers import SET_UPS, SLOW, run

pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["two at once", "fully sharded"])
def test_the_culprit_of_a_real_job_is_named_with_what_it_took(tmp_path, name):
    truth = run(name, tmp_path, steps=5)
    log = read_log(tmp_path)
    assert (log.workers, log.seconds.shape) == (["0", "1", "2"], (5, 3))
    # a busy machine adds to single steps, and to what a rank waits until it goes on
    own = np.median(log.seconds, axis=0)
    measured = np.median(truth, axis=0)
    assert own.argmax() == measured.argmax() == SET_UPS[name].culprit
    np.testing.assert_allclose(own, measured, atol=SLOW / 3)
    assert (log.rest > 0).any()
