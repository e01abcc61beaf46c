"""The part of a round that one rank computes, and the times of its tasks."""

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, NamedTuple

from torch import Tensor
from torch.amp import GradScaler

from ata_gym.cluster.torchrun.dtensors import whole
from ata_gym.cluster.torchrun.gradients.task_gradients import TaskGradients
from ata_gym.cluster.torchrun.loading.first_batches import OpenLoaders
from ata_gym.cluster.torchrun.loading.loaders import batches
from ata_gym.cluster.torchrun.loading.task_sampler import sampler_of
from ata_gym.cluster.torchrun.ranks.parts import Passes
from ata_gym.models.memory import lacks_memory
from ata_gym.models.stopwatch import Mark, Stopwatch
from ata_gym.utils.validation import as_float, short, whole_number

_LOG = logging.getLogger("ata_gym.cluster")


class _TimedBatch(NamedTuple):
    tasks: int
    """The number of its tasks."""
    cost: float
    """Its cost, relative to the mean cost of samples."""
    start: Mark
    end: Mark


class Share:
    """The part of one rank in a round, which ``TorchAllocator.round`` gives.

    It has ``tasks`` of the round's B tasks, maybe 0, from number ``first`` on, and the methods that
    compute them.
    """

    def __init__(
        self,
        tasks: int,
        first: int,
        budget: int,
        watch: Stopwatch,
        gradients: TaskGradients,
        open_loaders: OpenLoaders,
        reduce: Callable[[], None],
        seeded: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.tasks = tasks
        self.first = first
        self._budget = budget
        self.watch = watch
        self._gradients = gradients
        self._open_loaders = open_loaders
        self._reduce = reduce
        self._seeded = seeded
        self.expects_one_pass = False
        """Whether each batch is expected to have one backward pass, as in the round before."""
        self.weight = 0.0
        """The sum of the weights of its losses, once it is reduced."""
        self._restart()
        self.loaders: list[Any] = []
        """The loaders of which batches were taken."""
        self.orders: list[int] = []
        """The checksum of each ``TaskSampler`` that was asked for batches in this round."""
        self._first_start: Mark | None = None
        self.start_mark = watch.mark()
        self.computed_mark: Mark | None = None
        """When this rank began to reduce."""
        self.reduced_mark: Mark | None = None
        """When the reduction had ended."""
        self.committed = False
        """Whether the round counts, once its block has ended.

        It always does with a process group. With a ``manager`` it does not where a replica was
        lost: then do not step the optimiser; the next round computes the tasks again."""

    def _restart(self) -> None:
        """Begin the share without any task computed."""
        self._timed: list[_TimedBatch] = []
        self.done = 0
        """The number of tasks that are computed so far."""
        # The number of tasks of the batch that is being computed; 0 between two batches.
        self._batch_tasks = 0
        # The part of the mean loss that each pass had; in a pipeline the last stage has it.
        self._losses: list[Tensor] = []
        # The number of backward passes that began, and of those that ended.
        self._passes = 0
        self._ended_passes = 0
        # The number of times that a batch was said to have no gradient.
        self._skipped = 0
        # Whether a schedule of a pipeline ran passes, each in several parts.
        self._has_schedule = False
        # The weights of the losses of this rank, where they have weights.
        self._weights: list[float | Tensor] = []
        # Whether a batch was left after its backward pass: the gradient has a part too many.
        self._has_failed_pass = False
        self.scaled = False
        """Whether a ``GradScaler`` scaled a loss, and so deals with infinite gradients."""

    @property
    def had_one_pass(self) -> bool:
        """Whether each batch had one backward pass, or was said to have no gradient."""
        return self._passes + self._skipped == len(self._timed) and not self._has_schedule

    @property
    def has_loss(self) -> bool:
        """Whether this rank has computed losses; in a pipeline its last stage has."""
        return bool(self._losses)

    def take(self, loader: Any) -> Generator[Any]:
        """Yield the batches of this share; each is timed until the next one begins.

        A loader with a ``TaskSampler`` gives this rank's samples of the round; samplers around it,
        as in a loader that accelerate has prepared, are taken out, since the allocation decides
        which rank computes what. ``TaskStream`` shares the batches of a loader out that has no
        ``TaskSampler``. Each batch of any other loader is a task, and every rank computes what its
        own loader gives, so the loaders must have a part each, as with ``split_by_node``; where two
        ranks take the same first batches, ``reduce`` raises. Such a loader goes on from round to
        round, and starts over at its end: a rank with more tasks is sooner there.

        Raises:
            ValueError: For a loader that holds a ``TaskSampler`` in another way or has lost it, for
                one that waits for other ranks, and for one without batches.
        """
        iterator = batches(loader, self, self._open_loaders)
        self.loaders.append(loader)
        while self.done < self.tasks:
            start = self.watch.mark()
            # A batch has two keys: one for what the loader draws, and one for what the model draws.
            number = 2 * (self.first + self.done)
            with self._seeded(number):
                batch, cost = next(iterator)
            with self._seeded(number + 1), self._timing(cost.tasks, start, cost.cost):
                yield batch

    def compute(
        self,
        loader: Any,
        loss_of: Callable[[Any], Tensor],
        *,
        scaler: GradScaler | None = None,
    ) -> None:
        """Compute all tasks, in batches as large as the memory of this rank allows.

        Where the device runs out of memory in a batch of several tasks, the ``tasks_per_pass`` of
        the loader's ``TaskSampler`` is halved on this rank, for this round and all later ones, and
        the share begins anew; the time that was lost does not count as task time. The gradient is
        sent after the last backward pass. Where several ranks hold a replica of the model, the
        error is raised in place of that, since they compute the same batches.

        Args:
            loader: The loader of the batches, as for ``take``.
            loss_of: Gives the mean loss of a batch of the loader.
            scaler: As for ``backward``.
        """
        # What was sent early could not be taken back if memory is lacking.
        self.expects_one_pass = False
        while self.done < self.tasks:
            try:
                # A generator that is left open would end its batch only after the share begins
                # anew.
                with closing(self.take(loader)) as share_batches:
                    for batch in share_batches:
                        self.backward(loss_of(batch), scaler=scaler)
            except Exception as error:
                sampler = sampler_of(loader)
                size = self._tried_tasks
                alone = self._gradients.replica_size == 1
                if not (lacks_memory(error) and alone) or sampler is None or size == 1:
                    raise
                sampler.tasks_per_pass = size // 2
            else:
                continue
            _LOG.warning(
                "memory for %d tasks in a pass is lacking on this rank: %d from now on",
                size,
                size // 2,
            )
            self._gradients.forget()
            self._restart()

    @contextmanager
    def timed(self, tasks: int = 1) -> Iterator[None]:
        """Time the block as ``tasks`` tasks, from the end of the last ones on.

        It is for loops that find their own samples in place of ``take``.
        """
        start = self.watch.mark()
        number = 2 * (self.first + self.done) + 1
        with self._seeded(number), self._timing(whole_number("tasks", tasks), start):
            yield

    @contextmanager
    def _timing(self, tasks: int, start: Mark, cost: float = 1.0) -> Iterator[None]:
        """Compute a batch of ``tasks`` tasks in the block, which began at ``start``."""
        if self._batch_tasks:
            raise RuntimeError(
                "the tasks of a share are computed one after the other: end the last one first",
            )
        if self.reduced_mark is not None or self.done + tasks > self.tasks:
            raise RuntimeError(
                f"this share has {self.tasks} tasks, and {self.done} are done: {tasks} more is too"
                " many",
            )
        # This is the last batch: its backward pass completes the gradient, which is sent meanwhile.
        if self.expects_one_pass and self.had_one_pass and self.done + tasks == self.tasks:
            self._gradients.expect_last()
        if self._first_start is None:
            self._first_start = start
        if self._timed:
            # what a loop does between two tasks, it does for each task
            start = self._timed[-1].end
        passes = self._passes
        self._batch_tasks = tasks
        self._tried_tasks = tasks
        try:
            yield
        except BaseException:
            self._has_failed_pass = self._has_failed_pass or self._passes > passes
            raise
        finally:
            self._batch_tasks = 0
        self._timed.append(_TimedBatch(tasks, cost, start, self.watch.mark()))
        self.done += tasks

    def backward(
        self,
        loss: Tensor | None,
        *,
        weight: float | Tensor | None = None,
        scaler: GradScaler | None = None,
        **arguments: Any,
    ) -> None:
        """Run the backward pass of a batch; it adds loss / B for each task.

        Args:
            loss: The mean over the samples of the batch, a scalar. None says that the batch has no
                gradient; it then has no weight either. Where no batch of any rank has a gradient,
                the round leaves the gradients of before, and still counts.
            weight: What the loss is a sum over, such as the batch's tokens, maybe 0. Then the
                gradient is the gradient of the sum of all losses divided by the sum of all weights,
                whatever the split, over all rounds since the gradients were None or 0 and the
                parameters changed. Give it to every pass or to none. A tensor is not waited for,
                and is checked by ``reduce``.
            scaler: Scales the loss first, so that the gradient is scaled and may be infinite;
                ``allocator.last.loss`` is not scaled.
            arguments: The arguments of ``Tensor.backward``.

        Raises:
            RuntimeError: Outside a batch.
            ValueError: For a loss that is no scalar, and a weight that is below 0 or not finite.
        """
        self._check_batch("backward")
        if loss is None:
            self._skipped += 1
            return
        if loss.ndim:
            raise ValueError(
                "the loss must be a scalar, the mean over the batch, not of shape"
                f" {tuple(loss.shape)}",
            )
        weighted = loss * self._part_of_round(weight)
        self._passes += 1
        if scaler is None:
            scaled = weighted
        else:
            self.scaled = True
            scaled = scaler.scale(weighted)
        scaled.backward(**arguments)  # type: ignore[no-untyped-call]
        self._losses.append(weighted.detach())
        self._ended_passes += 1

    def pipeline(
        self,
        schedule: Any,
        *inputs: Any,
        target: Any = None,
        weight: float | Tensor | None = None,
        **arguments: Any,
    ) -> Any:
        """Run the passes of a batch by a schedule of ``torch.distributed.pipelining``.

        It is in the place of ``backward``, and adds loss / B for each task. Each rank of a replica
        calls it with what ``schedule.step`` takes on its stage. The loss of a batch is, as the
        schedule has it, the mean of the losses of its microbatches, or their sum with
        ``scale_grads=False``, as a weight needs it.

        Args:
            schedule: The schedule, with a loss function.
            inputs: The inputs of the first stage.
            target: The target of the loss function, on the last stage.
            weight: As for ``backward``, and the same on all ranks of a replica; stages without a
                loss may leave it out.
            arguments: Other arguments of ``schedule.step``.

        Returns:
            What ``schedule.step`` returns: the outputs on the last stage.

        Raises:
            RuntimeError: Outside a batch.
            ValueError: For a schedule without a loss function, a weight that is below 0 or not
                finite, and a weight where the loss is a mean over microbatches.
        """
        self._check_batch("pipeline")
        loss_function = schedule._loss_fn
        if loss_function is None:
            raise ValueError("the schedule has no loss function: make it with loss_fn=...")
        averages = schedule.scale_grads
        if averages and weight is not None:
            raise ValueError(
                "with a weight the loss is a sum, and the schedule has the mean over microbatches:"
                " make it with scale_grads=False, and with a loss function that sums",
            )
        part = self._part_of_round(weight)
        if averages:
            part /= schedule._n_microbatches

        def weighted(*outputs: Any, **options: Any) -> Tensor:
            loss: Tensor = loss_function(*outputs, **options) * part
            return loss

        losses: list[Tensor] = []
        self._passes += 1
        self._has_schedule = True
        # The schedule itself would divide the gradients of earlier batches again.
        schedule._loss_fn = weighted
        schedule.scale_grads = False
        try:
            outputs = schedule.step(*inputs, target=target, losses=losses, **arguments)
        finally:
            schedule._loss_fn = loss_function
            schedule.scale_grads = averages
        # Each pass has one loss, as it has one weight.
        if losses:
            self._losses.append(_sum(losses).detach())
        self._ended_passes += 1
        return outputs

    def _check_batch(self, method: str) -> None:
        if not self._batch_tasks:
            raise RuntimeError(
                f"call {method} inside the loop over share.take(loader), or inside share.timed()",
            )

    def _part_of_round(self, weight: float | Tensor | None) -> float:
        """What a loss of the current batch is multiplied by; its weight is noted."""
        if self._passes and (weight is None) != (not self._weights):
            raise ValueError("give share.backward a weight in every pass of a round, or in none")
        if isinstance(weight, Tensor):
            self._weights.append(weight.detach())
        elif weight is not None:
            self._weights.append(_from_zero(weight))
        # A mean loss counts once for each task of the batch, a sum counts as it is.
        count = self._batch_tasks if weight is None else 1
        return count / self._budget

    def reduce(self) -> None:
        """Make the gradient of the model of the round the mean over its B tasks, on every rank.

        Every rank calls it once, also a rank without tasks. A task without a backward pass has no
        gradient. Where the part of one rank has a fault, such as a loss or gradient that is not
        finite, or two ranks computed the same batches, every rank raises the same error, which
        names the worker, and no gradient has changed.

        Raises:
            RuntimeError: If tasks are not computed, or no task of any rank had its ``backward``,
                also with None.
            ValueError: If some losses have a weight and others have none, or if all weights are 0.
        """
        if self.reduced_mark is not None:
            raise RuntimeError("a round is reduced once")
        if self.done < self.tasks:
            raise RuntimeError(
                f"{self.done} of the {self.tasks} tasks of this share are computed: loop over"
                " share.take(loader) to its end, and reduce after it",
            )
        if self._has_failed_pass or self._passes > self._ended_passes:
            raise RuntimeError(
                "a backward pass failed, or its batch was left before the end, so that the gradient"
                " has a part too many: begin the round again",
            )
        if not self._ended_passes and self._gradients.reached:
            raise RuntimeError(
                "the gradient has parts of which the share does not know: call"
                " share.backward(loss) in place of loss.backward()",
            )
        self.computed_mark = self.watch.mark()
        self.weight = sum(map(_from_zero, self._weights))
        self._reduce()
        self.reduced_mark = self.watch.mark()

    def check_reduced(self) -> None:
        """Raise ``RuntimeError`` unless the share is reduced."""
        if self.reduced_mark is None:
            raise RuntimeError("call share.reduce() inside the round, on every rank")

    def seconds(self) -> list[float]:
        """The time of each task in seconds, for a task of mean cost.

        Tasks that were computed together have equal parts of their time.
        """
        times: list[float] = []
        for batch in self._timed:
            of_task = self.watch.seconds(batch.start, batch.end) / (batch.tasks * batch.cost)
            times += [of_task] * batch.tasks
        return times

    def latency(self) -> float:
        """What this rank has spent in the round besides its tasks, in seconds.

        It is the time from the round's start to the first task, and from the end of the last task
        until the rank began to reduce, or until now. By the rank's own clock, it holds no wait for
        other ranks, unless the code of the round waits there itself, as in a barrier. Without tasks
        it is 0. With the task times it adds up to the time until then, less what was lost where
        ``compute`` began the share anew.
        """
        if not self._timed:
            return 0.0
        before = self.watch.seconds(self.start_mark, self._first_start)
        if self.computed_mark is None:
            until = self.watch.mark()
        else:
            until = self.computed_mark
        return before + self.watch.seconds(self._timed[-1].end, until)

    @property
    def passes(self) -> Passes:
        """Whether its losses have weights, if there are any."""
        if not self._passes:
            return Passes.SKIPPED if self._skipped else Passes.NONE
        if self._weights:
            return Passes.WEIGHTED
        return Passes.UNWEIGHTED

    def mean_of_nothing(self) -> bool:
        """Whether a loss of weight 0 is not finite, as a mean over nothing is."""
        # The ranks that have parts of a loss find out together, whatever their weights are.
        finite = [bool(whole(loss).isfinite()) for loss in self._losses]
        return any(
            _from_zero(weight) == 0.0 and not is_finite
            for weight, is_finite in zip(self._weights, finite, strict=False)
        )

    def loss(self) -> float:
        """The part of the mean loss that its tasks have.

        Where the losses have weights, it is the part of their sum divided by B.
        """
        if self._losses:
            return float(whole(_sum(self._losses)))
        return 0.0


def _sum(losses: list[Tensor]) -> Tensor:
    return sum(losses[1:], losses[0])


def _from_zero(weight: float | Tensor) -> float:
    """A weight as a number; ``ValueError`` if it is below 0 or not finite."""
    number: Any = weight
    if isinstance(weight, Tensor) and weight.numel() == 1:
        number = weight.item()
    value = as_float(number)
    if not 0.0 <= value < float("inf"):
        raise ValueError(
            "weight must be a finite number from 0 on, such as the batch's tokens, not"
            f" {short(weight)}",
        )
    return value
