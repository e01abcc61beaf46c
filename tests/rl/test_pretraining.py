"""The training of the learned policy, with two small scenarios: it repeats itself, resumes, and
improves its play.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="extra train is not installed")

if True:  # after the check that they are installed
    from ata_gym.models.checkpoint import pack, unpack
    from ata_gym.rl.pretraining import gradients, learned, search
    from ata_gym.rl.pretraining.learned import Pretraining
    from ata_gym.rl.pretraining.rollouts import cost_of, network_of
    from ata_gym.rl.pretraining.scenarios import SCENARIOS
    from ata_policies.learned.network import read_network
    from tests.cli.conftest import invoke


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, sizes in (
        (gradients, {"ROWS": 16}),
        (learned, {"_UPDATES": 60, "SCENARIOS": SCENARIOS[:2]}),
        (search, {"SCENARIOS": SCENARIOS[:2], "_POPULATION": 6, "_ROWS": 8, "_LONGEST": 20}),
    ):
        for name, value in sizes.items():
            monkeypatch.setattr(module, name, value)


def same(first: Any, second: Any) -> bool:
    return all(
        torch.equal(part, second.net().state_dict()[name])
        for name, part in first.net().state_dict().items()
    )


def test_learned_gets_better_repeats_itself_and_goes_on_from_a_checkpoint() -> None:
    whole = Pretraining(2, 2, seed=1, hidden=8)
    shares = list[float]()
    untrained = network_of(whole.net())
    untrained = untrained._replace(
        feature_weights=0 * untrained.feature_weights,
        output_weights=0 * untrained.output_weights,
    )
    lines = []
    checkpoint = b""
    while whole.done < whole.steps:
        lines.append(whole.step(shares.append))
        if whole.done == 2:
            checkpoint = pack(whole.checkpoint())
    assert [line.partition(" ")[0] for line in lines] == [
        "iteration",
        "generation",
        "iteration",
        "generation",
    ]
    assert max(shares) == 1.0
    assert np.sum(np.diff(shares) <= 0) == 3  # it grows within each step
    again = Pretraining(2, 2, seed=1, hidden=8)
    again.restore(unpack(checkpoint))
    assert [again.step(), again.step()] == lines[2:]
    assert same(whole, again)
    with pytest.raises(ValueError, match=r"is of a training with .*'seed': 1.* not .*'seed': 2"):
        Pretraining(2, 2, seed=2, hidden=8).restore(unpack(checkpoint))
    costs = [
        cost_of(network, SCENARIOS[0], 32, 10**6)
        for network in (network_of(whole.net()), untrained)
    ]
    assert costs[0] < costs[1] - 0.2  # shares in proportion to nothing are even


def test_the_command_goes_on_after_a_stop_and_writes_weights_that_the_zoo_reads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = f"pretrain --iterations 1 --generations 1 --out '{tmp_path}/some/own"
    step = Pretraining.step

    def stops(self: Pretraining, *arguments: Any) -> str:
        if self.done == 1:
            raise KeyboardInterrupt
        return step(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Pretraining, "step", stops)
        invoke(f"{line}.safetensors'", code=130)
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["own.checkpoint"]
    invoke(f"{line}.safetensors'")
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["own.safetensors"]
    assert read_network(tmp_path / "some" / "own.safetensors").output_bias.shape == ()
    invoke(f"{line}.pt'", code=2)
    assert not (tmp_path / "own.pt").exists()
