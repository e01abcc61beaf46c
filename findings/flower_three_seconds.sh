#!/usr/bin/env bash
# flwr 1.42.0
#
# In a deployment, the server asks for the replies of a round, and sleeps for three seconds until it asks again: a round takes
# 0, 3, 6, ... seconds and what is between is lost, where the simulation asks ten times a second. No setting changes it. Clients that
# need 0.4 s and clients that need 1.1 s have rounds of the same length, and what a faster strategy saves is seen in the
# simulation and not in the deployment. It concerns whoever measures strategies there: take the times in the clients, make
# rounds long against three seconds, or call push_messages and pull_messages in a loop of one's own.
. "$(dirname "$0")/fresh.bash"
install flwr==1.42.0

expect "deployment: replies after 0.4 s, a round of 3 s
deployment: replies after 1.1 s, a round of 3 s
simulation: replies after 0.4 s, a round of less than 1 s" <<'PY'
import os
import time

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

from types import SimpleNamespace

from flwr.superlink.grid import InMemoryGrid
from flwr.superlink.grid.http_grid import HttpGrid


def round_of(kind, seconds):
    """How long the library's own loop takes where the reply is there after some seconds."""
    grid = object.__new__(kind)
    grid.pull_interval = 0.1  # the default of InMemoryGrid; HttpGrid has no such argument
    began = time.monotonic()
    reply = SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id="1"))
    grid.push_messages = lambda messages: ["1"]
    grid.pull_messages = lambda ids: [reply] * (time.monotonic() - began > seconds)
    assert grid.send_and_receive([None], timeout=60) == [reply]
    return time.monotonic() - began


for seconds in (0.4, 1.1):
    print(f"deployment: replies after {seconds} s, a round of {int(round_of(HttpGrid, seconds))} s")
assert round_of(InMemoryGrid, 0.4) < 1
print("simulation: replies after 0.4 s, a round of less than 1 s")
PY
