import numpy as np
import pytest
import torch

from ata_gym.training import Trainer, make_problem
from ata_gym.training.problems import cifar100


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


def test_arrays_that_unpack_to_too_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar100, "MOST", 2**15)
    with pytest.raises(ValueError, match=r"it unpacks to [0-9,]+ bytes, and at most 32,768 are read"):
        make_problem("cifar100", written(tmp_path, train_x=np.zeros(2**15, np.uint8)))
