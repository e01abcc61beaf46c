"""JSON that is no log of steps."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ata_gym.bench.logs import peek
from ata_gym.bench.logs.refused.kind import RECORD_ROWS, RECORD_TRACES, Refused

_SETTINGS = (
    *("model_type", "architectures", "train_batch_size", "train_micro_batch_size_per_gpu"),
    *("zero_optimization", "tokenizer_class", "distributed_type"),
)
"""Keys of the settings of models (Hugging Face), and of DeepSpeed and Accelerate."""


def _is_chakra(path: Path) -> bool:
    # a large file, of which only the beginning is read
    text = peek.beginning(path)
    return bool(re.search(rb'"schema"\s*:\s*"[^"]*chakra', text)) or (
        b'"nodes"' in text and b'"ctrl_deps"' in text
    )


def _is_trainer_state(path: Path) -> bool:
    return isinstance(peek.small_object(path).get("log_history"), list)


def _is_speedscope(path: Path) -> bool:
    return b"speedscope.app/file-format-schema" in peek.beginning(path)


def _is_settings(path: Path) -> bool:
    return any(key in _SETTINGS for key in peek.small_object(path))


SETTINGS = Refused(
    "a file of settings",
    "holds no times",
    "name the log of a run",
    _is_settings,
)
"""Such as config.json, which lies beside the files of many runs."""

REFUSED = (
    Refused(
        "trainer_state.json of transformers",
        "holds the losses of rank 0, and no times of ranks",
        f"{RECORD_TRACES}, or {RECORD_ROWS}, in a TrainerCallback",
        _is_trainer_state,
    ),
    Refused(
        "a Chakra host trace (execution trace)",
        "holds the operations of a rank without when it waited",
        "name the folder of the traces that torch.profiler exported beside it",
        _is_chakra,
    ),
    Refused(
        "a profile of speedscope (py-spy)",
        "holds samples of stacks, without the steps of ranks",
        RECORD_TRACES,
        _is_speedscope,
    ),
    SETTINGS,
)
"""Kinds of JSON without times by rank and step."""


def keys_without_rows(path: Path) -> list[str]:
    """Return the keys of a JSON object that holds no rows in any form; empty for all else."""
    content = peek.small_object(path)
    if not content or _may_hold_rows(content):
        return []
    return sorted(content)


def _may_hold_rows(content: Any) -> bool:
    """Whether there is a list of several entries, or several objects with the same keys."""
    if isinstance(content, list):
        return len(content) > 1 or any(_may_hold_rows(entry) for entry in content)
    if not isinstance(content, Mapping):
        return False
    values = list(content.values())
    objects = [tuple(value) for value in values if isinstance(value, Mapping) and value]
    return len(objects) > len(set(objects)) or any(_may_hold_rows(value) for value in values)
