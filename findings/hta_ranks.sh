#!/usr/bin/env bash
# holistictraceanalysis 0.5.0, pandas 3.1.1
#
# It looks for the rank of a trace as text, with a blank behind the colon, on one line. In JSON without blanks, which other tools
# write when they shorten or filter a trace, it finds none: every file becomes rank 0, and of a folder of ranks one is left. The
# first such text of the file counts, so that an event before distributedInfo with an argument "rank" renames the process. And
# of the files of one rank, such as the cycles of a profiler's schedule, one is read. Warnings go to the log; the tables that
# follow look complete. It concerns whoever compares ranks: count the ranks of the result, and write traces with blanks.
. "$(dirname "$0")/fresh.bash"
install holistictraceanalysis==0.5.0 pandas==3.1.1

expect "with blanks: ranks [0, 1, 2, 3] of 4 files
without blanks: ranks [0] of 4 files
the argument of an event comes first: ranks [7] of 4 files
two cycles: ranks [0, 1, 2, 3] of 8 files" <<'PY'
import json
import logging
import tempfile
from pathlib import Path

logging.disable(logging.CRITICAL)

from hta.common.trace_file import get_trace_files


def trace(own_rank, **event_arguments):
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 9}
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5}
    return {
        "traceEvents": [step, event | {"args": event_arguments}],
        "distributedInfo": {"backend": "gloo", "rank": own_rank, "world_size": 4},
    }


def ranks(title, traces, **layout):
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(traces):
            path = Path(folder, f"host_{number}.pt.trace.json")
            path.write_text(json.dumps(content, **layout))
        print(f"{title}: ranks {sorted(get_trace_files(folder))} of {len(traces)} files")


ranks("with blanks", [trace(rank) for rank in range(4)], indent=2)
ranks("without blanks", [trace(rank) for rank in range(4)], separators=(",", ":"))
named = [trace(rank, rank=7) for rank in range(4)]
ranks("the argument of an event comes first", named, indent=2)
ranks("two cycles", [trace(rank % 4) for rank in range(8)], indent=2)
PY
