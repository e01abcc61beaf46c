"""Our policies by name, as data from which the registry makes them.

A new policy is one more line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from ata_policies.allocation.baselines import ExploreThenCommit, Gta, Ofta, Uta
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES, ComposedPolicy
from ata_policies.allocation.distribution_learner import DistributionLearner
from ata_policies.allocation.exponentiated_gradient import ExponentiatedGradient
from ata_policies.allocation.information_directed import InformationDirected
from ata_policies.allocation.oracles import DynamicOfta, DynamicOracle, Oracle
from ata_policies.dispatch.learner import DispatchLearner
from ata_policies.dispatch.oracles import (
    DispatchCaps,
    DispatchDynamicOracle,
    DispatchGta,
    DispatchOracle,
)
from ata_policies.dispatch.remaining_time import DispatchRest
from ata_policies.facts import Described, joined_facts
from ata_policies.lb_bsp.cpu import PREDICTORS, LbBsp, Probes
from ata_policies.lb_bsp.gpu import LbBspGpu, LbBspProfiled
from ata_policies.learned.policy import Learned
from ata_policies.policy import Policy
from ata_policies.race.fixed import RaceBackup, RaceCaps, RaceFastest
from ata_policies.race.learner import RaceLearner
from ata_policies.race.oracles import RaceDynamicOracle, RaceOracle
from ata_policies.setting import Setting


def _fact(name: str) -> Any:
    """Make a property of a preset: what its parts say of a fact, together."""
    return property(lambda preset: joined_facts(preset.parts, name))


@dataclass(frozen=True)
class Preset:
    """A named policy: a class, its hyperparameters, and the parts that describe it.

    The docstrings and facts of the parts tell what the policy is. A call makes the policy; the
    hyperparameters of the call override the preset's.
    """

    name: str
    build: type[Policy]
    """The policy's class."""
    hyperparameters: Mapping[str, Any]
    parts: tuple[type[Described], ...]
    """What it is made of; the docstring of the first is the policy's."""
    about: str = ""
    """One sentence; by default the first line of the docstring."""

    def __call__(self, setting: Setting, *, seed: int = 0, **hyperparameters: Any) -> Policy:
        chosen = {**self.hyperparameters, **hyperparameters}
        return self.build(setting, seed=seed, **chosen)

    def parts_for(self, **hyperparameters: Any) -> Sequence[type[Described]]:
        """Return the parts of the policy with these hyperparameters of a call."""
        chosen = {**self.hyperparameters, **hyperparameters}
        return self.build.parts_for(**chosen)

    def summary(self) -> str:
        """Return what the policy does, in a sentence."""
        return self.about or self.parts[0].summary()

    def documentation(self) -> str:
        """Return the docstring, without indentation."""
        return self.parts[0].documentation()

    # the attributes of a class of policies, see ``Policy``
    __name__ = property(attrgetter("name"))
    source = _fact("source")
    constants = _fact("constants")
    knows = property(lambda preset: joined_facts(preset.parts_for(), "knows"))
    assumes = _fact("assumes")
    time_unit = property(lambda preset: joined_facts(preset.parts_for(), "time_unit"))
    nonstationary = property(lambda preset: any(part.nonstationary for part in preset.parts))
    env_id = property(attrgetter("build.env_id"))
    only_size = property(attrgetter("build.only_size"))
    learns = property(attrgetter("build.learns"))
    priced = property(attrgetter("build.priced"))
    trained_on = property(attrgetter("build.trained_on"))
    privileged = property(attrgetter("build.privileged"))
    kernels = property(attrgetter("build.kernels"))


def _plain(name: str, policy: type[Policy]) -> Preset:
    """Name a class of policies, with its default hyperparameters."""
    return Preset(name, policy, {}, (policy,))


def _composed(
    name: str,
    estimate: str,
    about: str = "",
    *,
    memory: str = "everything",
    rule: str = "proxy",
    **hyperparameters: Any,
) -> Preset:
    """Name a composition of memory, estimate and rule."""
    chosen = {"estimate": estimate, "memory": memory, "rule": rule, **hyperparameters}
    return Preset(
        name,
        ComposedPolicy,
        chosen,
        (ESTIMATES[estimate], RULES[rule], MEMORIES[memory]),
        about,
    )


def _lb_bsp(
    name: str, predictor: str, about: str, *further_parts: type[Described], **hyperparameters: Any
) -> Preset:
    """Name a variant of LB-BSP with a predictor of speeds."""
    return Preset(
        name,
        LbBsp,
        {"predictor": predictor, **hyperparameters},
        (LbBsp, PREDICTORS[predictor], *further_parts),
        about,
    )


def _recent(name: str, predictor: str, about: str) -> Preset:
    """Name a rule that allocates by predicted times, with the machinery of LB-BSP."""
    chosen = {"predictor": predictor, "forecast": "time", "least": 0}
    return Preset(name, LbBsp, chosen, (PREDICTORS[predictor],), about)


_RESTARTING = "The beta rule on Thompson's draws that starts anew when a change is detected."
_PRESETS = (
    # the ATA paper's
    _composed(
        "ata",
        "ata",
        "ATA as in the preprint and all its figures: (m - 4 e alpha f)+, alpha bounds norms of X.",
    ),
    _composed(
        "ata-icml",
        "ata",
        "ATA as at ICML: (m - 2 alpha f)+, alpha bounds norms of X - mean.",
        version="icml",
    ),
    _composed(
        "ata-empirical",
        "ata-empirical",
        "ATA-Empirical as in the preprint: m (1 - 4 e eta f)+.",
    ),
    _composed(
        "ata-empirical-icml",
        "ata-empirical",
        "ATA-Empirical as at ICML: m (1 - 2 eta f)+.",
        version="icml",
    ),
    _plain("uta", Uta),
    _plain("ofta", Ofta),
    _plain("gta", Gta),
    _plain("exponentiated-gradient", ExponentiatedGradient),
    # bandits
    _composed("thompson", "thompson"),
    _composed("thompson-gamma", "thompson-gamma"),
    _composed("mots", "mots"),
    _plain("v-ids", InformationDirected),
    _composed("cucb", "cucb"),
    _composed("ucb-v", "ucb-v"),
    _composed("kl-lcb", "kl-lcb"),
    _composed("kl-gamma", "kl-gamma"),
    _composed("median-of-means", "median-of-means"),
    _composed("catoni", "catoni"),
    _composed("truncated-mean", "truncated-mean"),
    _composed(
        "thompson-beta",
        "thompson-gamma",
        "Thompson sampling for gamma times, with the beta rule.",
        rule="beta",
    ),
    _composed("certainty-equivalence", "mean"),
    _composed(
        "epsilon-uniform",
        "mean",
        "Certainty equivalence, but some rounds are uniform.",
        rule="epsilon-uniform",
    ),
    _plain("explore-then-commit", ExploreThenCommit),
    # the expected cost itself, and oracles
    _plain("distribution-learner", DistributionLearner),
    _plain("learned", Learned),
    _plain("oracle", Oracle),
    _plain("dynamic-ofta", DynamicOfta),
    _plain("dynamic-oracle", DynamicOracle),
    # workers that change
    _composed("restarting-beta", "thompson-gamma", _RESTARTING, memory="restarting", rule="beta"),
    _recent(
        "recent-average",
        "ema",
        "Certainty equivalence on moving averages of the workers' mean times in a round.",
    ),
    _recent(
        "recent-median",
        "median",
        "Certainty equivalence on medians of the workers' last mean times in a round.",
    ),
    # LB-BSP
    _lb_bsp(
        "lb-bsp-last",
        "last",
        "LB-BSP for CPU clusters, with each worker's speed in its last round.",
    ),
    _lb_bsp(
        "lb-bsp-ema",
        "ema",
        "LB-BSP for CPU clusters with an exponential moving average of each worker's speed.",
    ),
    _lb_bsp(
        "lb-bsp-linear",
        "linear",
        "LB-BSP for CPU clusters with a linear autoregression of speeds and signals.",
    ),
    _lb_bsp(
        "lb-bsp-narx",
        "narx",
        "LB-BSP for CPU clusters as in the paper: a NARX network (needs torch).",
    ),
    _lb_bsp(
        "lb-bsp-federated",
        "ema",
        "LB-BSP for workers that come and go.",
        Probes,
        availability=True,
    ),
    _plain("lb-bsp-gpu", LbBspGpu),
    _plain("lb-bsp-profiled", LbBspProfiled),
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
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _PRESETS})
"""The presets by name."""
