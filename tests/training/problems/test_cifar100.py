"""CIFAR-100: the paper's network, npz files, and the archives as they are published."""

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
from tests.training.small_problem import Malicious

SIZES = {"train": 7, "test": 3}
RNG = np.random.default_rng(0)
PIXELS = {which: RNG.integers(0, 256, (size, 3072), np.uint8) for which, size in SIZES.items()}
LABELS = {which: RNG.integers(0, 100, size) for which, size in SIZES.items()}


def written(tmp_path, **changes):
    images = {
        f"{which}_x": x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for which, x in PIXELS.items()
    }
    parts = images | {f"{which}_y": y for which, y in LABELS.items()} | changes
    np.savez(
        tmp_path / "images.npz",
        allow_pickle=True,
        **{name: x for name, x in parts.items() if x is not None},
    )
    return tmp_path / "images.npz"


def test_real_images_begin_at_the_loss_of_guessing(shared_data):
    trainer = Trainer(make_problem("cifar100", shared_data / "cifar100_sub_50x15.npz"), 23)
    assert trainer.evaluate()["test_loss"] == pytest.approx(np.log(100), rel=0.01)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"test_y": None},
            "must hold train_x, train_y, test_x, test_y, but has only: train_x, train_y, test_x$",
        ),
        (
            {"train_x": np.zeros((7, 32, 32), np.uint8)},
            r"train_x must be uint8 of shape \(N, 32, 32, 3\)",
        ),
        ({"train_x": np.zeros((7, 32, 32, 3))}, "train_x must be uint8"),
        ({"train_x": np.array(3, np.uint8)}, r"train_x must be uint8 of shape .* not uint8 \(\)"),
        ({"train_x": np.array([{}])}, "it holds Python objects"),
        ({"train_y": np.array(3)}, "train_y must be whole numbers of shape"),
        ({"train_y": np.zeros(5, np.uint8)}, r"train_y must be whole numbers of shape \(7,\)"),
        ({"train_y": np.zeros(7)}, "train_y must be whole numbers"),
        ({"test_y": np.array([0, 1, 100])}, r"classes in test_y must lie in 0\.\.99"),
        ({"test_y": np.array([0, 1, -1])}, r"classes in test_y must lie in 0\.\.99"),
    ],
)
def test_bad_files(tmp_path, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_problem("cifar100", written(tmp_path, **changes))


def test_unreadable_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        make_problem("cifar100", tmp_path / "none.npz")
    whole = written(tmp_path).read_bytes()
    text = b"root:x:0:0:root:/root:/bin/sh\n"
    tar = packed(tmp_path, published()).read_bytes()[:5000]
    for content in (b"", text, whole[: len(whole) // 2], tar):
        (tmp_path / "broken").write_bytes(content)
        with pytest.raises(
            ValueError,
            match="cannot be read as an archive of CIFAR-100 or an npz file",
        ) as caught:
            make_problem("cifar100", tmp_path / "broken")
        assert "pickle" not in str(caught.value)


class Python2(pickle._Pickler):
    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, text):
        self.write(pickle.BINSTRING + struct.pack("<i", len(text)) + text)
        self.memoize(text)

    dispatch[bytes] = save_bytes


def content(which, **changes):
    size = SIZES[which]
    parts = {
        "filenames": [b"a.png"] * size,
        "fine_labels": LABELS[which].tolist(),
        "coarse_labels": [0] * size,
    }
    return parts | {"data": PIXELS[which]} | changes


def as_python2(parts):
    file = io.BytesIO()
    Python2(file, protocol=2).dump({name.encode(): part for name, part in parts.items()})
    return file.getvalue().replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")


def published():
    return {which: as_python2(content(which)) for which in SIZES} | {"meta": b"not read"}


def as_python3(protocol, **change):
    contents = {
        which: content(which, **{name: form(which) for name, form in change.items()})
        for which in SIZES
    }
    return {which: pickle.dumps(parts, protocol=protocol) for which, parts in contents.items()}


def binary(which):
    columns = (
        np.zeros((SIZES[which], 1), np.uint8),
        LABELS[which][:, None].astype(np.uint8),
        PIXELS[which],
    )
    return np.concatenate(columns, axis=1).tobytes()


def binaries():
    return {f"{which}.bin": binary(which) for which in SIZES} | {"fine_label_names.txt": b"apple"}


def writable(which):
    return np.frombuffer(bytearray(PIXELS[which]), np.uint8).reshape(-1, 3072)


VERSIONS = {
    "published": published,
    "binary": binaries,
    "protocol 0": lambda: as_python3(0),
    "protocol 1": lambda: as_python3(1),
    "labels as an array": lambda: as_python3(
        2,
        fine_labels=lambda which: LABELS[which].astype(">i4"),
    ),
    "labels as numbers of NumPy": lambda: as_python3(
        3,
        fine_labels=lambda which: list(LABELS[which]),
    ),
    "images by columns": lambda: as_python3(4, data=lambda which: np.asfortranarray(PIXELS[which])),
    "bytes that may be written": lambda: as_python3(5, data=writable),
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
            for (row, column, channel), flat in (
                ((0, 0, 0), 0),
                ((0, 1, 0), 1),
                ((1, 0, 0), 32),
                ((0, 0, 2), 2048),
            ):
                assert images[2, row, column, channel] == PIXELS[which][2, flat]
            np.testing.assert_array_equal(parts[f"{which}_y"], LABELS[which])


def test_the_network_and_its_pixels_are_the_papers(tmp_path):
    problem = make_problem("cifar100", packed(tmp_path, published()))
    pixels = problem._train.inputs
    model = problem.build()
    assert torch.equal(pixels.reshape(-1, 3072), torch.from_numpy(PIXELS["train"]))
    assert problem._test.labels.tolist() == LABELS["test"].tolist()
    torch.testing.assert_close(problem._transform(pixels), (pixels / 255 - 0.5) / 0.5)
    assert sum(p.numel() for p in model.parameters()) == 167_684
    assert next(iter(problem.learning_rates.items())) == ("adam", 8e-5)
    assert problem.loss(model, problem.draw(np.arange(5, dtype=np.uint64))).shape == (5,)


@pytest.mark.parametrize(
    ("part", "protocol"),
    [(Malicious(os.mkdir, "ran"), 2), (np.array([Malicious(eval, "open('ran', 'w')")], object), 5)],
)
def test_no_code_is_run(tmp_path, monkeypatch, part, protocol):
    monkeypatch.chdir(tmp_path)
    files = published() | {"test": pickle.dumps(content("test", data=part), protocol=protocol)}
    with pytest.raises(
        ValueError,
        match=r"test is no pickle of plain arrays: it names \w+\.(mkdir|eval),",
    ):
        read_images(extracted(tmp_path, files))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name",
    [b"numpy\nndarray", b"numpy._core.numeric\n_frombuffer", b"_codecs\nencode"],
)
def test_a_pickle_changes_nothing_that_it_names(tmp_path, name):
    state = pickle.dumps((None, {"__defaults__": (1,)}), protocol=2)[2:-1]
    files = published()
    with pytest.raises(ValueError, match="no pickle of plain arrays"):
        read_images(
            extracted(tmp_path, files | {"test": b"\x80\x02c" + name + b"\n" + state + b"b."}),
        )
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
        ({"data": PIXELS["train"]}, r"test_y must be whole numbers of shape \(7,\)"),
        ({"fine_labels": [1.0, 2.0, 3.0]}, "is no pickle of plain arrays: 'float' object"),
        ({"fine_labels": ENDLESS}, "is no pickle of plain arrays: 'list' object"),
        (published()["test"][:-1], "test is no pickle"),
        (published()["test"][:-9000], "test is no pickle"),
        (pickle.dumps({"data": PIXELS["test"]}), "test has no 'fine_labels'"),
    ],
)
def test_wrong_pickles(tmp_path, change, sentence):
    if isinstance(change, bytes):
        test = change
    else:
        test = as_python2(content("test", **change))
    with pytest.raises(ValueError, match=sentence):
        make_problem("cifar100", extracted(tmp_path, published() | {"test": test}))


def test_wrong_records(tmp_path):
    folder = extracted(tmp_path, binaries())
    for data in (binary("test")[:-1], b""):
        (folder / "test.bin").write_bytes(data)
        with pytest.raises(
            ValueError,
            match=r"cifar-100: test must be records of 3074 bytes, but has \d+ bytes",
        ):
            read_images(folder)
    (folder / "test.bin").unlink()
    with pytest.raises(
        ValueError,
        match=r"must hold a file test \(the python version\) or test.bin",
    ):
        read_images(folder)


LIMIT = 2**20
TOO_MUCH = LIMIT + 512


def a_sparse_member(tmp_path):
    """A tar whose member ``train`` says that it is zeros, which are not stored (the old GNU
    format).
    """
    path = tmp_path / "sparse.tar"
    header = bytearray(tarfile.TarInfo("train").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[483:495] = tarfile.itn(TOO_MUCH, 12, tarfile.GNU_FORMAT)
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path.write_bytes(bytes(header) + bytes(1024))
    return path


@pytest.mark.parametrize(
    "write",
    [
        a_sparse_member,
        lambda tmp_path: packed(tmp_path, published() | {"meta": bytes(TOO_MUCH)}),
        lambda tmp_path: written(tmp_path, train_x=np.zeros(TOO_MUCH, np.uint8)),
    ],
    ids=["a sparse member", "an archive", "an npz file"],
)
def test_what_unpacks_to_more_than_the_images_is_refused(tmp_path, monkeypatch, write):
    monkeypatch.setattr(cifar100, "LARGEST_CONTENT", LIMIT)
    with pytest.raises(ValueError, match=r"unpacks to (more than 1,048,576|1,0[0-9,]+) bytes"):
        make_problem("cifar100", write(tmp_path))
