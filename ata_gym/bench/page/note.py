"""What a study notes in its folder for its page, since a configuration holds a pool as a hash only."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ata_gym.bench.experiment.claim import is_ours, refuse_links_out
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder, read_json, write_json
from ata_gym.bench.report.headline import Competitor
from ata_gym.scenarios import SPLITS
from ata_gym.scenarios.card import CARD, scenario_card
from ata_gym.utils.atomic import check_name
from ata_gym.utils.json_files import Rule, fields, items, text
from ata_gym.utils.sealed import DamagedError
from ata_gym.utils.validation import flag, non_negative, whole_number
from ata_policies.card import policy_card
from ata_policies.presets import PRESETS
from ata_policies.registry import load

NOTE = "about.json"  # the name of the note in a results folder

Note = dict[str, Any]

POLICIES = items(fields({**dict.fromkeys(("name", "env", "kind"), text), "own": flag, "card": CARD}, may_lack=["own"]))
EXPERIMENT: Mapping[str, Rule] = {
    "title": text, **dict.fromkeys(("workers", "budget", "rounds", "seeds"), whole_number), "price": non_negative,
    "first_seed": partial(whole_number, least=0), "scenario": CARD, "policies": POLICIES, "remarks": items(text),
}  # fmt: skip
"""The rules of what ``about_experiment`` gives, by field."""

_ANY_STUDY = fields({"study": text, "command": items(text)})


def write_note(folder: Path, study: str, command: Sequence[str], note: Mapping[str, Any]) -> Note:
    """Leave a note in a results folder: the study, the words of its command, and what its page needs to know."""
    whole = {"study": study, "command": list(command), **note}
    write_json(folder / NOTE, whole)
    return whole


def read_note(folder: Path) -> Note:
    """The note in a results folder; only its study and command are sure to be what they should.

    FileNotFoundError if there is no such folder, ValueError if it holds no such results, DamagedError if it is damaged.
    """
    check_name(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    path = folder / NOTE
    if not path.exists():
        if not is_ours(folder):
            raise ValueError(f"{folder} holds no results of ata-gym: name the folder that a command got as --out")
        raise ValueError(
            f"{folder} has no {NOTE}, so nothing says what was studied: it was made by a command that has no report "
            "page, or by an older version; run the command again with the same --out, and it adds what is missing"
        )
    refuse_links_out(folder)
    note = read_json(path)
    for known in folder.rglob("config.json"):
        read_json(known)  # it raises DamagedError
    check_note(folder, note, _ANY_STUDY)
    return note


def check_note(folder: Path, note: Note, rule: Rule) -> None:
    """Raise DamagedError, which names the file and the field, unless a note is what the rule of its study says."""
    try:
        rule("", note)
    except ValueError as error:
        raise DamagedError(
            f"{folder / NOTE} is damaged, or was made by another version of ata-gym ({error}): run the command again "
            "with the same --out"
        ) from error


def competitors(note: Note) -> list[Competitor]:
    """The policies of a note, in its order."""
    return [Competitor(one["name"], one["env"], one["kind"]) for one in note["policies"]]


def finished_policies(folder: Path, note: Note) -> list[str]:
    """The policies of a note that have finished, in its order; ValueError if none has."""
    store = Folder(folder)
    done = [one["name"] for one in note["policies"] if store.finished(one["name"])]
    if not done:
        raise ValueError(
            f"no policy has finished in {folder}, so there is nothing to show yet: run the command again, and it goes "
            f"on where it stopped: {shlex.join(note['command'])}"
        )
    return done


def about_experiment(experiment: Experiment, policies: Iterable[str]) -> Note:
    """What the page of an experiment needs: names, sizes, and the cards of the scenario and the policies."""
    scenario, names = experiment.scenario, list(policies)
    return {
        "title": scenario.name or "a scenario without a name", "workers": scenario.pool.n, "budget": scenario.budget,
        "price": scenario.price, "rounds": experiment.rounds, "seeds": experiment.seeds, "first_seed": experiment.seed,
        "scenario": scenario_card(scenario).to_data(), "policies": [about_policy(policy) for policy in names],
        "remarks": seen_in_training(experiment, names),
    }  # fmt: skip


def seen_in_training(experiment: Experiment, policies: Iterable[str]) -> list[str]:
    """A sentence on each policy that was trained on workers drawn from seeds of the experiment."""
    if not experiment.scenario.drawn:
        return []
    first, last, found = experiment.seed, experiment.seed + experiment.seeds - 1, list[str]()
    for policy in policies:
        trained_on = load(policy).trained_on
        if trained_on and first < trained_on.stop and last >= trained_on.start:
            found.append(
                f"{policy} was trained on workers drawn from the seeds {trained_on.start:,} to {trained_on[-1]:,}, and "
                f"seeds of this run ({first:,} to {last:,}) are among them: it may know these workers. Compare it on "
                f"seeds from {SPLITS['test'].start:,} on (--seed {SPLITS['test'].start}), which no training has."
            )
    return found


def about_policy(policy: str) -> Note:
    """What there is to say of a policy: its name, its env, learner or oracle or baseline, whose it is, and its card."""
    who, own = Competitor.of(policy), policy.partition(":")[0] not in PRESETS
    return {"name": policy, "env": who.env, "kind": who.kind, "own": own, "card": policy_card(policy).to_data()}
