"""CIFAR-100: the paper's network, npz files, and the archives as they are published."""

import gzip
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
import torch

from ata_gym.training import Trainer, make_problem
from ata_gym.training.problems import cifar100
from ata_gym.training.problems.cifar100 import read_images


def parts(train=6, test=4):
    rng = np.random.default_rng(0)
    return {
        "train_x": rng.integers(0, 256, (train, 32, 32, 3), np.uint8),
        "train_y": rng.integers(0, 100, train, np.uint8),
        "test_x": rng.integers(0, 256, (test, 32, 32, 3), np.uint8),
        "test_y": rng.integers(0, 100, test, np.uint8),
    }


def written(tmp_path, **changes):
    path = tmp_path / "images.npz"
    np.savez(path, allow_pickle=True, **{name: x for name, x in (parts() | changes).items() if x is not None})
    return path


def test_the_network_is_the_papers(tmp_path):
    problem = make_problem("cifar100", written(tmp_path))
    model = problem.build()
    assert sum(p.numel() for p in model.parameters()) == 167_684
    assert dict(problem.learning_rates)["adam"] == 8e-5
    assert next(iter(problem.learning_rates)) == "adam"
    assert problem.loss(model, problem.draw(np.arange(5, dtype=np.uint64))).shape == (5,)


def test_pixels_are_normalised_as_in_the_paper(tmp_path):
    problem = make_problem("cifar100", written(tmp_path))
    pixels = problem._train.inputs
    expected = (pixels / 255 - 0.5) / 0.5
    torch.testing.assert_close(problem._transform(pixels), expected)
    image = parts()["train_x"][2]
    assert torch.equal(pixels[2], torch.from_numpy(image).permute(2, 0, 1))  # channels, rows, columns
    assert pixels.dtype == torch.uint8


def test_real_images_begin_at_the_loss_of_guessing(shared_data):
    trainer = Trainer(make_problem("cifar100", shared_data / "cifar100_sub_50x15.npz"), 23)
    assert trainer.evaluate()["test_loss"] == pytest.approx(np.log(100), rel=0.01)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"test_y": None}, "must hold train_x, train_y, test_x, test_y, but has only: train_x, train_y, test_x$"),
        ({"train_x": np.zeros((6, 32, 32), np.uint8)}, r"train_x must be uint8 of shape \(N, 32, 32, 3\)"),
        ({"train_x": np.zeros((6, 32, 32, 3))}, "train_x must be uint8"),
        ({"train_x": np.array(3, np.uint8)}, r"train_x must be uint8 of shape .* not uint8 \(\)"),
        ({"train_x": np.array([{}])}, "it holds Python objects"),
        ({"train_y": np.array(3)}, "train_y must be whole numbers of shape"),
        ({"train_y": np.zeros(5, np.uint8)}, r"train_y must be whole numbers of shape \(6,\)"),
        ({"train_y": np.zeros(6)}, "train_y must be whole numbers"),
        ({"test_y": np.array([0, 1, 2, 100])}, r"classes in test_y must lie in 0\.\.99"),
        ({"test_y": np.array([0, 1, 2, -1])}, r"classes in test_y must lie in 0\.\.99"),
    ],
)
def test_bad_files(tmp_path, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_problem("cifar100", written(tmp_path, **changes))


def test_unreadable_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        make_problem("cifar100", tmp_path / "none.npz")
    whole = written(tmp_path).read_bytes()
    encrypted, odd = bytearray(whole), bytearray(whole)
    for header, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # flags, then the method of compression
        encrypted[whole.index(header) + offset] |= 1
        odd[whole.index(header) + offset + 2] = 99
    for content in (b"", b"no archive", whole[: len(whole) // 2], bytes(encrypted), bytes(odd)):
        (tmp_path / "broken.npz").write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read as an archive"):
            make_problem("cifar100", tmp_path / "broken.npz")


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
        b"fine_labels": LABELS[which].tolist(),
        b"coarse_labels": [0] * SIZES[which],
        b"data": PIXELS[which],
    }
    return parts | {name.encode(): part for name, part in changes.items()}


def as_python2(parts):
    file = io.BytesIO()
    Python2(file, protocol=2).dump(parts)
    return file.getvalue().replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")


def as_python3(protocol, **change):
    """The python version as Python 3 writes it, with texts as names and with some parts in another form."""
    contents = {which: content(which, **{name: form(which) for name, form in change.items()}) for which in SIZES}
    return {
        which: pickle.dumps({name.decode(): part for name, part in parts.items()}, protocol=protocol)
        for which, parts in contents.items()
    }


def binary(which, labels=None):
    fine = LABELS[which] if labels is None else labels
    columns = np.zeros((SIZES[which], 1), np.uint8), fine[:, None].astype(np.uint8), PIXELS[which]
    return np.concatenate(columns, axis=1).tobytes()


def published():
    return {which: as_python2(content(which)) for which in SIZES} | {"meta": b"not read"}


def binaries():
    return {f"{which}.bin": binary(which) for which in SIZES} | {"fine_label_names.txt": b"apple"}


FORMS = {
    "plain": {},
    "labels as an array": {"fine_labels": lambda which: LABELS[which].astype(">i4")},
    "labels as numbers of NumPy": {"fine_labels": lambda which: list(LABELS[which])},
    "images by columns": {"data": lambda which: np.asfortranarray(PIXELS[which])},
    "bytes that may be written": {
        "data": lambda which: np.frombuffer(bytearray(PIXELS[which]), np.uint8).reshape(-1, 3072)
    },
}
VERSIONS = {
    "published": published,
    "binary": binaries,
    **{
        f"{name}, protocol {protocol}": lambda protocol=protocol, form=form: as_python3(protocol, **form)
        for protocol, (name, form) in [*zip((0, 2, 3, 4, 5), FORMS.items(), strict=True), (1, ("plain", {}))]
    },
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


@pytest.mark.parametrize("version", VERSIONS)
def test_both_versions_packed_and_extracted(tmp_path, version):
    for write in (packed, extracted):
        parts = read_images(write(tmp_path, VERSIONS[version]()))
        for which, size in SIZES.items():
            images = parts[f"{which}_x"]
            assert images.shape == (size, 32, 32, 3)
            for (row, column, channel), flat in (((0, 0, 0), 0), ((0, 1, 0), 1), ((1, 0, 0), 32), ((0, 0, 2), 2048)):
                assert images[2, row, column, channel] == PIXELS[which][2, flat]
            np.testing.assert_array_equal(parts[f"{which}_y"], LABELS[which])


def test_the_problem_reads_them(tmp_path):
    problem = make_problem("cifar100", packed(tmp_path, published()))
    assert torch.equal(problem._train.inputs.reshape(-1, 3072), torch.from_numpy(PIXELS["train"]))
    assert problem._test.labels.tolist() == LABELS["test"].tolist()


class Malicious:
    def __init__(self, call, *arguments):
        self.parts = call, arguments

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("part", [Malicious(os.mkdir, "ran"), np.array([Malicious(eval, "open('ran', 'w')")], object)])
@pytest.mark.parametrize("protocol", [2, 5])
def test_no_code_is_run(tmp_path, monkeypatch, part, protocol):
    monkeypatch.chdir(tmp_path)
    files = published() | {"test": pickle.dumps(content("test", data=part), protocol=protocol)}
    with pytest.raises(ValueError, match=r"test is no pickle of plain arrays: it names \w+\.(mkdir|eval),"):
        read_images(extracted(tmp_path, files))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", [b"numpy\nndarray", b"numpy._core.numeric\n_frombuffer", b"_codecs\nencode"])
def test_a_pickle_changes_nothing_that_it_names(tmp_path, name):
    """It names an object, and then sets an attribute of it."""
    state = pickle.dumps((None, {"__defaults__": (1,)}), protocol=2)[2:-1]
    files = published()
    with pytest.raises(ValueError, match="no pickle of plain arrays"):
        read_images(extracted(tmp_path, files | {"test": b"\x80\x02c" + name + b"\n" + state + b"b."}))
    assert np._core.numeric._frombuffer.__defaults__ != (1,)
    assert len(read_images(packed(tmp_path, files))["test_x"]) == SIZES["test"]


ENDLESS = []
for _ in range(12):
    ENDLESS = [ENDLESS] * 60


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": PIXELS["test"][:, 1:]}, "test must hold an array with 3072 bytes for each image"),
        ({"data": PIXELS["test"].astype(float)}, "with 3072 bytes for each"),
        ({"data": np.uint8(3)}, "with 3072 bytes for each"),
        ({"data": [1, 2, 3]}, "with 3072 bytes for each"),
        ({"fine_labels": LABELS["test"].astype(float)}, "test_y must be whole numbers"),
        ({"data": PIXELS["train"]}, r"test_y must be whole numbers of shape \(7,\)"),
        ({"fine_labels": [1, 2, 100]}, r"classes in test_y must lie in 0\.\.99"),
        ({"fine_labels": [1.0, 2.0, 3.0]}, "is no pickle of plain arrays: 'float' object"),
        ({"fine_labels": ENDLESS}, "is no pickle of plain arrays: 'list' object"),
        (published()["test"][:-1], "test is no pickle"),
        (published()["test"][:-9000], "test is no pickle"),
        (pickle.dumps({"data": PIXELS["test"]}), "test has no 'fine_labels'"),
    ],
)
def test_wrong_pickles(tmp_path, change, sentence):
    test = change if isinstance(change, bytes) else as_python2(content("test", **change))
    with pytest.raises(ValueError, match=sentence):
        make_problem("cifar100", extracted(tmp_path, published() | {"test": test}))


def test_wrong_records(tmp_path):
    folder = extracted(tmp_path, binaries())
    for data in (binary("test")[:-1], b""):
        (folder / "test.bin").write_bytes(data)
        with pytest.raises(ValueError, match=r"cifar-100: test must be records of 3074 bytes, but has \d+ bytes"):
            read_images(folder)
    (folder / "test.bin").unlink()
    with pytest.raises(ValueError, match=r"must hold a file test \(the python version\) or test.bin"):
        read_images(folder)


def linked(tmp_path):
    """Two members that are links to each other."""
    with tarfile.open(tmp_path / "linked.tar.gz", "w:gz") as archive:
        for name, target in {"train": "test", "test": "train"}.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return tmp_path / "linked.tar.gz"


def truncated(tmp_path):
    path = packed(tmp_path, published())
    path.write_bytes(path.read_bytes()[:5000])
    return path


def other_text(tmp_path):
    (tmp_path / "passwd").write_bytes(b"root:x:0:0:root:/root:/bin/sh\n")
    return tmp_path / "passwd"


@pytest.mark.parametrize("write", [linked, truncated, other_text])
def test_what_is_no_archive(tmp_path, write):
    with pytest.raises(ValueError, match="cannot be read as an archive of CIFAR-100 or an npz file") as caught:
        make_problem("cifar100", write(tmp_path))
    assert "pickle" not in str(caught.value)


LIMIT = 2**20
TOO_MUCH = LIMIT + 512


def a_sparse_member(tmp_path):
    """A tar whose member ``train`` says that it is zeros, which are not stored (the old GNU format)."""
    path = tmp_path / "sparse.tar"
    header = bytearray(tarfile.TarInfo("train").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[483:495] = tarfile.itn(TOO_MUCH, 12, tarfile.GNU_FORMAT)
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path.write_bytes(bytes(header) + bytes(1024))
    return path


def a_bomb(tmp_path):
    """A file of zeros, packed, whose header says that they are an extended header, which is read before all else."""
    path = tmp_path / "header.tar.gz"
    entry = tarfile.TarInfo("train")
    entry.type, entry.size = tarfile.XHDTYPE, TOO_MUCH
    path.write_bytes(gzip.compress(entry.tobuf() + bytes(TOO_MUCH)))
    return path


def much_in_an_npz_file(tmp_path):
    return written(tmp_path, train_x=np.zeros(TOO_MUCH, np.uint8))


@pytest.mark.parametrize("write", [a_sparse_member, a_bomb, much_in_an_npz_file])
def test_what_unpacks_to_more_than_the_images_is_refused(tmp_path, monkeypatch, write):
    monkeypatch.setattr(cifar100, "MOST", LIMIT)
    with pytest.raises(ValueError, match=r"unpacks to (more than 1,048,576|1,0[0-9,]+) bytes"):
        make_problem("cifar100", write(tmp_path))
