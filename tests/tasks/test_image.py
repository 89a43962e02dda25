"""Image: what is imported is what comes out, pixel by pixel."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks.data.sources import import_data
from tasks.lra.image import Image
from tests.tasks.conftest import facts
from zoo.registry import UserError


@pytest.fixture
def image(pictures):
    Image.bring(pictures.folder, pictures.source)
    return Image(train=180, dev=20, test=30)


def test_test_pictures_come_in_their_order_one_token_a_pixel_in_raster_order(image, pictures):
    split = image.load("test")
    assert np.array_equal(split.sequences.numpy(), pictures.put["x_test"].reshape(30, 1024))
    assert split.sequences[4, 32 * 5 + 7] == pictures.put["x_test"][4, 5, 7]
    assert split.targets.tolist() == pictures.put["y_test"].tolist()
    assert split.sequences.dtype == torch.uint8


def test_train_and_dev_part_the_official_train_pictures(image, pictures):
    train, dev = image.load("train"), image.load("dev")
    assert (len(train), len(dev)) == (180, 20)
    both = torch.cat([train.sequences, dev.sequences]).numpy().tolist()
    targets = torch.cat([train.targets, dev.targets]).tolist()
    official = pictures.put["x_train"].reshape(200, 1024).tolist()
    assert sorted(zip(both, targets, strict=True)) == sorted(
        zip(official, pictures.put["y_train"].tolist(), strict=True)
    )


def test_dev_holds_a_tenth_of_every_class(image):
    assert image.load("dev").targets.bincount(minlength=10).tolist() == [2] * 10


def test_the_cut_is_the_same_at_every_load(image):
    assert torch.equal(
        image.load("dev").sequences, Image(train=180, dev=20, test=30).load("dev").sequences
    )


def test_no_picture_is_padded(image):
    split = image.load("test")
    assert not split.padded
    assert split.gather(torch.tensor([0])).mask is None


def test_missing_pictures_are_refused_with_the_command_and_the_public_original():
    with pytest.raises(UserError) as refused:
        Image().load("train")
    message = str(refused.value)
    assert "image@1 is not in" in message
    assert "run 'harness data fetch image', or 'harness data import image PATH'" in message
    assert "cifar10_gray_uint8.npz" in message
    assert "https://www.cs.toronto.edu/~kriz/cifar.html" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("part", "changed", "message"),
    [
        (
            "x_train",
            np.zeros((200, 32, 31), np.uint8),
            r"x_train in .* uint8 \(200, 1024\) expected",
        ),
        ("x_test", np.zeros((30, 32, 32), np.int64), "x_test in .* is int64"),
        (
            "y_train",
            np.zeros(199, np.uint8),
            r"y_train in .* uint8 \(199,\), uint8 \(200,\) expected",
        ),
        ("y_test", np.zeros(30, np.uint8), "test_targets made of .* has SHA256 .* expected"),
        ("x_test", np.array(["pickled"], object), "cannot be decoded"),
        ("y_test", None, "cannot be decoded"),
    ],
)
def test_unexpected_contents_are_refused_though_the_file_is_the_known_one(
    pictures, home, part, changed, message
):
    inside = dict(pictures.put)
    inside.pop(part)
    if changed is not None:
        inside[part] = changed
    packed = io.BytesIO()
    np.savez(packed, **inside)
    with pytest.raises(UserError, match=message):
        Image.bring(*repacked(pictures, packed.getvalue()))
    assert not home.exists()


def test_a_class_beyond_the_last_is_refused(pictures, home):
    pictures.put["y_test"][3] = 10
    packed = io.BytesIO()
    np.savez(packed, **pictures.put)
    with pytest.raises(UserError, match=r"y_test in .*packed holds class 10, 9 is the last"):
        Image.bring(*repacked(pictures, packed.getvalue()))
    assert not home.exists()


def repacked(pictures, packed):
    """The archive with other bytes in it, and facts that agree with them."""
    path = pictures.folder / "pictures.npz"
    path.write_bytes(packed)
    edition = replace(pictures.source.editions[0], files=(facts(path),))
    return pictures.folder, replace(pictures.source, editions=(edition,))


def test_the_real_pictures_are_imported_whole(real_data):
    import_data("image", real_data / "cifar10_gray_uint8.npz")
    splits = {name: Image().load(name) for name in ("train", "dev", "test")}
    for name, each in (("train", 4500), ("dev", 500), ("test", 1000)):
        assert splits[name].targets.bincount().tolist() == [each] * 10
        assert splits[name].sequences.shape == (10 * each, 1024)
    # The first official test pictures: cat, ship, ship, airplane, frog.
    assert splits["test"].targets[:5].tolist() == [3, 8, 8, 0, 6]


def test_fewer_pictures_are_some_of_all(image):
    few = Image(train=50, dev=10, test=15)
    kept, every = few.load("train").sequences.tolist(), image.load("train").sequences.tolist()
    assert len(kept) == 50 and all(one in every for one in kept)
    assert [len(few.load("dev")), len(few.load("test"))] == [10, 15]
    assert few.key == "image@1[train=50,dev=10,test=15]"


def test_more_pictures_than_there_are_are_refused(image):
    with pytest.raises(UserError, match=r"image.test=31 is out of range; give 1 to 30"):
        Image(test=31).load("test")


def test_pictures_are_known_in_one_grey_file_and_in_two_forms_of_six_batches():
    files = {edition.name: len(edition.files) for edition in Image.source().editions}
    assert files == {"grey": 1, "binary": 6, "python": 6}
