"""The training of the learned policies, with two small worlds: it repeats itself, and improves what it looks at."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="extra train is not installed")
pytest.importorskip("safetensors", reason="extra rl is not installed")

if True:  # after the check that they are installed
    from ata_gym.rl.pretraining import learned, learned_dispatch
    from ata_gym.rl.pretraining.rollouts import DRAWN, WORLDS, cost_of, weights_of
    from ata_policies.learned.network import read_network
    from ata_policies.learned.policy import LearnedAllocation, LearnedDispatch
    from tests.cli.conftest import invoke


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"_ROWS": 16, "_UPDATES": 30, "_POPULATION": 6, "_SEARCH_ROWS": 8, "_LONGEST": 20}
    for name, value in {"WORLDS": WORLDS[:2], **sizes}.items():
        monkeypatch.setattr(learned, name, value)
    for name, value in {"DRAWN": DRAWN[1:2], "_ROWS": 16, "_UPDATES": 100}.items():
        monkeypatch.setattr(learned_dispatch, name, value)


def test_learned_gets_better_and_repeats_itself() -> None:
    lines, nets = zip(*learned.train(2, 2, seed=1, hidden=8), strict=True)
    assert [line.partition(" ")[0] for line in lines] == ["iteration", "generation", "iteration", "generation"]
    again = list(islice(learned.train(2, 2, seed=1, hidden=8), 2))
    assert [line for line, _ in again] == list(lines[:2])
    for name, tensor in nets[1].state_dict().items():
        assert torch.equal(tensor, again[1][1].state_dict()[name])
    untrained = next(learned.train(1, 0, seed=1, hidden=8))[1]
    for part in untrained.parameters():
        torch.nn.init.zeros_(part)
    costs = [cost_of(LearnedAllocation, weights_of(net), WORLDS[0], 32, 10**6) for net in (nets[-1], untrained)]
    assert costs[0] < costs[1] - 0.2  # shares in proportion to nothing are even


def test_learned_dispatch_imitates_the_planner() -> None:
    *_, (line, net) = learned_dispatch.train(3, seed=1)
    assert float(line.rpartition(" ")[2]) < 0.5  # guessing costs log 2 = 0.69
    everybody = weights_of(net)
    everybody = everybody._replace(
        last=0 * everybody.last, direct=0 * everybody.direct, last_bias=np.ones(1, np.float32)
    )
    costs = [cost_of(LearnedDispatch, one, DRAWN[1], 32, 10**6) for one in (weights_of(net), everybody)]
    assert costs[0] < costs[1]  # at this price it does not pay that everybody works


@pytest.mark.parametrize("policy", ["learned", "learned-dispatch"])
def test_the_command_writes_weights_that_the_zoo_reads(policy: str, tmp_path: Path) -> None:
    line = f"pretrain {policy} --iterations 1 --generations 0 --out '{tmp_path}"
    invoke(f"{line}/some/own.safetensors'")
    assert read_network(tmp_path / "some" / "own.safetensors").last_bias.shape == (1,)
    invoke(f"{line}/own.pt'", code=2)
    assert not (tmp_path / "own.pt").exists()
