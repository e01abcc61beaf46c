"""Networks over any number of workers: the order of the workers makes no difference.

They are plain torch, for any library.
"""

from typing import Any

from gymnasium import spaces

from ata_gym.envs.interface.worker_features import WIDTH, WORKER_FEATURES, width_of
from ata_gym.utils.extras import require

require("torch", extra="rl", purpose="ata_gym.rl.network")

import torch  # noqa: E402 - after the error that names the extra
from torch import Tensor, nn  # noqa: E402

_AVAILABLE = WORKER_FEATURES.index("available")


class WorkersNet(nn.Module):
    """A network from the features of the workers to numbers for each worker and for the row.

    The same layer encodes each worker. The mean and the maximum of the codes over the available
    workers are the context. A small network makes the numbers of each worker from its code and the
    context, and another one makes the numbers of the row from the context (Zaheer et al., "Deep
    Sets", NeurIPS 2017). A linear part, which begins at 0, adds numbers that follow directly from a
    worker's features.

    Args:
        for_worker: Numbers for each worker.
        for_row: Numbers for the row.
        hidden: Width of the layers.
        width: Features of a worker: 20 or, with latencies, 22.

    Example:
        >>> net = WorkersNet(for_worker=1, for_row=1, hidden=16)
        >>> of_workers, of_row = net(torch.zeros(4, 7, WIDTH))
        >>> of_workers.shape, of_row.shape
        (torch.Size([4, 7, 1]), torch.Size([4, 1]))
    """

    def __init__(
        self, for_worker: int = 1, for_row: int = 1, hidden: int = 32, width: int = WIDTH
    ) -> None:
        super().__init__()
        self.encode = nn.Linear(width, hidden)
        self.direct = nn.Linear(width, for_worker, bias=False)
        self.of_worker = _two_layers(3 * hidden, hidden, for_worker)
        self.of_row = _two_layers(2 * hidden, hidden, for_row)
        # As Stable-Baselines3 begins its hidden layers.
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
            last_layer = part[-1]
            assert isinstance(last_layer, nn.Linear)
            nn.init.orthogonal_(last_layer.weight, 0.01)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the numbers of the workers and of the row.

        Args:
            features: Features of the workers, shape (..., n, width).

        Returns:
            Numbers of the workers, shape (..., n, for_worker), and of the row, shape (...,
            for_row).
        """
        codes = torch.relu(self.encode(features))
        context = _context(codes, features, least=0.0)
        return self.of_worker(_with_context(codes, context)) + self.direct(features), self.of_row(
            context
        )


class RecurrentWorkersNet(nn.Module):
    """A network from the features of all rounds so far to a number for each worker.

    In place of the first layer of ``WorkersNet`` each worker has a gated recurrent unit (Cho et
    al., EMNLP 2014), with the same weights for all. Its numbers from -1 to 1 are the worker's
    memory and its code.

    Args:
        hidden: Width of the layers: numbers in a worker's memory.

    Example:
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
        last_layer = self.of_worker[-1]
        assert isinstance(last_layer, nn.Linear)
        nn.init.orthogonal_(last_layer.weight, 0.01)

    def forward(self, features: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute the numbers of the workers in T rounds of E rows.

        Args:
            features: Features of the workers, shape (T, E, n, 20).
            memory: The memory before the first round, shape (E, n, hidden); None at the start.

        Returns:
            The numbers, shape (T, E, n), and the memory after the last round, shape (E, n, hidden).
        """
        # The recurrent layer treats each worker of each row as a sequence of its own.
        rounds, rows, n, width = features.shape
        if memory is None:
            old_memory = None
        else:
            old_memory = memory.reshape(1, rows * n, -1)
        codes, new_memory = self.remember(features.reshape(rounds, rows * n, width), old_memory)
        codes = codes.reshape(rounds, rows, n, -1)
        context = _context(codes, features, least=-1.0)
        numbers = self.of_worker(_with_context(codes, context)) + self.direct(features)
        return numbers[..., 0], new_memory.reshape(rows, n, -1)


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """A linear layer, rectified, and another linear layer."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def _context(codes: Tensor, features: Tensor, least: float) -> Tensor:
    """The mean and the maximum of the codes over the available workers.

    ``least`` is the least number that a code can hold.
    """
    available = features[..., _AVAILABLE : _AVAILABLE + 1]
    mean = (codes * available).sum(dim=-2) / available.sum(dim=-2).clamp(min=1.0)
    # Codes less ``least`` are at least 0, so the zeros of other workers never exceed the maximum.
    maximum = ((codes - least) * available).amax(dim=-2) + least
    return torch.cat([mean, maximum], dim=-1)


def _with_context(codes: Tensor, context: Tensor) -> Tensor:
    """The code of each worker with the context behind it."""
    contexts = context.unsqueeze(-2).expand(*codes.shape[:-1], context.shape[-1])
    return torch.cat([codes, contexts], dim=-1)


class WorkersActorCritic(nn.Module):
    """The numbers of a form of actions and the value of the row, from one ``WorkersNet``.

    Args:
        observations: The space of ``observation="workers"``.
        actions: The space of any form of actions but allocations.
        hidden: Width of the layers.
        asked_by: The class that the message of an error names.

    Raises:
        ValueError: If ``observations`` is another space.

    Example:
        >>> features = spaces.Box(-10, 10, (5, WIDTH))
        >>> networks = WorkersActorCritic(features, spaces.Discrete(6))
        >>> numbers, value = networks(torch.zeros(4, 5, WIDTH))
        >>> numbers.shape, value.shape
        (torch.Size([4, 6]), torch.Size([4, 1]))
    """

    def __init__(
        self,
        observations: spaces.Space[Any],
        actions: spaces.Space[Any],
        hidden: int = 32,
        asked_by: str = "WorkersActorCritic",
    ) -> None:
        super().__init__()
        shape = observations.shape
        widths = (width_of(latency) for latency in (False, True))
        if shape is None or len(shape) != 2 or shape[1] not in widths:
            raise ValueError(
                f'{asked_by} needs an env with observation="workers", not {observations}',
            )
        self.n = shape[0]
        self.width = shape[1]
        for_worker, for_row = output_sizes(actions, self.n)
        self.net = WorkersNet(for_worker, 1 + for_row, hidden, self.width)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the numbers of the actions and the values.

        Args:
            features: Features of the workers, shape (E, n, width).

        Returns:
            Numbers of each worker in turn and then of the row, shape (E, k), and values, shape
            (E, 1).
        """
        # The first number of the row is its value.
        of_workers, of_row = self.net(features)
        return torch.cat([of_workers.flatten(1), of_row[:, 1:]], dim=1), of_row[:, :1]


def output_sizes(space: spaces.Space[Any], n: int) -> tuple[int, int]:
    """The numbers that a form of actions needs for each of n workers, and for the row.

    Args:
        space: The space of actions.
        n: The number of workers.

    Example:
        >>> output_sizes(spaces.Discrete(6), n=5), output_sizes(spaces.MultiDiscrete([2] * 5), n=5)
        ((1, 1), (2, 0))
    """
    if isinstance(space, spaces.MultiDiscrete):
        return 2, 0
    if isinstance(space, spaces.Discrete):
        size = int(space.n)
    else:
        size = spaces.flatdim(space)
    return 1, size - n
