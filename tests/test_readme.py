"""The Python of the README runs as it stands there, one block after the other."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_every_block_runs(capsys):
    assert len(BLOCKS) >= 4
    samples = TensorDataset(torch.randn(64, 5), torch.arange(64) % 3)
    theirs = {
        "my_module": nn.Linear(5, 3),
        "my_loader": DataLoader(samples, batch_size=8),
        "cross_entropy": cross_entropy,
    }
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"README.md, block {number}", "exec"), theirs)
    assert theirs["shares"] == {"gpu0": 6, "gpu1": 5, "cpu": 5}  # as the comment says
    assert len(capsys.readouterr().out.splitlines()) == 2
