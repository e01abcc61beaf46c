"""What all ranks know of a round once it is reduced."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ata_gym.cluster.round_record import RoundRecord
from ata_gym.cluster.torchrun.ranks.parts import RankPart
from ata_gym.cluster.torchrun.share import Share
from ata_gym.typing import Floats, Ints, Worker
from ata_policies import Propensities

_LEFT_REASON = "it takes no tasks since it called leave()"
_ABSENT_REASON = "it is not in the quorum"


class RoundResult(NamedTuple):
    """The times and the parts of all n ranks, the same on each of them."""

    names: Sequence[str]
    """The names of the ranks."""
    shares: Ints
    """(n,) the numbers of their tasks, B in all."""
    seconds: Sequence[Floats]
    """The task times of each rank."""
    parts: RankPart[Floats]
    """What each of them sent about its part."""

    def factor(self) -> float:
        """The factor on the sums of losses divided by B, and on their gradients.

        It is B divided by the sum of the weights, where there are weights, and else 1.
        """
        total = float(self.parts.weight.sum())
        if total:
            return int(self.shares.sum()) / total
        return 1.0

    def times(self) -> dict[Worker, list[float]]:
        """The task times of the ranks that had tasks."""
        named = zip(self.names, self.seconds, strict=True)
        return {name: times.tolist() for name, times in named if len(times)}

    def latency(self) -> dict[Worker, float]:
        """The latencies of the ranks that had tasks."""
        named = zip(self.names, self.parts.latency.tolist(), self.shares, strict=True)
        return {name: latency for name, latency, tasks in named if tasks}

    def staying(self) -> list[str]:
        """The ranks that take tasks in the next round, too."""
        named = zip(self.names, self.parts.leaves, strict=True)
        return [name for name, leaves in named if not leaves]

    def away(self, present: Collection[Worker], known: Collection[Worker]) -> dict[Worker, str]:
        """Why workers had no tasks.

        Args:
            present: The workers that took tasks.
            known: The workers that may come and go.
        """
        left = [name for name in self.names if name not in present]
        absent = [name for name in known if name not in self.names]
        return dict.fromkeys(left, _LEFT_REASON) | dict.fromkeys(absent, _ABSENT_REASON)

    def record(
        self,
        number: int,
        share: Share,
        expected: Mapping[Worker, float],
        away: Mapping[Worker, str],
        propensities: Propensities | None,
    ) -> RoundRecord:
        """The record of the round.

        Args:
            number: The number of the round.
            share: The share of this rank, which measures the communication.
            expected: The task times that were expected of the workers.
            away: Why workers had no tasks.
            propensities: How likely the tasks of all ranks were, if that is known.
        """
        # The time from the end of its tasks to the end of the reduction is waiting for the slowest
        # rank, and then communication.
        slowest = float(self.parts.elapsed.max())
        waited = slowest - share.watch.seconds(share.start_mark, share.computed_mark)
        communication = max(
            share.watch.seconds(share.computed_mark, share.reduced_mark) - waited, 0.0
        )
        return RoundRecord(
            number,
            dict(zip(self.names, self.shares.tolist(), strict=True)),
            {name: tuple(times) for name, times in self.times().items()},
            round_time=slowest + communication,
            estimates=dict(expected),
            communication=communication,
            away=dict(away),
            loss=float(self.parts.loss.sum()) * self.factor(),
            latency=self.latency(),
            weight=float(self.parts.weight.sum()),
            propensities=propensities,
        )
