#!/usr/bin/env bash
# pandas 3.1.1
#
# read_json makes dates of numbers by the name of their column (it ends in _at or _time, begins with timestamp, or is modified
# or date) and by their size: durations in nanoseconds in a column comm_time are dates in 1982 once they are larger than
# 31,536,000, and whole numbers below it. And .1234567890123456 comes back as another number, unlike from Python's json or
# from read_csv. It concerns logs of steps kept as JSON: give dtype=False, or read them with json.
. "$(dirname "$0")/fresh.bash"
install pandas==3.1.1 numpy==2.4.6

expect "30,000,000 ns: comm_time int64, compute int64
400,000,000 ns: comm_time datetime64[us], compute int64, first 1982-09-04 15:06:40
written 0.1234567890123456, read 0.12345678901234501, by json 0.1234567890123456
with dtype=False: comm_time int64" <<'PY'
import io
import json

import pandas as pd


def read(records, **options):
    return pd.read_json(io.StringIO(json.dumps(records)), **options)


def types(frame):
    return f"comm_time {frame.comm_time.dtype}, compute {frame.compute.dtype}"


short, long = ([{"comm_time": time, "compute": time}] for time in (30_000_000, 400_000_000))
print(f"30,000,000 ns: {types(read(short))}")
print(f"400,000,000 ns: {types(read(long))}, first {read(long).comm_time[0]}")
text = '[{"duration": 0.1234567890123456}]'
print(f"written 0.1234567890123456, read {pd.read_json(io.StringIO(text)).duration[0]}", end=", ")
print(f"by json {json.loads(text)[0]['duration']}")
print(f"with dtype=False: comm_time {read(long, dtype=False).comm_time.dtype}")
PY
