"""Methods of local steps: workers take steps of SGD by themselves, and then all average.

They are local SGD, with DiLoCo's outer step as an option, and LOSCAR-SGD. How many steps each
worker takes is decided by an allocation policy.
"""

from itertools import compress

import numpy as np
import torch
from torch import Tensor

from ata_gym.models.model import Weights, copy_weights
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training.devices.workers import Parts, add, scaled
from ata_gym.training.methods.heterogeneous import GradientTable
from ata_gym.training.methods.method import EndedTask, Method, ParameterServer
from ata_gym.training.trainer.trainer import Gradient, Trainer
from ata_gym.typing import Floats, Ints, Worker
from ata_gym.utils.validation import flag, in_range, real, unknown
from ata_policies.allocator.allocator import Allocator
from ata_policies.policy import Policy
from ata_policies.registry import make_for
from ata_policies.setting import Setting

_ENV_ID = "ata_gym/TaskAllocation-v0"
_COORDINATES = 9
"""The stream of keys of LOSCAR-SGD's coordinates; nothing else draws from it."""

AVERAGES = ("mean", "normalised")
"""How the workers of ``LocalSgd`` are averaged."""


class LocalSteps(Method):
    """Rounds of B local steps, whose number on each worker an allocation policy decides.

    A task is the gradient of one local step, a step of SGD with the run's learning rate from where
    the worker is then. ``policy`` is a name of ``ata_policies``, which hyperparameters may follow,
    made for these workers and this B as in ``ata_gym/TaskAllocation-v0``, or a policy that is made
    already. It learns from the times of the tasks and from the latencies.

    No time depends on a gradient, so that all steps are taken when the round ends. Step h of worker
    i has the sample of task H_0 + ... + H_{i-1} + h of the round.
    """

    def __init__(self, pool: Pool, budget: int, policy: str | Policy = "default") -> None:
        super().__init__(pool, budget)
        self._policy = policy
        self._least = 0

    @property
    def gradients(self) -> float:
        """The number of workers that average, as far as it is known: n, or B if that is less."""
        return float(min(self.pool.n, self.budget))

    def check(self, trainer: Trainer) -> None:
        """Refuse what is not plain SGD."""
        trainer.check_plain_sgd()

    def begin(self, server: ParameterServer) -> None:
        """Make the policy, and start the first round."""
        policy = self._policy
        if isinstance(policy, str):
            setting = Setting.from_scenario(Scenario(self.pool, self.budget))
            policy = make_for(policy, setting, _ENV_ID, server.seed)
        share = (self._least, self.budget)
        limits: dict[Worker, tuple[int, int]] = dict.fromkeys(range(self.pool.n), share)
        self._allocator = Allocator(self.pool.n, self.budget, policy, limits=limits)
        self.begin_round(server)

    def begin_round(self, server: ParameterServer) -> None:
        """Let the policy decide, and start the workers that have a step to take."""
        self.allocate()
        server.start(np.flatnonzero(self.steps))

    def allocate(self) -> None:
        """Let the policy decide how many steps each worker takes."""
        self.steps: Ints = np.array([*self._allocator.allocate().values()])
        """The steps that each worker was given in this round, shape (n,)."""
        self._missing = self.budget
        self._ended: list[list[EndedTask]] = [[] for _ in self.workers]

    def collect(self, task: EndedTask) -> bool:
        """Keep a step that has ended; whether its worker has a further one to take."""
        ended = self._ended[task.worker]
        ended.append(task)
        count = int(self.steps[task.worker])
        self._missing -= len(ended) <= count
        return len(ended) < count

    def walk(
        self,
        server: ParameterServer,
        tasks: list[EndedTask],
        weights: Weights,
        table: GradientTable,
        row: int,
    ) -> Weights:
        """Take steps of a worker, and add their gradients to a table.

        Args:
            server: The server.
            tasks: The steps.
            weights: Where they begin.
            table: The table.
            row: Where in the table the gradients are added.

        Returns:
            Where they end.
        """
        for task in tasks:
            gradient = server.gradient(task._replace(weights=weights))
            table.add(row, gradient)
            weights = server.local_step(weights, gradient)
        return weights

    def observe(self, latencies: Floats) -> None:
        """Tell the policy how long the steps that it gave out took.

        Args:
            latencies: The latency of each worker in this round, shape (n,).
        """
        times: dict[Worker, list[float]] = {}
        for i in range(self.pool.n):
            tasks = self._ended[i][: self.steps[i]]
            times[i] = [task.time - task.latency for task in tasks]
        latency: dict[Worker, float] | None = None
        if self.pool.latency is not None:
            latency = {i: float(latencies[i]) for i in np.flatnonzero(self.steps).tolist()}
        self._allocator.observe(times, latency=latency)


class LocalSgd(LocalSteps):
    """Workers take H_i local steps each, B in all, and average; an outer step may follow.

    With D_i the sum of the H_i gradients along the path of worker i, which begins at x^k, and the m
    workers that take a step, the average moves by -gamma * D:

    - ``average="mean"``: D = 1 / m * sum_i D_i, the plain mean of where they arrive. A worker may
      get no step. Each gradient counts alike, so that fast workers weigh more.
    - ``average="normalised"``: D = B / m^2 * sum_i D_i / H_i, as FedNova has it: all workers weigh
      alike, as they must where their data differ. Each has a step or more, so that B must be at
      least n.

    Where all H_i are equal the two are the same. The outer step is the one of DiLoCo, in Nesterov's
    form: M = mu M + D, and x^{k+1} = x^k - outer_lr * gamma * (D + mu M), mu = ``outer_momentum``.
    The defaults 1 and 0 take the average itself; DiLoCo has 0.7 and 0.9, with AdamW for the local
    steps, which are SGD's here. A latency is paid before the first step of a round.

    Sources: local SGD as in LOSCAR-SGD's formulas; Wang et al., FedNova, NeurIPS 2020 (arXiv
    2007.07481); Douillard et al., DiLoCo, 2023 (arXiv 2311.08105). That a policy decides H_i is
    ours. No step size of theory was read.
    """

    source = "local SGD; FedNova, NeurIPS 2020; DiLoCo, 2023 (outer step)"

    def __init__(
        self,
        pool: Pool,
        budget: int,
        policy: str | Policy = "default",
        average: str = "mean",
        outer_lr: float = 1.0,
        outer_momentum: float = 0.0,
    ) -> None:
        super().__init__(pool, budget, policy)
        if average not in AVERAGES:
            raise unknown("average", average, AVERAGES)
        self.average = average
        self.outer_lr = real("outer_lr", outer_lr)
        self.outer_momentum = in_range(
            "outer_momentum", outer_momentum, "number", 0.0, 1.0, below=True
        )
        if average == "normalised":
            if budget < pool.n:
                raise ValueError(
                    f"with average='normalised' each worker takes a step or more: budget must be at"
                    f" least the number of workers, {pool.n}, not {budget}",
                )
            self._least = 1
        self._momentum: Parts | None = None

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        if self.collect(task):
            server.start([task.worker])
        elif not self._missing:
            self._update(server)
            self.begin_round(server)

    def _update(self, server: ParameterServer) -> None:
        latencies = [sum(task.latency for task in tasks) for tasks in self._ended]
        self.observe(np.array(latencies))
        table = GradientTable(self.pool.n)
        for i, tasks in enumerate(self._ended):
            if tasks:
                self.walk(server, tasks, tasks[0].weights, table, i)
        direction = table.weighted(self._factors())
        mu = self.outer_momentum
        if mu:
            if self._momentum is None:
                self._momentum = direction
            else:
                self._momentum = add(scaled(self._momentum, mu), direction)
            direction = add(direction, scaled(self._momentum, mu))
        server.step(Gradient(table.loss, direction), self.budget, self.outer_lr)

    def _factors(self) -> Floats:
        """What the sum D_i of each worker is multiplied by, shape (n,)."""
        m = np.count_nonzero(self.steps)
        if self.average == "mean":
            return np.full(self.pool.n, 1 / m)
        factors: Floats = self.budget / (m**2 * self.steps)
        return factors


class LoscarSgd(LocalSteps):
    """Local SGD that averages some coordinates, and goes on while the messages travel.

    Worker i begins at x_i, sends y_i after N_i steps, and goes on to z_i, H_i = N_i + Q_i steps,
    until the mean of all messages is there. Of the d coordinates a random set S of K = ``density``
    * d, at least one, the same for all workers, is sent: mbar = 1 / n * sum_i y_i on S. Then

    - on S: x_i = mbar + (z_i - y_i), the delay-corrected merge, or with ``corrected=False`` x_i =
      mbar, which overwrites the steps after the message;
    - elsewhere: x_i = z_i.

    The model of the run is the mean of the x_i, which is ours to say. The policy decides N_i, B in
    all. A message takes the worker's latency times K / d. All workers compute until the last
    message is there; then a step that has not ended is cancelled. So Q_i is what a worker does
    while the messages travel and while it would wait for slower workers, and a worker with N_i = 0
    sends where it begins.

    Source: Maziane, Mahran, Maranjyan and Richtarik, LOSCAR-SGD, arXiv 2605.20866, from its
    abstract and a third party's page of formulas. The abstract has different numbers of steps on
    workers of different speeds; a third party's summary says that the theory assumes data that are
    the same for all workers. The step size, the choice of N_i and K, and the clock were not read:
    the above is ours, and so is the default density of 0.1.
    """

    source = "Maziane, Mahran, Maranjyan and Richtarik, arXiv 2605.20866 (abstract)"
    overlapped = True

    def __init__(
        self,
        pool: Pool,
        budget: int,
        policy: str | Policy = "default",
        density: float = 0.1,
        corrected: bool = True,
    ) -> None:
        super().__init__(pool, budget, policy)
        self.density = real("density", density, up_to=1.0)
        self.corrected = flag("corrected", corrected)
        self.x: list[Weights] = []
        """Where each worker begins the round."""

    def begin_round(self, server: ParameterServer) -> None:
        """Let the policy decide, and start all workers."""
        if not self.x:
            self.x = [copy_weights(server.model)] * self.pool.n
        self.allocate()
        server.start(self.workers)
        self._messages = self.density * server.latencies
        # A worker without a step before its message sends it at once.
        self._merge_at = float(self._messages[self.steps == 0].max(initial=0.0))

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        i = task.worker
        self.collect(task)
        if len(self._ended[i]) == self.steps[i]:
            self._merge_at = max(self._merge_at, server.elapsed + float(self._messages[i]))
        server.start([i])
        if not self._missing:
            while server.wait(self._merge_at):
                late = server.next()
                self.collect(late)
                server.start([late.worker])
            self._merge(server)
            self.begin_round(server)

    def _merge(self, server: ParameterServer) -> None:
        self.observe(self._messages)
        n = self.pool.n
        # Row i has the gradients of worker i before its message, row n + i those after it.
        table = GradientTable(2 * n)
        y = list[Weights]()
        z = list[Weights]()
        for i, tasks in enumerate(self._ended):
            count = int(self.steps[i])
            y.append(self.walk(server, tasks[:count], self.x[i], table, i))
            z.append(self.walk(server, tasks[count:], y[i], table, n + i))
        shared = self._coordinates(server)
        means = [torch.stack(parts).mean(0) for parts in zip(*y, strict=True)]
        self.x = [
            tuple(map(self._merged, shared, means, sent, current))
            for sent, current in zip(y, z, strict=True)
        ]
        direction = table.weighted(np.full(2 * n, 1 / n))
        if not self.corrected:
            # Where the mean overwrites, the gradients after the message move nothing.
            kept = table.weighted(np.repeat([1 / n, 0.0], n))
            trained = [part.requires_grad for part in server.model.parameters()]
            direction = [
                part if part is None or other is None else torch.where(on, other, part)
                for on, other, part in zip(compress(shared, trained), kept, direction, strict=True)
            ]
        server.step(Gradient(table.loss, direction), int(table.counts.sum()))

    def _merged(self, shared: Tensor, mean: Tensor, sent: Tensor, current: Tensor) -> Tensor:
        """One part of a worker's weights after the merge."""
        if self.corrected:
            mean = mean + (current - sent)
        return torch.where(shared, mean, current)

    def _coordinates(self, server: ParameterServer) -> list[Tensor]:
        """Which coordinates are sent in this round, for each part of the weights.

        Weights that are not trained are the same everywhere, and are not sent.
        """
        parts = list(server.model.parameters())
        sizes = [part.numel() if part.requires_grad else 0 for part in parts]
        key = derive_keys(stream_keys(server.seed, stream=_COORDINATES)[0], server.updates, 0)
        # On the CPU, so that every device has the same coordinates.
        generator = torch.Generator().manual_seed(int(key))
        order = torch.randperm(sum(sizes), generator=generator)
        chosen = torch.zeros(len(order), dtype=torch.bool)
        chosen[order[: max(1, round(self.density * len(order)))]] = True
        shared = []
        for part, own in zip(parts, torch.split(chosen, sizes), strict=True):
            if part.requires_grad:
                shared.append(own.view_as(part).to(part.device))
            else:
                shared.append(torch.zeros_like(part, dtype=torch.bool))
        return shared
