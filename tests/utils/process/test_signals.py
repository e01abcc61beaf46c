import ctypes
import os
import signal
import subprocess
import sys
import threading

import numba
import pytest

from ata_gym.typing import Floats
from ata_gym.utils.compiled import kernel
from ata_gym.utils.process.signals import (
    TerminatedError,
    handlers_kept,
    postponed,
    quiet_start,
    raising,
    stop_requested,
)


@pytest.fixture
def ctrl_c_is():
    return signal.default_int_handler


@pytest.fixture(autouse=True)
def _usual_handlers(monkeypatch, ctrl_c_is):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "ata_gym"])
    signal.signal(signal.SIGINT, ctrl_c_is)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with quiet_start(), raising():
        yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TerminatedError)],
)
def test_a_signal_is_held_back_until_the_end_of_the_block(number, error):
    callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), number))
    events = []

    def run(block):
        with block() as stop:
            events.append(stop and stop())
            callback()
            events.append(stop and stop())

    for block, expected in ((stop_requested, [False, True]), (postponed, [None, None])):
        events.clear()
        with pytest.raises(error) as raised:
            run(block)
        assert type(raised.value) is error
        assert events == expected
        with pytest.raises(error):
            os.kill(os.getpid(), number)  # held back no longer


@pytest.mark.parametrize("ctrl_c_is", [signal.SIG_IGN])
def test_where_ctrl_c_is_ignored_it_stays_so_and_sigterm_is_heard():
    events = []

    def run():
        with stop_requested() as stop:
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
                events.append(stop())

    with pytest.raises(TerminatedError):
        run()
    assert events == [False, True]


def test_a_signal_while_a_kernel_is_compiled_is_raised_when_it_is_ready(monkeypatch):
    guvectorize = numba.guvectorize
    count = []

    def interrupted(*args, **options):
        count.append(os.kill(os.getpid(), signal.SIGINT))
        return guvectorize(*args, **options)

    @kernel("(n)->()")
    def total(x: Floats, out: Floats):
        out[0] = x.sum()

    monkeypatch.setattr(numba, "guvectorize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        total([1.0, 2.0])
    assert (total([1.0, 2.0]), len(count)) == (3.0, 1)


@pytest.mark.parametrize(("times", "error"), [(1, ZeroDivisionError), (2, KeyboardInterrupt)])
def test_a_second_signal_is_raised_at_once_and_an_error_inside_the_block_is_not_hidden(
    times,
    error,
):
    def run():
        with stop_requested():
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(error):
        run()


def test_an_interrupt_of_which_other_code_makes_another_error_is_raised_all_the_same():
    class Interrupted:
        def __set_name__(self, owner, name):
            os.kill(os.getpid(), signal.SIGTERM)

    def run():
        with raising():
            type("Made", (), {"one": Interrupted()})  # before Python 3.12 it raises a RuntimeError

    def suppressed():
        with raising():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ZeroDivisionError from None

    for interrupted, error in ((run, TerminatedError), (suppressed, KeyboardInterrupt)):
        with pytest.raises(error) as raised:
            interrupted()
        assert type(raised.value) is error


def test_a_library_does_not_take_the_handlers_and_is_not_interrupted():
    def library(events):
        with handlers_kept():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: sys.exit(1))
            os.kill(os.getpid(), signal.SIGTERM)
            events.append("done")

    events = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(TerminatedError):
        library(events)
    assert events == ["done"]
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    with pytest.raises(TerminatedError):
        signal.raise_signal(signal.SIGTERM)


ALARM = """
import signal, sys
from ata_gym.utils.process.signals import alarms_cancelled
if sys.argv[1] == "before":
    signal.setitimer(signal.ITIMER_REAL, 60.0)
with alarms_cancelled():
    if sys.argv[1] == "inside":
        signal.setitimer(signal.ITIMER_REAL, 3.0)
        while signal.getitimer(signal.ITIMER_REAL)[0]:
            pass
print(signal.getitimer(signal.ITIMER_REAL)[0] > 0)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs the timers of POSIX")
@pytest.mark.parametrize(("time", "output"), [("inside", "False\n"), ("before", "True\n")])
def test_an_alarm_that_is_set_inside_the_block_does_not_end_the_process(time, output):
    done = subprocess.run(
        [sys.executable, "-c", ALARM, time],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, output)


def test_another_thread_gets_no_signals_and_a_handler_of_the_user_is_left_alone():
    def handler(number, frame):
        pass

    def run():
        with stop_requested() as stop, postponed():
            events.append(stop())

    events = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert events == [False]
    signal.signal(signal.SIGTERM, handler)
    with stop_requested():
        assert signal.getsignal(signal.SIGTERM) is handler
