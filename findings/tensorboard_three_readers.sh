#!/usr/bin/env bash
# tensorboard 2.21.0, tensorboard-data-server 0.7.2, torch 2.13.0
#
# TensorBoard has three readers, which make different curves of the same files: EventAccumulator, the page with the data server
# (the default, where pip has it for the platform), and the page without (--load_fast=false).
# The data server drops from each name all steps that are not below one that comes later: where steps start anew in each epoch,
# the last epoch is left; of ranks that write one name into one folder, the last file. It says nothing. The others keep all.
# Where two ranks resume in one folder with purge_step, the mark in the second file makes EventAccumulator delete what the first
# rank, under another name, has written since it resumed. The page without the data server takes the first such mark for a
# beginning, and keeps what a single rank's purge_step says to delete. The data server reads neither mark.
# It concerns who compares the page with numbers from EventAccumulator, or two machines' pages. Let steps rise within a name,
# and give each rank and each start a folder of its own: then all three agree.
. "$(dirname "$0")/fresh.bash"
install tensorboard==2.21.0 tensorboard-data-server==0.7.2 torch==2.13.0 numpy==2.4.6 setuptools==80.9.0

expect "three epochs of steps 0 1
  EventAccumulator: 0 1 10 11 20 21
  page: 20 21
  page without the data server: 0 1 10 11 20 21
two ranks, one name, one folder
  EventAccumulator: 0 1 100 101
  page: 100 101
  page without the data server: 0 1 100 101
rank 0 of two in one folder, resumed from step 2
  EventAccumulator: 0 1
  page: 0 1 12 13
  page without the data server: 0 1
rank 1 of two in one folder, resumed from step 2
  EventAccumulator: 0 1 12 13
  page: 0 1 12 13
  page without the data server: 0 1 12 13
one rank, resumed from step 2
  EventAccumulator: 0 1 12 13
  page: 0 1 12 13
  page without the data server: 0 1 2 3 12 13
one rank, a folder for each start
  EventAccumulator: 12 13
  page: 12 13
  page without the data server: 12 13" <<'PY'
import json
import logging
import time
from urllib.parse import urlencode
from urllib.request import urlopen

from tensorboard import program
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

logging.disable(logging.WARNING)
CURVES = {
    "three epochs of steps 0 1": ("epochs", "loss"),
    "two ranks, one name, one folder": ("ranks", "loss"),
    "rank 0 of two in one folder, resumed from step 2": ("resumed", "loss of rank 0"),
    "rank 1 of two in one folder, resumed from step 2": ("resumed", "loss of rank 1"),
    "one rank, resumed from step 2": ("alone", "loss of rank 0"),
    "one rank, a folder for each start": ("second", "loss of rank 0"),
}


def write():
    with SummaryWriter("logs/epochs") as writer:
        for epoch in range(3):
            for step in range(2):
                writer.add_scalar("loss", 10 * epoch + step, step)
    for rank in range(2):
        with SummaryWriter("logs/ranks") as writer:
            for step in range(2):
                writer.add_scalar("loss", 100 * rank + step, step)
    train(("resumed", "resumed", "alone"), steps=range(4), added=0)
    time.sleep(1.1)  # files are read in the order of the second in which they were made
    train(("resumed", "resumed", "alone"), steps=range(2, 4), added=10, purge_step=2)
    train(("second",), steps=range(2, 4), added=10)


def train(folders, steps, added, **options):
    """One rank for each folder; a job of one rank has rank 0."""
    ranks = (0, 1, 0)
    writers = [SummaryWriter(f"logs/{folder}", **options) for folder in folders]
    for step in steps:
        for rank, writer in zip(ranks, writers):
            writer.add_scalar(f"loss of rank {rank}", added + step, step)
    for writer in writers:
        writer.close()


def numbers(values):
    return " ".join(f"{value:.0f}" for value in values)


def accumulated(run, name):
    events = EventAccumulator(f"logs/{run}")
    events.Reload()
    return numbers(scalar.value for scalar in events.Scalars(name))


def shown(load_fast):
    """The curves of the page, when they have not changed for two seconds."""
    server = program.TensorBoard()
    local = ["--logdir", "logs", "--host", "127.0.0.1", "--port", "0"]
    server.configure(["tensorboard", *local, "--load_fast", load_fast])
    address = server.launch() + "data/plugin/scalars/"
    before = None
    for _ in range(30):
        curves = load(address)
        if curves and curves == before:
            return curves
        before = curves
        time.sleep(2)
    raise TimeoutError("the page has not loaded")


def load(address):
    def ask(path):
        with urlopen(address + path, timeout=10) as answer:
            return json.load(answer)

    names = {(run, name) for run, names in ask("tags").items() for name in names}
    if not names.issuperset(CURVES.values()):
        return None
    points = (
        ask("scalars?" + urlencode({"run": run, "tag": name})) for run, name in CURVES.values()
    )
    return [numbers(value for _, _, value in curve) for curve in points]


write()
for (title, curve), fast, slow in zip(CURVES.items(), shown("auto"), shown("false")):
    print(title)
    print(f"  EventAccumulator: {accumulated(*curve)}")
    print(f"  page: {fast}")
    print(f"  page without the data server: {slow}")
PY
