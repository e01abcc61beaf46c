"""The problem ``text``: a language model of single letters, small and without a download."""

import re
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.training.problems.classification import Classification, Samples
from ata_gym.typing import Ints

_LETTERS = " abcdefghijklmnopqrstuvwxyz.,"
"""The alphabet; whatever else is in the text becomes a space."""
_CONTEXT = 8
"""The number of letters from which the next one is told."""
_HELD_OUT = 2_000
"""The number of samples at the end of the text that are held out."""


def text() -> Classification:
    """The help texts of Python, and a network with 4,773 parameters that tells the next letter.

    A sample is eight letters and the one that follows; the alphabet has 29 signs. The last 2,000
    samples of some 400,000 are held out. The network is the one of Bengio et al. (A neural
    probabilistic language model, 2003), in letters and without the direct connections: embeddings
    of dimension 8, 48 hidden units, and logits.

    Source: ``pydoc_data.topics`` of Python's standard library, PSF licence; each version of Python
    has another text. Network and rates are ours.

    Example:
        >>> sum(weights.numel() for weights in text().build().parameters())
        4773
    """
    windows = torch.from_numpy(_letters()).unfold(0, _CONTEXT + 1, 1)
    samples = Samples(windows[:, :_CONTEXT], windows[:, _CONTEXT])
    last = len(windows) - _HELD_OUT
    return Classification(
        _network,
        Samples(samples.inputs[:last], samples.labels[:last]),
        Samples(samples.inputs[last:], samples.labels[last:]),
        transform=_unchanged,
        name="text",
        learning_rates={"adam": 3e-3, "sgd": 0.3},
    )


def _letters() -> Ints:
    """The places in ``_LETTERS`` of the letters of the text, shape (N,)."""
    whole = " ".join(topics[name] for name in sorted(topics)).lower()
    plain = re.sub(r"[^a-z.,]+", " ", whole)
    table = np.zeros(128, np.int64)
    table[[ord(letter) for letter in _LETTERS]] = np.arange(len(_LETTERS))
    return table[np.frombuffer(plain.encode("ascii"), np.uint8)]


def _unchanged(inputs: Tensor) -> Tensor:
    return inputs


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(len(_LETTERS), 8),
        nn.Flatten(),
        nn.Linear(8 * _CONTEXT, 48),
        nn.ReLU(),
        nn.Linear(48, len(_LETTERS)),
    )
