"""Image: the imported images are loaded pixel by pixel."""

import io
import random
import tarfile

import numpy as np
import pytest
import torch

from tasks.data.files import Layout
from tasks.data.sources import import_data
from tasks.lra.image import Image, to_grey
from tests.tasks.conftest import Published, change_layout, file_entry, pack, source
from zoo.registry import UserError


@pytest.fixture
def image(images):
    Image.import_files(images.folder, images.source)
    return Image(train=180, dev=20, test=30)


def test_images_are_in_their_order_one_token_per_pixel_in_raster_order(image, images):
    split = image.load("test")
    assert np.array_equal(split.sequences.numpy(), images.content["x_test"].reshape(30, 1024))
    assert split.targets.tolist() == images.content["y_test"].tolist()
    assert split.sequences.dtype == torch.uint8 and not split.padded


def test_train_and_dev_partition_the_official_train_images(image, images):
    train, dev = image.load("train"), image.load("dev")
    assert dev.targets.bincount(minlength=10).tolist() == [2] * 10
    both = torch.cat([train.sequences, dev.sequences]).numpy().tolist()
    targets = torch.cat([train.targets, dev.targets]).tolist()
    official = images.content["x_train"].reshape(200, 1024).tolist()
    assert sorted(zip(both, targets, strict=True)) == sorted(
        zip(official, images.content["y_train"].tolist(), strict=True)
    )


def test_fewer_images_are_a_subset(image):
    few = Image(train=50, dev=10, test=15)
    selected, every = few.load("train").sequences.tolist(), image.load("train").sequences.tolist()
    assert len(selected) == 50 and all(image in every for image in selected)
    assert few.key == "image@1[train=50,dev=10,test=15]"
    with pytest.raises(UserError, match=r"image.test=31 is out of range; give 1 to 30"):
        Image(test=31).load("test")


def test_a_smaller_image_has_the_means_of_blocks(image, images):
    split = Image(size=16, train=50, dev=10, test=30).load("test")
    whole = images.content["x_test"].reshape(30, 32, 32).astype(int)
    corners = sum(whole[:, row::2, column::2] for row in (0, 1) for column in (0, 1))
    assert split.sequences.tolist() == (corners // 4).reshape(30, 256).tolist()
    assert Image(size=16).max_len == 256
    with pytest.raises(UserError, match=r"image.size=12 does not divide 32; give 8, 16 or 32"):
        Image(size=12)


def test_missing_images_are_an_error_with_command_and_public_original():
    with pytest.raises(UserError) as error:
        Image().load("train")
    message = str(error.value)
    assert "image@1 is not in" in message and "\n" not in message
    assert "run 'harness data fetch image', or 'harness data import image PATH'" in message
    assert "cifar10_gray_uint8.npz" in message
    assert "https://www.cs.toronto.edu/~kriz/cifar.html" in message


@pytest.mark.parametrize(
    ("part", "changed", "message"),
    [
        ("x_train", np.zeros((200, 32, 31), np.uint8), "cannot be decoded .ValueError"),
        ("x_train", np.zeros((199, 32, 32), np.uint8), "train_pixels made from .* has SHA256"),
        ("x_test", np.zeros((30, 32, 32), np.int64), "test_pixels made from .* has SHA256"),
        ("y_train", np.zeros(199, np.uint8), "contains 199 examples in train, 200 expected"),
        ("y_test", np.zeros(30, np.uint8), "test_targets made from .* has SHA256 .* expected"),
        ("y_test", np.full(30, 10, np.uint8), "test_targets made from .* has SHA256 .* expected"),
        ("x_test", np.array(["pickled"], object), "cannot be decoded"),
        ("y_test", None, "cannot be decoded"),
    ],
)
def test_unexpected_content_is_an_error(images, home, part, changed, message):
    content = {name: array for name, array in images.content.items() if name != part}
    if changed is not None:
        content[part] = changed
    file = io.BytesIO()
    np.savez(file, **content)
    path = images.folder / "images.npz"
    path.write_bytes(file.getvalue())
    with pytest.raises(UserError, match=message):
        Image.import_files(images.folder, change_layout(images.source, files=(file_entry(path),)))
    assert not home.exists()


def test_known_colours_have_known_greys():
    # trunc(255.5 (0.2989 R + 0.5870 G + 0.1140 B) / 255) by hand: white is 255.47, half 128.24.
    colours = [(0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (128, 128, 128)]
    # These change with the order of the additions.
    colours += [(5, 171, 227), (19, 217, 76), (32, 181, 166), (48, 144, 192), (53, 193, 233)]
    greys = to_grey(np.array(colours, np.uint8).reshape(11, 3, 1))
    assert greys[:, 0].tolist() == [0, 255, 76, 149, 29, 128, 127, 142, 134, 120, 156]


def test_grey_is_within_one_level_of_exact_arithmetic():
    colours = np.random.default_rng(0).integers(0, 256, (50, 3, 1024), dtype=np.uint8)
    weighted = (colours.astype(np.int64) * [[2989], [5870], [1140]]).sum(1)
    difference = to_grey(colours).astype(np.int64) - weighted * 511 // 5_100_000
    assert np.abs(difference).max() <= 1
    assert (difference != 0).mean() < 1e-3


@pytest.fixture
def batches(tmp_path) -> Published:
    """The binary layout: six batches of colour images, four in each of train's, six in test's."""
    rng = np.random.default_rng(1)
    folder = tmp_path / "official" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    content = {}
    for name, count in [*((f"data_batch_{i}", 4) for i in range(1, 6)), ("test_batch", 6)]:
        colours = rng.integers(0, 256, (count, 3, 1024), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        content[name] = (colours, labels)
        rows = np.concatenate([labels[:, None], colours.reshape(count, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    layout = Layout(
        name="binary",
        files=tuple(file_entry(path) for path in sorted(folder.iterdir())),
        folders=(folder.name,),
        archives=(pack(folder),),
    )
    train = [content[f"data_batch_{i}"] for i in range(1, 6)]
    arrays = {
        "train_pixels": to_grey(np.concatenate([colours for colours, _ in train])),
        "train_targets": np.concatenate([labels for _, labels in train]),
        "test_pixels": to_grey(content["test_batch"][0]),
        "test_targets": content["test_batch"][1],
    }
    return Published(folder.parent, source(layout, arrays, {"train": 20, "test": 6}), content)


@pytest.mark.parametrize("path", ["", "cifar-10-batches-bin", "cifar-10-batches-bin.tar.gz"])
def test_the_official_batches_become_grey_in_their_order(batches, path):
    Image.import_files(batches.folder / path, batches.source)
    split = Image(train=18, dev=1, test=6).load("test")
    colours, labels = batches.content["test_batch"]
    assert split.targets.tolist() == labels.tolist()
    assert np.array_equal(split.sequences.numpy(), to_grey(colours))
    red, green, blue = colours[2, :, 70].astype(float) / 255
    luma = 255.5 * (0.2989 * red + 0.5870 * green + 0.1140 * blue)
    assert abs(int(split.sequences[2, 70]) - luma) <= 1


def test_batches_may_be_in_any_order_in_an_archive(batches):
    folder, shuffled = batches.folder / "cifar-10-batches-bin", batches.folder / "shuffled.tar.gz"
    paths = sorted(folder.iterdir())
    random.Random(3).shuffle(paths)
    with tarfile.open(shuffled, "w:gz") as archive:
        for path in paths:
            archive.add(path, f"x/{path.name}")
    (archive,) = batches.source.layouts[0].archives
    archive = archive.model_copy(update=file_entry(shuffled).model_dump())
    first = Image.import_files(folder, batches.source)
    assert Image.import_files(shuffled, change_layout(batches.source, archives=(archive,))) == first


@pytest.mark.slow
def test_the_real_images_are_complete(real_data):
    import_data("image", real_data / "cifar10_gray_uint8.npz")
    splits = {name: Image().load(name) for name in ("train", "dev", "test")}
    for name, each in (("train", 4500), ("dev", 500), ("test", 1000)):
        assert splits[name].targets.bincount().tolist() == [each] * 10
        assert splits[name].sequences.shape == (10 * each, 1024)
    # The first official test images: cat, ship, ship, airplane, frog.
    assert splits["test"].targets[:5].tolist() == [3, 8, 8, 0, 6]
