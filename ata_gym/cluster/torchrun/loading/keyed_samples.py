"""Samples whose random augmentation does not depend on the process that loads them."""

from typing import Any, Self

from torch.utils.data import Dataset

from ata_gym.models.seeds import generators_preserved, seed_generators


class KeyedIndex(int):
    """The number of a sample, with the key of the noise that the sample has.

    The noise belongs to the place of the sample in the order of the training.
    """

    key: int
    """The key of the noise, 63 bits."""

    @classmethod
    def from_number(cls, number: int, key: int) -> Self:
        """The number, with a key of 63 bits."""
        keyed = cls(number)
        keyed.key = key
        return keyed


class KeyedSamples(Dataset[Any]):
    """A dataset whose augmentation is the same whatever the allocation and the ranks.

    It is also the same whatever the loader's worker processes. A ``TaskSampler`` that is made for
    it numbers the samples of the whole training, and the generators of ``torch``, ``numpy.random``
    and ``random`` are seeded by that number before a sample is read; afterwards they have the
    states that they had before. So a sample has fresh noise in each epoch, the same noise as with
    one process. A number that comes from elsewhere, as in validation, is looked up without a seed.

    Args:
        dataset: Finds samples by their numbers.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> from torch.utils.data import DataLoader
        >>> from ata_gym.cluster import TaskSampler
        >>> class Noisy(Dataset):
        ...     def __len__(self):
        ...         return 4
        ...     def __getitem__(self, number):
        ...         return number + 0.5 * torch.rand(())
        >>> def load(first, tasks):
        ...     share = SimpleNamespace(tasks=tasks, first=first, done=0, orders=[])
        ...     data = KeyedSamples(Noisy())
        ...     sampler = TaskSampler(SimpleNamespace(budget=4, rounds=0, share=share), data)
        ...     return torch.cat(list(DataLoader(data, batch_sampler=sampler)))
        >>> bool((load(0, 4) == torch.cat([load(0, 1), load(1, 3)])).all())
        True
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> Any:
        if not isinstance(number, KeyedIndex):
            return self.dataset[number]
        # Augmentation draws from the global generators.
        with generators_preserved():
            seed_generators(number.key)
            return self.dataset[int(number)]
