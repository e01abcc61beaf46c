"""Networks over any number of workers: who is in which place makes no difference. Plain torch, for any library."""

from typing import Any

from gymnasium import spaces

from ata_gym.envs.interface.worker_features import OF_WORKER, WIDTH
from ata_gym.utils.extras import require

require("torch", extra="rl", purpose="ata_gym.rl.network")

import torch  # noqa: E402 - after the error that names the extra
from torch import Tensor, nn  # noqa: E402

_AVAILABLE = OF_WORKER.index("available")


class WorkersNet(nn.Module):
    """``for_worker`` numbers for each worker, and ``for_row`` for the row, from the features of the workers.

    The same layer encodes each worker. The mean and the maximum of the codes over the available workers are the
    context. A small network makes the numbers of each worker from its code and the context, and another one makes those
    of the row from the context (Zaheer et al., "Deep Sets", NeurIPS 2017). A linear part, which begins at 0, adds what
    follows directly from a worker's features. ``hidden`` is the width of the layers.

    >>> net = WorkersNet(for_worker=1, for_row=1, hidden=16)
    >>> of_workers, of_row = net(torch.zeros(4, 7, WIDTH))
    >>> of_workers.shape, of_row.shape
    (torch.Size([4, 7, 1]), torch.Size([4, 1]))
    """

    def __init__(self, for_worker: int = 1, for_row: int = 1, hidden: int = 32) -> None:
        super().__init__()
        self.encode = nn.Linear(WIDTH, hidden)
        self.direct = nn.Linear(WIDTH, for_worker, bias=False)
        self.of_worker = _two_layers(3 * hidden, hidden, for_worker)
        self.of_row = _two_layers(2 * hidden, hidden, for_row)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, 2**0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.begin_evenly()

    def begin_evenly(self) -> None:
        """Make the last layers small, so that all workers begin with nearly the same numbers."""
        nn.init.zeros_(self.direct.weight)
        for part in (self.of_worker, self.of_row):
            last = part[-1]
            assert isinstance(last, nn.Linear)
            nn.init.orthogonal_(last.weight, 0.01)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (..., n, 20) to numbers of the workers (..., n, for_worker) and of the row (..., for_row)."""
        codes = torch.relu(self.encode(features))
        context = _context(codes, features, least=0.0)
        return self.of_worker(_beside(codes, context)) + self.direct(features), self.of_row(context)


class RecurrentWorkersNet(nn.Module):
    """A number for each worker in each round, from all that was seen of the workers in the rounds before.

    In place of the first layer of ``WorkersNet`` each worker has a gated recurrent unit (Cho et al., EMNLP 2014), of
    the same weights for all. Its ``hidden`` numbers from -1 to 1 are the worker's memory and its code.

    >>> net = RecurrentWorkersNet(hidden=16)
    >>> numbers, memory = net(torch.zeros(30, 4, 7, WIDTH))  # 30 rounds of 4 rows
    >>> numbers.shape, memory.shape
    (torch.Size([30, 4, 7]), torch.Size([4, 7, 16]))
    """

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.remember = nn.GRU(WIDTH, hidden)
        self.direct = nn.Linear(WIDTH, 1, bias=False)
        self.of_worker = _two_layers(3 * hidden, hidden, 1)
        nn.init.zeros_(self.direct.weight)
        last = self.of_worker[-1]
        assert isinstance(last, nn.Linear)
        nn.init.orthogonal_(last.weight, 0.01)

    def forward(self, features: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Features (T, E, n, 20) of T rounds, and the memory (E, n, hidden) before, to numbers (T, E, n) and memory."""
        rounds, rows, n, width = features.shape
        before = None if memory is None else memory.reshape(1, rows * n, -1)
        codes, after = self.remember(features.reshape(rounds, rows * n, width), before)
        codes = codes.reshape(rounds, rows, n, -1)
        numbers = self.of_worker(_beside(codes, _context(codes, features, least=-1.0))) + self.direct(features)
        return numbers[..., 0], after.reshape(rows, n, -1)


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def _context(codes: Tensor, features: Tensor, least: float) -> Tensor:
    """The mean and the maximum of the codes over the available workers; ``least`` is the least number in a code."""
    available = features[..., _AVAILABLE : _AVAILABLE + 1]
    mean = (codes * available).sum(dim=-2) / available.sum(dim=-2).clamp(min=1.0)
    largest = ((codes - least) * available).amax(dim=-2) + least
    return torch.cat([mean, largest], dim=-1)


def _beside(codes: Tensor, context: Tensor) -> Tensor:
    for_each = context.unsqueeze(-2).expand(*codes.shape[:-1], context.shape[-1])
    return torch.cat([codes, for_each], dim=-1)


class WorkersActorCritic(nn.Module):
    """The numbers of a form of actions and the value of the row, from one ``WorkersNet``.

    ValueError, about the class ``asked_by``, unless ``observations`` is the space of ``observation="workers"``;
    ``actions`` may be any but allocations.

    >>> features = spaces.Box(-10, 10, (5, WIDTH))
    >>> numbers, value = WorkersActorCritic(features, spaces.Discrete(6))(torch.zeros(4, 5, WIDTH))
    >>> numbers.shape, value.shape
    (torch.Size([4, 6]), torch.Size([4, 1]))
    """

    def __init__(
        self, observations: spaces.Space[Any], actions: spaces.Space[Any], hidden: int = 32,
        asked_by: str = "WorkersActorCritic",
    ) -> None:  # fmt: skip
        super().__init__()
        shape = observations.shape
        if shape is None or len(shape) != 2 or shape[1] != WIDTH:
            raise ValueError(f'{asked_by} needs an env with observation="workers", not {observations}')
        self.n, (for_worker, for_row) = shape[0], numbers_of(actions, shape[0])
        self.net = WorkersNet(for_worker, 1 + for_row, hidden)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (E, n, 20) to numbers (E, k), of each worker in turn and then of the row; and to values (E, 1)."""
        of_workers, of_row = self.net(features)
        return torch.cat([of_workers.flatten(1), of_row[:, 1:]], dim=1), of_row[:, :1]


def numbers_of(space: spaces.Space[Any], n: int) -> tuple[int, int]:
    """How many numbers a form of actions needs for each of n workers, and for the row.

    >>> numbers_of(spaces.Discrete(6), n=5), numbers_of(spaces.MultiDiscrete([2] * 5), n=5)
    ((1, 1), (2, 0))
    """
    if isinstance(space, spaces.MultiDiscrete):
        return 2, 0
    size = int(space.n) if isinstance(space, spaces.Discrete) else spaces.flatdim(space)
    return 1, size - n
