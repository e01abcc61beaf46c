import os
import signal
import threading

import pytest

from ata_gym.utils.signals import TerminatedError, raising, stop_requested


@pytest.fixture(autouse=True)
def _usual_handlers():
    """Those of a command."""
    before = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with raising():
        yield
    for which, handler in before.items():
        signal.signal(which, handler)


@pytest.mark.parametrize(("which", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TerminatedError)])
def test_a_signal_is_held_back_until_the_end_of_the_block(which, error):
    saved = []

    def run():
        with stop_requested() as stop:
            assert not stop()
            os.kill(os.getpid(), which)
            assert stop()
            saved.append(True)

    with pytest.raises(error) as raised:
        run()
    assert type(raised.value) is error
    assert saved
    with pytest.raises(error):
        os.kill(os.getpid(), which)  # held back no longer


def ctrl_c(times):
    with stop_requested():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        raise ZeroDivisionError


def test_a_second_signal_is_raised_at_once():
    with pytest.raises(KeyboardInterrupt):
        ctrl_c(2)


def test_an_error_inside_the_block_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        ctrl_c(1)


def test_another_thread_gets_no_signals():
    heard = []

    def run():
        with stop_requested() as stop:
            heard.append(stop())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert heard == [False]


def test_a_handler_of_the_user_is_left_alone():
    def handler(which, frame):
        pass

    signal.signal(signal.SIGTERM, handler)
    with stop_requested():
        assert signal.getsignal(signal.SIGTERM) is handler
