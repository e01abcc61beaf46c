#!/usr/bin/env bash
# tensorboard 2.21.0, torch 2.13.0
#
# Scalars are kept in single precision: a moment in seconds since 1970 is off by up to 64 seconds, and two moments half a
# minute apart come back equal; a count of tasks or samples is exact up to 16,777,216 only. add_scalar takes 64 bits without a
# word, and its new_style=True alone changes nothing; only new_style=True with double_precision=True keeps them. It concerns
# who reads durations of steps, or totals of a long job, out of event files.
. "$(dirname "$0")/fresh.bash"
install tensorboard==2.21.0 torch==2.13.0 numpy==2.4.6 setuptools==80.9.0

expect "moments read: 1764291584 1764291584, written: 1764291600 1764291630
count read: 16777216, written: 16777217
new style: 16777216, with double precision: 16777217" <<'PY'
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from torch.utils.tensorboard import SummaryWriter

moments, count = (1764291600.0, 1764291630.0), 16777217
with SummaryWriter("logs") as writer:
    for step, moment in enumerate(moments):
        writer.add_scalar("moment", moment, step)
    writer.add_scalar("count", count, 0)
    writer.add_scalar("new", count, 0, new_style=True)
    writer.add_scalar("double", count, 0, new_style=True, double_precision=True)
events = EventAccumulator("logs")
events.Reload()
read = [f"{scalar.value:.0f}" for scalar in events.Scalars("moment")]
print("moments read:", *read, end=", written: ")
print(*(f"{moment:.0f}" for moment in moments))
print(f"count read: {events.Scalars('count')[0].value:.0f}, written: {count}")
new, double = (make_ndarray(events.Tensors(name)[0].tensor_proto) for name in ("new", "double"))
print(f"new style: {new:.0f}, with double precision: {double:.0f}")
PY
