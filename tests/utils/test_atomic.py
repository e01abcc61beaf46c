import pytest

from ata_gym.utils.atomic import write_whole


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(part):
        part.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(path, fail)
    assert path.read_text() == "old"
    write_whole(path, lambda part: part.write_text("new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
