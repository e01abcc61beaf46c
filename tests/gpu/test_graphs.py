"""CUDA graphs of a ``Trainer``: what changes from replay to replay, and a thread beside their
capture.
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.training import Trainer  # noqa: E402
from tests.gpu_table import warnings_of_inductor  # noqa: E402
from tests.training.devices.test_cuda import BUDGET, network  # noqa: E402
from tests.training.small_problem import weights  # noqa: E402

pytestmark = pytest.mark.gpu


def run(between=lambda _trainer: None, *, dropout=0.0, device="cuda", **settings):
    """The losses of nine rounds, and the weights after them; another function runs after each
    round.
    """
    trainer = Trainer(network(dropout), BUDGET, device=device, **settings)
    losses = []
    for _ in range(9):
        losses.append(trainer.step())
        between(trainer)
    return torch.tensor(losses), weights(trainer).cpu()


def rescaled(trainer):
    trainer._scaler.update(2.0 ** (4 + trainer.round))


HALF = {"between": rescaled, "precision": "float16", "micro_batch": 2}


@pytest.mark.parametrize(
    ("options", "fast"),
    [
        ({"dropout": 0.5}, {"graphs": True}),
        (HALF, {"graphs": True}),
        (HALF, {"graphs": True, "compile": True}),
    ],
    ids=["dropout", "scale", "scale, compiled"],
)
@warnings_of_inductor
def test_a_replay_has_the_dropout_and_the_scale_of_its_round(options, fast):
    exact = run(**options)
    torch.testing.assert_close(run(**options, **fast), exact, rtol=1e-3, atol=1e-4)
    assert "dropout" not in options or not torch.allclose(exact[0], run()[0], rtol=1e-2)


@pytest.mark.parametrize(
    "fast",
    [{"graphs": True}, {"graphs": True, "compile": True}],
    ids=["", "compiled"],
)
@warnings_of_inductor
def test_a_thread_of_a_loader_pins_memory_while_graphs_are_captured(fast):
    # else an epoch draws a number from torch's own, which the trainer has seeded
    generator = torch.Generator()
    loader = DataLoader(torch.ones(64, 1024), 8, pin_memory=True, generator=generator)
    pinned = deque(maxlen=2)
    enough = Event()

    def pin():
        while not enough.is_set():
            pinned.extend(loader)

    def copied(_trainer):
        while not (pinned or pinning.done()):
            enough.wait(0.001)
        # for whose end the other thread asks when it pins again
        pinned.pop().to(
            "cuda",
            non_blocking=True,
        )

    with ThreadPoolExecutor(1) as threads:
        pinning = threads.submit(pin)
        try:
            losses = run(copied, **fast)
        finally:
            enough.set()
        assert pinning.result() is None
    torch.testing.assert_close(losses, run(), rtol=1e-3, atol=1e-4)
