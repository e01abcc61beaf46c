"""The Python of the README runs as it stands there, one block after the other."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from ata_gym.utils.extras import require  # noqa: E402

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_every_block_runs(capsys, tmp_path, request):
    assert len(BLOCKS) >= 4
    samples = TensorDataset(torch.randn(64, 5), torch.arange(64) % 3)
    theirs = {
        "my_module": nn.Linear(5, 3),
        "my_loader": DataLoader(samples, batch_size=8),
        "cross_entropy": cross_entropy,
        "my_data": samples,
        "my_model": (model := nn.Linear(5, 3)),
        "my_optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    ray = require("ray", extra="cluster", purpose="The README")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    request.addfinalizer(torch.distributed.destroy_process_group)
    request.addfinalizer(ray.shutdown)
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"README.md, block {number}", "exec"), theirs)
    assert theirs["shares"] == {"gpu0": 6, "gpu1": 5, "cpu": 5}  # as the comment says
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert len(theirs["done"].values) == 8
