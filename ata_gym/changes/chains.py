"""The two chains that changes are made of: on and off, and a normal number that forgets slowly."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ata_gym.changes.change import Now
from ata_gym.changes.conditions import Floats


def stationary(now: Now, starts: float, ends: float) -> Floats:
    """1 where a chain is on, as often as in the long run, else 0; shape (E, 1, n)."""
    return (now.uniforms() < starts / (starts + ends)).astype(np.float64)


def markov(now: Now, on: Floats, starts: float, ends: float) -> Floats:
    """One step of the chain: off turns on with probability ``starts``, on turns off with ``ends``."""
    u = now.uniforms()
    return np.where(on > 0, u >= ends, u < starts).astype(np.float64)


def normals(now: Now, kinds: int) -> Floats:
    """Standard normal numbers, shape (E, kinds, n)."""
    return np.asarray(ndtri(now.uniforms(kinds)))


def autoregressive(now: Now, past: Floats, persistence: float) -> Floats:
    """One step of AR(1): it stays standard normal, with correlation ``persistence`` from one round to the next."""
    after: Floats = persistence * past + (1 - persistence**2) ** 0.5 * normals(now, past.shape[1])
    return after
