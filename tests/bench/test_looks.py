"""Which colour and which dashes each policy has."""

from itertools import combinations

import numpy as np
import pytest

import ata_policies
from ata_gym import bench
from ata_gym.bench.report import style
from ata_gym.bench.report.page.render import looks as looks_of_page
from ata_gym.training import METHODS
from ata_policies.allocation.baselines import Uta
from ata_policies.registry import DEFAULTS

LINES = [*ata_policies.names(), *METHODS, "ringmaster=0.1", "package.module:Mine"]

# What dichromats see of linear red, green and blue (Machado, Oliveira and Fernandes, 2009).
SEEN_BY = {
    "all": np.eye(3),
    "protanopes": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopes": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopes": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
# From linear red, green and blue to the coordinates of Oklab (Ottosson, 2020).
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
FROM_CONES = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def oklab(colour: str, seen: np.ndarray) -> np.ndarray:
    channels = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return FROM_CONES @ np.cbrt(TO_CONES @ np.clip(seen @ linear, 0.0, 1.0))


@pytest.mark.parametrize("seen", SEEN_BY.values(), ids=[*SEEN_BY])
@pytest.mark.parametrize("colours", [[*style.ON_DARK], [*style.ON_DARK.values()]])
def test_colour_blind_readers_tell_all_colours_apart_on_white_and_on_dark(colours, seen):
    assert len({*colours}) == 8
    distances = [
        np.linalg.norm(oklab(one, seen) - oklab(other, seen))
        for one, other in combinations(colours, 2)
    ]
    # The nearest two of the palette of Okabe and Ito are 0.076 apart, for deuteranopes.
    assert min(distances) > 0.075


def test_no_two_lines_have_one_colour_while_one_is_free():
    rng = np.random.default_rng(0)
    for count in range(1, 65):
        names = rng.choice(LINES, min(count, len(LINES)), replace=False).tolist()
        looks = style.lines(names)
        assert [*looks] == names
        uses = [
            sum(look["color"] == colour for look in looks.values()) for colour in style.OKABE_ITO
        ]
        assert max(uses) - min(uses) <= 1
        assert len({(look["color"], look["linestyle"]) for look in looks.values()}) == len(names)


def test_every_two_policies_of_the_registry_have_two_colours():
    for pair in combinations(ata_policies.names(), 2):
        one, other = style.lines(pair).values()
        assert one["color"] != other["color"], pair


def test_looks_depend_on_no_order_and_known_policies_keep_theirs_in_any_company():
    names = [*LINES[::3], "mine", "yours"]
    assert style.lines(names) == style.lines(names[::-1])
    known = ["ofta", "uta", "gta", "ata", "ata-empirical", DEFAULTS["ata_gym/TaskAllocation-v0"]]
    for name in known:
        assert style.lines([*LINES, "mine"])[name] == style.lines([name])[name]


def test_a_policy_has_one_colour_in_all_pictures_and_on_the_page_also_where_another_has_failed():
    class Failing(Uta):
        def allocate(self, state):
            if state.round[0] > 2:
                raise ArithmeticError
            return super().allocate(state)

    policies = ["race", "uta", "ata-empirical", Failing]
    with pytest.warns(bench.PolicyFailedWarning):
        results = bench.run(policies, "five-workers", rounds=5, seeds=2, jobs=1)
    on_page = {look["name"]: look["light"] for look in looks_of_page(results.content.page())}
    assert len(on_page) == len(policies)
    for name in (*results.content.pictures, "profile"):
        for axes in results.plot(name).axes:
            drawn = {line.get_label(): line.get_color() for line in axes.get_lines()}
            assert drawn.items() <= on_page.items()
            assert len(drawn) > 1
