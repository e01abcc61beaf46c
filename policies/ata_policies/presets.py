"""Our policies by name, as data from which the registry makes them. A new preset is one more entry here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from ata_policies.allocation.baselines import ExploreThenCommit, Gta, Ofta, Uta
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, ComposedPolicy
from ata_policies.allocation.distribution_learner import DistributionLearner
from ata_policies.allocation.exponentiated_gradient import ExponentiatedGradient
from ata_policies.allocation.oracles import DynamicOfta, DynamicOracle, Oracle
from ata_policies.dispatch.learner import DispatchLearner
from ata_policies.dispatch.oracles import DispatchCaps, DispatchDynamicOracle, DispatchGta, DispatchOracle
from ata_policies.dispatch.remaining_time import DispatchRest
from ata_policies.facts import FACTS, Described
from ata_policies.lb_bsp.cpu import LbBsp
from ata_policies.lb_bsp.gpu import LbBspGpu, LbBspProfiled
from ata_policies.learned.policy import LearnedAllocation, LearnedDispatch
from ata_policies.policy import Policy, Setting
from ata_policies.race.fixed import RaceBackup, RaceCaps, RaceFastest
from ata_policies.race.learner import RaceLearner
from ata_policies.race.oracles import RaceDynamicOracle, RaceOracle


def _fact(name: str) -> Any:
    """A property of a preset: one of the facts of ``Described``."""
    return property(lambda preset: preset.facts.get(name, getattr(preset.described, name)))


@dataclass(frozen=True)
class Preset:
    """A named policy: a class, its hyperparameters, and the facts that lists say of it.

    A call makes the policy; the hyperparameters of the call override the preset's.
    """

    name: str
    build: type[Policy]
    """The policy's class."""
    hyperparameters: Mapping[str, Any]
    described: type[Described]
    """The class whose docstring and facts describe the policy."""
    about: str = ""
    """One sentence; by default the first line of the docstring of ``described``."""
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Facts that differ from those of ``described``, by the names in ``FACTS``."""

    def __call__(self, setting: Setting, *, seed: int = 0, **hyperparameters: Any) -> Policy:
        """Make the policy for a setting."""
        return self.build(setting, seed=seed, **{**self.hyperparameters, **hyperparameters})

    def summary(self) -> str:
        """What the policy does, in a sentence."""
        return self.about or self.described.summary()

    def documentation(self) -> str:
        """The docstring of what is described, without indentation."""
        return self.described.documentation()

    # the attributes of a class of policies, see ``Policy``
    __name__ = property(attrgetter("name"))
    source = _fact("source")
    constants = _fact("constants")
    knows = _fact("knows")
    assumes = _fact("assumes")
    nonstationary = _fact("nonstationary")
    env_id = property(attrgetter("build.env_id"))
    only_size = property(attrgetter("build.only_size"))
    learns = property(attrgetter("build.learns"))
    priced = property(attrgetter("build.priced"))
    privileged = property(attrgetter("build.privileged"))


def _plain(
    name: str, policy: type[Policy], about: str = "", described: type[Described] | None = None, **more: Any
) -> Preset:
    """A preset with these hyperparameters; facts may stand among them."""
    facts = {fact: more.pop(fact) for fact in FACTS if fact in more}
    return Preset(name, policy, more, described or policy, about, facts)


def _composed(name: str, estimate: str, memory: str = "everything", rule: str = "proxy", **more: Any) -> Preset:
    parts: dict[str, Any] = {
        "estimate": estimate,
        "memory": memory,
        "rule": rule,
        "nonstationary": MEMORIES[memory].nonstationary,
    }
    return _plain(name, ComposedPolicy, described=ESTIMATES[estimate], **parts, **more)


_PRESETS = (
    # the ATA paper's
    _composed(
        "ata",
        "ata",
        about="ATA as in the preprint and every published figure: (m - 4 e alpha f)+, where alpha bounds the "
        "psi1 norms of X.",
        constants="4 e alpha, alpha >= psi1 norm of X; twice the mean where it is infinite",
    ),
    _composed(
        "ata-icml",
        "ata",
        version="icml",
        about="ATA as on the ICML poster: (m - 2 alpha f)+, where alpha bounds the psi1 norms of X - mean.",
        constants="2 alpha, alpha >= psi1 norm of X - mean; 1.53 times the mean where it is infinite",
    ),
    _composed(
        "ata-empirical",
        "ata-empirical",
        about="ATA-Empirical as in the preprint: m (1 - 4 e eta f)+, where eta bounds psi1 norm of X / mean.",
        constants="4 e eta, eta >= psi1 norm of X / mean; 2 where it is infinite",
    ),
    _composed(
        "ata-empirical-icml",
        "ata-empirical",
        version="icml",
        about="ATA-Empirical as on the ICML poster: m (1 - 2 eta f)+, where eta bounds psi1 norm of (X - mean) / mean.",
        constants="2 eta, eta >= psi1 norm of (X - mean) / mean; 1.53 where it is infinite",
    ),
    _plain("uta", Uta),
    _plain("ofta", Ofta),
    _plain("gta", Gta),
    _plain("exponentiated-gradient", ExponentiatedGradient),
    # bandits
    *(_composed(name, name) for name in ("thompson", "thompson-gamma", "cucb", "ucb-v", "kl-lcb", "kl-gamma")),
    *(_composed(name, name) for name in ("median-of-means", "catoni", "truncated-mean")),
    _composed(
        "thompson-beta",
        "thompson-gamma",
        rule="beta",
        about="Thompson sampling with the beta rule: tasks go where mean and spread of the worker's sum of "
        "times cost least.",
        constants="beta 1.5, weight 5",
    ),
    _composed(
        "certainty-equivalence",
        "mean",
        about="Minimises the proxy loss under the means of the times seen; workers never tried come first.",
    ),
    _composed(
        "epsilon-uniform",
        "mean",
        rule="epsilon-uniform",
        about="Certainty equivalence, but each round is with probability epsilon allocated uniformly.",
        source="Auer, Cesa-Bianchi and Fischer, 2002",
        constants="min(1, 0.05 n / k)",
    ),
    _plain("explore-then-commit", ExploreThenCommit),
    # the expected cost itself, and oracles
    _plain("distribution-learner", DistributionLearner),
    _plain("learned", LearnedAllocation),
    _plain("oracle", Oracle),
    _plain("dynamic-ofta", DynamicOfta),
    _plain("dynamic-oracle", DynamicOracle),
    # workers that change
    _composed(
        "restarting-beta",
        "thompson-gamma",
        memory="restarting",
        rule="beta",
        about="The beta rule on Thompson's draws that starts anew when a change is detected.",
        source="ours, after Liu, Lee and Shroff, AAAI 2018, and Thompson, 1933",
        constants=f"{MEMORIES['restarting'].constants}; beta 1.5, weight 5",
        assumes="gamma times of similar shapes, which change seldom",
    ),
    _plain(
        "recent-average",
        LbBsp,
        predictor="ema",
        forecast="time",
        least=0,
        about="Certainty equivalence on an exponential moving average of each worker's mean task time in a round.",
        source="ours",
        constants="weight 0.2",
        assumes="task times that change slowly",
    ),
    _plain(
        "recent-median",
        LbBsp,
        predictor="median",
        forecast="time",
        least=0,
        about="Certainty equivalence on the median of each worker's last 5 mean task times in a round.",
        source="ours",
        constants="W = 5",
        assumes="task times that change slowly",
    ),
    # LB-BSP
    _plain(
        "lb-bsp-last",
        LbBsp,
        predictor="last",
        about="LB-BSP for CPU clusters, expecting each worker to be as fast as in its last round.",
        constants="one task at least",
    ),
    _plain(
        "lb-bsp-ema",
        LbBsp,
        predictor="ema",
        about="LB-BSP for CPU clusters with an exponential moving average of each worker's speed.",
        constants="weight 0.2; one task at least",
    ),
    _plain(
        "lb-bsp-linear",
        LbBsp,
        predictor="linear",
        about="LB-BSP for CPU clusters with a linear autoregression of each worker's speed, and of its signals (ARX).",
        constants="8 lags; 2 rounds of signals; ridge 0.1",
        assumes="speeds linear in the last ones and in the signals",
    ),
    _plain(
        "lb-bsp-narx",
        LbBsp,
        predictor="narx",
        about="LB-BSP for CPU clusters as in the paper: a NARX network over last speeds, cpu and memory load "
        "(needs torch).",
        constants="4 lags; 2 rounds of signals; 8 units; the last 1024 samples",
        assumes="speeds a function of the last ones and of the signals",
    ),
    _plain("lb-bsp-gpu", LbBspGpu),
    _plain("lb-bsp-profiled", LbBspProfiled),
    _plain(
        "lb-bsp-federated",
        LbBsp,
        availability=True,
        about="LB-BSP for workers that come and go: those that owe results get nothing but a probe at intervals.",
        source="ours, after Chen et al., LB-BSP, SoCC 2020",
        constants="probes after 2 to 16 rounds; weight 0.2",
        assumes="workers without a result stay away for some rounds",
    ),
    # races
    _plain("race", RaceLearner),
    _plain("race-fastest", RaceFastest),
    _plain("race-caps", RaceCaps),
    _plain("race-backup", RaceBackup),
    _plain("race-oracle", RaceOracle),
    _plain("race-dynamic-oracle", RaceDynamicOracle),
    # dispatch
    _plain("dispatch", DispatchLearner),
    _plain("dispatch-rest", DispatchRest),
    _plain("dispatch-caps", DispatchCaps),
    _plain("dispatch-gta", DispatchGta),
    _plain("dispatch-oracle", DispatchOracle),
    _plain("dispatch-dynamic-oracle", DispatchDynamicOracle),
    _plain("learned-dispatch", LearnedDispatch),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _PRESETS})  # the presets by name
