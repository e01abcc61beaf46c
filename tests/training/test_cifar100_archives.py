import bz2
import io
import os
import pickle
import struct
import tarfile
import tracemalloc
from functools import partial

import numpy as np
import pytest
import torch

from ata_gym.training import make_problem
from ata_gym.training.problems.cifar100_archives import read_archive

SIZES = {"train": 7, "test": 3}
RNG = np.random.default_rng(0)
PIXELS = {which: RNG.integers(0, 256, (size, 3072), np.uint8) for which, size in SIZES.items()}
LABELS = {which: RNG.integers(0, 100, size) for which, size in SIZES.items()}


class Python2(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, in which the published archive is."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, text):
        self.write(pickle.BINSTRING + struct.pack("<i", len(text)) + text)
        self.memoize(text)

    dispatch[bytes] = save_bytes


def content(which, **changes):
    parts = {
        b"filenames": [b"a.png"] * SIZES[which],
        b"batch_label": b"training batch",
        b"fine_labels": LABELS[which].tolist(),
        b"coarse_labels": [0] * SIZES[which],
        b"data": PIXELS[which],
    }
    return parts | {name.encode(): part for name, part in changes.items()}


def as_python2(parts):
    file = io.BytesIO()
    Python2(file, protocol=2).dump(parts)
    return file.getvalue().replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")


def as_python3(parts):
    return pickle.dumps({name.decode(): part for name, part in parts.items()}, protocol=2)


def binary(which, labels=None):
    fine = LABELS[which] if labels is None else labels
    columns = np.zeros((SIZES[which], 1), np.uint8), fine[:, None].astype(np.uint8), PIXELS[which]
    return np.concatenate(columns, axis=1).tobytes()


def as_protocol(protocol, change):
    """The python version as Python 3 writes it, with some parts in another form."""
    return {which: pickle.dumps(content(which, **change(which)), protocol=protocol) for which in SIZES}


VERSIONS = {
    "python": lambda: {which: as_python2(content(which)) for which in SIZES} | {"meta": b"not read"},
    "newer python": lambda: {which: as_python3(content(which)) for which in SIZES},
    "protocol 4": lambda: {which: pickle.dumps(content(which), protocol=4) for which in SIZES},
    **{
        f"{kind}, protocol {protocol}": partial(as_protocol, protocol, change)
        for protocol in range(6)
        for kind, change in {
            "plain": lambda _: {},
            "labels as an array": lambda which: {"fine_labels": LABELS[which].astype(">i4")},
            "labels as numbers of NumPy": lambda which: {"fine_labels": list(LABELS[which])},
            "images by columns": lambda which: {"data": np.asfortranarray(PIXELS[which])},
            "bytes that may be written": lambda which: {
                "data": np.frombuffer(bytearray(PIXELS[which]), np.uint8).reshape(-1, 3072)
            },
        }.items()
    },
    "binary": lambda: {f"{which}.bin": binary(which) for which in SIZES} | {"fine_label_names.txt": b"apple"},
}


def packed(tmp_path, files):
    path = tmp_path / "cifar-100.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def extracted(tmp_path, files):
    folder = tmp_path / "cifar-100"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("write", [packed, extracted])
@pytest.mark.parametrize("version", VERSIONS)
def test_both_versions_packed_and_extracted(tmp_path, version, write):
    parts = read_archive(write(tmp_path, VERSIONS[version]()))
    for which, size in SIZES.items():
        images = parts[f"{which}_x"]
        assert images.shape == (size, 32, 32, 3)
        for (row, column, channel), flat in (((0, 0, 0), 0), ((0, 1, 0), 1), ((1, 0, 0), 32), ((0, 0, 2), 2048)):
            assert images[2, row, column, channel] == PIXELS[which][2, flat]
        np.testing.assert_array_equal(parts[f"{which}_y"], LABELS[which])


@pytest.mark.parametrize("write", [packed, extracted])
def test_the_problem_reads_them(tmp_path, write):
    problem = make_problem("cifar100", write(tmp_path, VERSIONS["python"]()))
    assert torch.equal(problem._train.inputs.reshape(-1, 3072), torch.from_numpy(PIXELS["train"]))
    assert problem._test.labels.tolist() == LABELS["test"].tolist()


class Malicious:
    def __init__(self, call, *arguments):
        self.parts = call, arguments

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize(
    "part",
    [
        Malicious(os.mkdir, "ran"),
        Malicious(eval, "open('ran', 'w')"),
        Malicious(np.ctypeslib.load_library, "ran", "."),
        np.array([Malicious(os.mkdir, "ran")], object),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_no_code_is_run(tmp_path, monkeypatch, part, protocol):
    monkeypatch.chdir(tmp_path)
    files = VERSIONS["python"]() | {"test": pickle.dumps(content("test", data=part), protocol=protocol)}
    folder = extracted(tmp_path, files)
    with pytest.raises(ValueError, match="test is no pickle of plain arrays: it names"):
        read_archive(folder)
    assert not (tmp_path / "ran").exists()


def test_what_a_pickle_writes_into_its_classes_stays_there():
    # GLOBAL numpy.ndarray, then BUILD with (None, {"__setstate__": 1}): it sets an attribute of the class
    state = pickle.dumps((None, {"__setstate__": 1}), protocol=2)[2:-1]
    poison = b"\x80\x02cnumpy\nndarray\n" + state + b"b."
    with pytest.raises(ValueError, match="no pickle of plain arrays"):
        read_archive_of(poison)
    assert len(read_archive_of(as_python2(content("test")))["test_x"]) == SIZES["test"]


def read_archive_of(test):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        return read_archive(extracted(Path(folder), VERSIONS["python"]() | {"test": test}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"data": PIXELS["test"][:, 1:]},
            r"test is no pickle.*must be bytes, 3072 for each, not uint8 \(3, 3071\)",
        ),
        ({"data": PIXELS["test"].astype(float)}, "must be of whole numbers, not 'f8'"),
        ({"data": PIXELS["test"].astype(int)}, "must be bytes, 3072 for each, not int64"),
        ({"fine_labels": LABELS["test"].astype(float)}, "must be of whole numbers, not 'f8'"),
        ({"data": [1, 2, 3]}, "no pickle of plain arrays"),
        ({"data": PIXELS["train"]}, r"test_y must be whole numbers of shape \(7,\)"),
        ({"fine_labels": [1, 2, 100]}, r"classes in test_y must lie in 0\.\.99"),
        ({"fine_labels": [1.0, 2.0, 3.0]}, "test_y must be whole numbers"),
    ],
)
def test_wrong_pickles(tmp_path, changes, sentence):
    files = VERSIONS["python"]() | {"test": as_python2(content("test", **changes))}
    with pytest.raises(ValueError, match=sentence):
        make_problem("cifar100", extracted(tmp_path, files))


def test_a_bytearray_is_as_long_as_its_file_says_at_most():
    longer = pickle.PROTO + b"\x05" + pickle.BYTEARRAY8 + struct.pack("<Q", 2**62) + b"abc."
    tracemalloc.start()
    with pytest.raises(ValueError, match="no pickle of plain arrays"):
        read_archive_of(longer)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**29


def test_wrong_records(tmp_path):
    folder = extracted(tmp_path, VERSIONS["binary"]())
    (folder / "test.bin").write_bytes(binary("test", np.array([1, 2, 100])))
    with pytest.raises(ValueError, match=r"classes in test_y must lie in 0\.\.99"):
        make_problem("cifar100", folder)
    for data in (binary("test")[:-1], b""):
        (folder / "test.bin").write_bytes(data)
        with pytest.raises(ValueError, match=r"cifar-100: test must be records of 3074 bytes, but has \d+ bytes"):
            read_archive(folder)
    (folder / "test.bin").unlink()
    with pytest.raises(ValueError, match=r"must hold a file test \(the python version\) or test.bin"):
        read_archive(folder)


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.9])
def test_truncated_archives(tmp_path, kept):
    path = packed(tmp_path, VERSIONS["python"]())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(ValueError, match="cannot be read as an archive of CIFAR-100"):
        make_problem("cifar100", path)


@pytest.mark.parametrize("lost", [1, 100, 9000])
def test_truncated_pickles(tmp_path, lost):
    files = VERSIONS["python"]()
    with pytest.raises(ValueError, match=r"test (is no pickle|has no)"):
        read_archive(extracted(tmp_path, files | {"test": files["test"][:-lost]}))


def linked(tmp_path, links):
    path = tmp_path / "linked.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, (kind, target) in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
    return path


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("links", [{"train": "test", "test": "train"}, {"train": "train"}, {"train": "nowhere"}])
def test_links_that_lead_to_no_file_are_refused(tmp_path, kind, links):
    with pytest.raises(ValueError, match="cannot be read as an archive of CIFAR-100"):
        read_archive(linked(tmp_path, {name: (kind, target) for name, target in links.items()}))


def npz(tmp_path, **changes):
    parts = {f"{which}_x": PIXELS[which].reshape(-1, 32, 32, 3) for which in SIZES}
    parts |= {f"{which}_y": LABELS[which] for which in SIZES}
    np.savez(tmp_path / "images.npz", **(parts | changes))
    return tmp_path / "images.npz"


@pytest.mark.parametrize("part", ["train_x", "train_y"])
def test_an_array_without_dimensions_is_refused(tmp_path, part):
    with pytest.raises(ValueError, match=rf"{part} must be .*\(\)"):
        make_problem("cifar100", npz(tmp_path, **{part: np.uint8(3)}))


@pytest.mark.parametrize(
    ("at", "value"), [(6, 1), (8, 99)]
)  # the flags of a zip member: encrypted; its method: unknown
def test_an_encrypted_or_oddly_compressed_archive_is_refused(tmp_path, at, value):
    path = npz(tmp_path)
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\3\4", at), (b"PK\1\2", at + 2)):
        place = -1
        while (place := content.find(signature, place + 1)) >= 0:
            content[place + offset] = value
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read as an archive of CIFAR-100"):
        make_problem("cifar100", path)


def a_sparse_member(tmp_path, size):
    """A tar whose member ``train`` says that it is zeros, which are not stored (the old GNU format)."""
    path = tmp_path / "sparse.tar"
    entry = tarfile.TarInfo("train")
    header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path.write_bytes(bytes(header) + bytes(1024))
    return path


def a_bomb(tmp_path, size):
    """A file of zeros, packed, whose header says that they are the file ``train``."""
    path = tmp_path / "bomb.tar.bz2"
    entry = tarfile.TarInfo("train")
    entry.size = size
    packer = bz2.BZ2Compressor()
    path.write_bytes(packer.compress(entry.tobuf()) + packer.compress(bytes(size)) + packer.flush())
    return path


def a_long_header(tmp_path, size):
    """The same for an extended header, which is read before anything else."""
    path = tmp_path / "header.tar.bz2"
    entry = tarfile.TarInfo("train")
    entry.type, entry.size = tarfile.XHDTYPE, size
    packer = bz2.BZ2Compressor()
    path.write_bytes(packer.compress(entry.tobuf()) + packer.compress(bytes(size)) + packer.flush())
    return path


def a_bomb_of_arrays(tmp_path, size):
    parts = {f"{which}_{what}": np.uint8(0) for which in SIZES for what in "xy"}
    np.savez_compressed(tmp_path / "bomb.npz", **parts | {"train_x": np.zeros(size, np.uint8)})
    return tmp_path / "bomb.npz"


@pytest.mark.parametrize("write", [a_sparse_member, a_bomb, a_long_header, a_bomb_of_arrays])
def test_what_unpacks_to_more_than_the_images_is_refused(tmp_path, write):
    path = write(tmp_path, 2**28 + 512)
    assert path.stat().st_size < 2**20
    with pytest.raises(ValueError, match="unpacks to"):
        make_problem("cifar100", path)


def test_an_archive_of_many_members_is_not_read_to_its_end(tmp_path):
    files = {f"other-{k}": b"" for k in range(1001)} | VERSIONS["binary"]()
    with pytest.raises(ValueError, match="must hold a file train"):
        read_archive(packed(tmp_path, files))


def test_a_pickle_takes_no_memory_for_what_it_only_names():
    places = b"".join(b"r" + struct.pack("<I", 2**k) for k in range(20, 28))  # put into the memo, at far places
    endless = []
    for _ in range(12):
        endless = [endless] * 60
    for test in (b"\x80\x02}" + places + b".", pickle.dumps(content("test", fine_labels=endless))):
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"has no|must be numbers"):
            read_archive_of(test)
        assert tracemalloc.get_traced_memory()[1] < 2**29
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"root:x:0:0:root:/root:/bin/sh\n", b"", pickle.dumps([1]), b"PK"])
def test_another_file_is_refused_without_numpys_advice(tmp_path, content):
    path = tmp_path / "passwd"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"archive of CIFAR-100 or an npz file of plain arrays: .") as caught:
        make_problem("cifar100", path)
    assert "pickle" not in str(caught.value)
    with pytest.raises(ValueError, match="it holds Python objects"):
        make_problem("cifar100", npz(tmp_path, train_x=np.array([{}])))
