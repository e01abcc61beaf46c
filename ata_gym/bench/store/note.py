"""What a study notes in its folder for its page.

The configuration of the folder is not enough, since it holds a pool as a hash only.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ata_gym.bench.experiment import Experiment, Sizes
from ata_gym.bench.role import Role
from ata_gym.bench.store.claim import is_ours, refuse_links_out
from ata_gym.bench.store.folder import Folder, read_json, write_json
from ata_gym.scenarios import SPLITS
from ata_gym.scenarios.card import CARD, scenario_card
from ata_gym.theory import RegretLowerBound, regret_lower_bound
from ata_gym.utils.files.atomic import check_name
from ata_gym.utils.files.json_files import Rule, fields, items, nullable, text
from ata_gym.utils.files.sealed import DamagedError
from ata_gym.utils.validation import flag, non_negative, short, whole_number
from ata_policies.card import policy_card
from ata_policies.presets import PRESETS
from ata_policies.registry import load

NOTE = "about.json"
"""The name of the note in a results folder."""

Note = dict[str, Any]


class NothingFinishedError(ValueError):
    """Nothing has finished yet in a results folder."""


def _least_and_largest(name: str, value: Any) -> None:
    """The rule of two numbers of at least 0."""
    items(non_negative)(name, value)
    if len(value) != 2:
        raise ValueError(f"{name} must be two numbers, not {short(value)}")


POLICIES = items(
    fields(
        {**dict.fromkeys(("name", "env", "kind"), text), "own": flag, "card": CARD},
    ),
)
EXPERIMENT: Mapping[str, Rule] = {
    "title": text,
    **dict.fromkeys(("workers", "budget", "rounds", "seeds"), whole_number),
    "price": non_negative,
    "first_seed": partial(whole_number, least=0),
    "unit_costs": nullable(_least_and_largest),
    "scenario": CARD,
    "policies": POLICIES,
    "remarks": items(text),
    "lower_bound": non_negative,
}
"""The rules of what ``about_experiment`` gives, by field."""

_ANY_STUDY = fields({"study": text, "command": items(text)})


def write_note(folder: Path, study: str, command: Sequence[str], note: Mapping[str, Any]) -> Note:
    """Leave a note in a results folder, and return it.

    Args:
        folder: The results folder.
        study: The name of the study, such as ``bench``.
        command: The words of the command that the page shows.
        note: What else the page needs to know.
    """
    content = {"study": study, "command": list(command), **note}
    write_json(folder / NOTE, content)
    return content


def read_note(folder: Path, rule: Rule | None = None) -> Note:
    """Read the note in a results folder.

    Args:
        folder: The results folder.
        rule: The rule of the study; without it only the study and the command are checked.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder holds no results, or no note.
        DamagedError: If the note, or a configuration in the folder, is damaged.
    """
    check_name(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    path = folder / NOTE
    if not path.exists():
        if not is_ours(folder):
            raise ValueError(
                f"{folder} holds no results of ata-gym: name the folder that a command got as"
                " --out",
            )
        raise ValueError(
            f"{folder} has no {NOTE}, so nothing says what was studied: it was made by a command"
            " that has no report page, or by an older version; run the command again with the same"
            " --out, and it adds what is missing",
        )
    refuse_links_out(folder)
    note = read_json(path)
    for config_path in folder.rglob("config.json"):
        # a damaged one raises DamagedError
        read_json(config_path)
    _check_note(folder, note, _ANY_STUDY)
    if rule is not None:
        _check_note(folder, note, rule)
    return note


def refuse_other_study(folder: Path, study: str) -> None:
    """Refuse a folder in which another study has left its note.

    Raises:
        ValueError: If there is such a note.
    """
    if (folder / NOTE).exists():
        name = read_note(folder)["study"]
        if name != study:
            raise ValueError(
                f"{folder} holds the results of {name}, and these would be results of {study}:"
                " choose another folder",
            )


def _check_note(folder: Path, note: Note, rule: Rule) -> None:
    """Check a note against the rule of its study.

    Raises:
        DamagedError: If the note does not follow the rule; the error names the file and the field.
    """
    try:
        rule("", note)
    except ValueError as error:
        raise DamagedError(
            f"{folder / NOTE} is damaged, or was made by another version of ata-gym ({error}): run"
            " the command again with the same --out",
        ) from error


def roles(note: Note) -> list[Role]:
    """Return the policies of a note, in its order."""
    return [Role(policy["name"], policy["env"], policy["kind"]) for policy in note["policies"]]


def kinds_in_words(note: Note) -> dict[str, str]:
    """Return the kind of each policy of a note, and whether it is the user's own."""
    return {
        policy["name"]: f"{policy['kind']}, yours" if policy["own"] else policy["kind"]
        for policy in note["policies"]
    }


def sizes(note: Note) -> Sizes:
    """Return the sizes of the experiment of a note."""
    named = {field: note[field] for field in Sizes._fields}
    if named["unit_costs"] is not None:
        named["unit_costs"] = tuple(named["unit_costs"])
    return Sizes(**named)


def finished_policies(folder: Path, note: Note) -> list[str]:
    """Return the names of the policies of a note that have finished, in its order.

    Raises:
        NothingFinishedError: If none has finished.
    """
    store = Folder(folder)
    names = [policy["name"] for policy in note["policies"] if store.finished(policy["name"])]
    if not names:
        raise nothing_finished("no policy has finished", folder, note)
    return names


def nothing_finished(fact: str, folder: Path, note: Note) -> NothingFinishedError:
    """Return the error of a folder in which there is nothing to show yet.

    Args:
        fact: What has not finished.
        folder: The results folder.
        note: Its note.
    """
    return NothingFinishedError(
        f"{fact} in {folder}, so there is nothing to show yet: run the command again, and it goes"
        f" on where it stopped: {shlex.join(note['command'])}",
    )


def not_finished(note: Note, finished: Iterable[str]) -> list[str]:
    """Return the sentence of a page on the policies that have not finished; none if all have."""
    names = {*finished}
    missing = [policy["name"] for policy in note["policies"] if policy["name"] not in names]
    if not missing:
        return []
    return [
        f"Not finished, and not shown: {', '.join(missing)}. The same command goes on with them.",
    ]


def about_experiment(experiment: Experiment, policies: Iterable[str]) -> Note:
    """Return what the page of an experiment needs.

    These are names and sizes, the cards of the scenario and of the policies, and remarks.
    """
    names = list(policies)
    return {
        **experiment.sizes._asdict(),
        "scenario": scenario_card(experiment.scenario).to_data(),
        "policies": [about_policy(policy) for policy in names],
        "remarks": training_remarks(experiment, names),
        "lower_bound": lower_bound(experiment),
    }


def lower_bound(experiment: Experiment) -> float:
    """Return the constant of ``RegretLowerBound``; 0 if no bound is known.

    Example:
        >>> round(lower_bound(Experiment.on_scenario("icml2025-regret", seeds=1)), 2)
        50.82
        >>> lower_bound(Experiment.on_scenario("five-workers", seeds=1))
        0.0
    """
    scenario = experiment.scenario
    if not scenario.stationary:
        return 0.0
    return regret_lower_bound(scenario.pool, scenario.budget).constant


def lower_bound_of(note: Note) -> RegretLowerBound | None:
    """Return the lower bound of the proxy regret in the note of an experiment, if one is known."""
    if note["lower_bound"]:
        return RegretLowerBound(note["lower_bound"], "")
    return None


def training_remarks(experiment: Experiment, policies: Iterable[str]) -> list[str]:
    """Return a sentence on each policy that was trained on workers of the experiment.

    It is so where the seeds of its training and the seeds of the experiment have one in common,
    and workers are drawn from seeds.
    """
    if not experiment.scenario.pool_distribution:
        return []
    first = experiment.seed
    last = experiment.seed + experiment.seeds - 1
    sentences = list[str]()
    for policy in policies:
        trained_on = load(policy).trained_on
        if trained_on and first < trained_on.stop and last >= trained_on.start:
            sentences.append(
                f"{policy} was trained on workers drawn from the seeds {trained_on.start:,} to"
                f" {trained_on[-1]:,}, and seeds of this run ({first:,} to {last:,}) are among"
                " them: it may know these workers. Compare it on seeds from"
                f" {SPLITS['test'].start:,} on (--seed {SPLITS['test'].start}), which no training"
                " has.",
            )
    return sentences


def about_policy(policy: str) -> Note:
    """Return what a page says of a policy.

    These are its name, the name of its env, whether it is a learner, an oracle or a baseline,
    whether it is the user's own, and its card.
    """
    role = Role.from_name(policy)
    is_own = policy.partition(":")[0] not in PRESETS
    return {
        "name": policy,
        "env": role.env,
        "kind": role.kind,
        "own": is_own,
        "card": policy_card(policy).to_data(),
    }
