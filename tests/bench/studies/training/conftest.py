"""What the tests of the commands that train a model share."""

import hashlib
import types

import pytest

from ata_gym.bench.report import style
from ata_gym.training import Trainer
from ata_gym.utils.files import manifest
from tests.bench.sketches import DRAW
from tests.training.conftest import _one_thread, refused  # noqa: F401


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.setattr(style, "save", DRAW)

    def check(draw):
        png, svg = draw()
        assert png.read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in svg.read_bytes()

    return check


@pytest.fixture(scope="session")
def contents():
    """A hash of each file of a folder by its name; commands and their manifest differ, locks say
    nothing.
    """

    def hashes(out):
        files = [
            file
            for file in out.rglob("*")
            if file.is_file()
            and not file.name.startswith(
                ("timings.", "about.", "report.", ".ata-gym", manifest.NAME),
            )
        ]
        return {
            str(file.relative_to(out)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
        }

    return hashes


@pytest.fixture(scope="module")
def finished(request, tmp_path_factory):
    """The folder of the test module's own ``command``, and what it printed."""
    out = tmp_path_factory.mktemp("finished") / "results"
    result = request.module.command(out)
    assert result.exit_code == 0, result.output
    return out, result


@pytest.fixture
def steps(monkeypatch):
    counter = types.SimpleNamespace(taken=0, stop_at=None)
    step = Trainer.step

    def counted(self):
        counter.taken += 1
        if counter.taken == counter.stop_at:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Trainer, "step", counted)
    return counter
