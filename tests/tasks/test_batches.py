"""The official batches of colour pictures: read without being unpickled, turned grey in order."""

import pickle
import random
import struct
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from tasks.data.files import Edition
from tasks.lra.image import Image, grey, walk
from tests.tasks.conftest import Packed, facts, pack, source
from zoo.registry import UserError


def test_known_colours_have_known_greys():
    # trunc(255.5 (0.2989 R + 0.5870 G + 0.1140 B) / 255) by hand: white is 255.47, half 128.24.
    colours = [(0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (128, 128, 128)]
    found = grey(np.array(colours, np.uint8).reshape(6, 3, 1))
    assert found[:, 0].tolist() == [0, 255, 76, 149, 29, 128]


def test_colours_that_another_order_of_additions_would_change_keep_their_grey():
    colours = [(5, 171, 227), (19, 217, 76), (32, 181, 166), (48, 144, 192), (53, 193, 233)]
    found = grey(np.array(colours, np.uint8).reshape(5, 3, 1))
    assert found[:, 0].tolist() == [127, 142, 134, 120, 156]


def test_grey_is_within_a_level_of_exact_arithmetic_and_nearly_always_equal():
    colours = np.random.default_rng(0).integers(0, 256, (50, 3, 1024), dtype=np.uint8)
    weighted = (colours.astype(np.int64) * [[2989], [5870], [1140]]).sum(1)
    difference = grey(colours).astype(np.int64) - weighted * 511 // 5_100_000
    assert np.abs(difference).max() <= 1
    assert (difference != 0).mean() < 1e-3


def pickled(labels, pixels) -> bytes:
    """A batch as the official ones are: a dictionary that Python 2 pickled, by its second protocol.

    The list of labels comes in two parts, as longer lists do.
    """

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    half = len(labels) // 2
    parts = b"".join(
        b"(" + b"".join(b"K" + bytes([label]) for label in part) + b"e"
        for part in (labels[:half], labels[half:])
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x04T" + struct.pack("<i", len(pixels)) + pixels
    )
    return b"".join(
        [
            b"\x80\x02}q\x01(", text(b"batch_label"), text(b"training batch 1 of 5"),
            text(b"labels"), b"]q\x02", parts, text(b"data"), array,
            text(b"filenames"), b"]q\x05(", text(b"labels_s_000.png"), b"K\x07e", b"u.",
        ]
    )  # fmt: skip


@pytest.fixture(params=["binary", "python"])
def batches(request, tmp_path) -> Packed:
    """Six batches of colour pictures, four in each of train's and six in test's."""
    rng = np.random.default_rng(1)
    folder = tmp_path / "official" / "cifar-10-batches"
    folder.mkdir(parents=True)
    put = {}
    for name, count in [*((f"data_batch_{i}", 4) for i in range(1, 6)), ("test_batch", 6)]:
        colours = rng.integers(0, 256, (count, 3, 1024), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        put[name] = (colours, labels)
        if request.param == "python":
            (folder / name).write_bytes(pickled(labels.tolist(), colours.tobytes()))
        else:
            rows = np.concatenate([labels[:, None], colours.reshape(count, -1)], axis=1)
            (folder / f"{name}.bin").write_bytes(rows.tobytes())
    edition = Edition(
        name=request.param,
        files=tuple(facts(path) for path in sorted(folder.iterdir())),
        folders=(folder.name,),
        archives=(pack(folder),),
    )
    train = [put[f"data_batch_{i}"] for i in range(1, 6)]
    arrays = {
        "train_pixels": grey(np.concatenate([colours for colours, _ in train])),
        "train_targets": np.concatenate([labels for _, labels in train]),
        "test_pixels": grey(put["test_batch"][0]),
        "test_targets": put["test_batch"][1],
    }
    return Packed(folder.parent, source([edition], arrays, {"train": 20, "test": 6}), put)


@pytest.mark.parametrize("given", ["", "cifar-10-batches", "cifar-10-batches.tar.gz"])
def test_official_batches_become_grey_in_their_order(batches, given):
    Image.bring(batches.folder / given, batches.source)
    split = Image(train=18, dev=1, test=6).load("test")
    colours, labels = batches.put["test_batch"]
    assert split.targets.tolist() == labels.tolist()
    assert np.array_equal(split.sequences.numpy(), grey(colours))
    red, green, blue = colours[2, :, 70].astype(float) / 255
    luma = 255.5 * (0.2989 * red + 0.5870 * green + 0.1140 * blue)
    assert abs(int(split.sequences[2, 70]) - luma) <= 1


def test_batches_in_an_archive_may_stand_in_any_order(batches, tmp_path):
    folder, shuffled = batches.folder / "cifar-10-batches", tmp_path / "shuffled.tar.gz"
    paths = sorted(folder.iterdir())
    random.Random(3).shuffle(paths)
    with tarfile.open(shuffled, "w:gz") as archive:
        for path in paths:
            archive.add(path, f"x/{path.name}")
    known = replace(batches.source.editions[0].archives[0], **vars(facts(shuffled)))
    edition = replace(batches.source.editions[0], archives=(known,))
    first = Image.bring(folder, batches.source)
    assert Image.bring(shuffled, replace(batches.source, editions=(edition,))) == first


@pytest.mark.parametrize(
    ("digest", "message"),
    [
        ("md5:" + 32 * "0", "has MD5 .* 0{32} expected"),
        ("sha256:" + 64 * "0", "has SHA256 .* 0{64} expected"),
    ],
)
def test_a_batch_that_is_not_the_official_one_is_named(batches, home, digest, message):
    known = batches.source.editions[0]
    files = (*known.files[:2], replace(known.files[2], digest=digest), *known.files[3:])
    other = replace(batches.source, editions=(replace(known, files=files),))
    with pytest.raises(UserError, match=f"data_batch_3.* {message}"):
        Image.bring(batches.folder, other)
    assert not home.exists()


class Hostile:
    """What would make a file if it were unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_is_never_executed(tmp_path, protocol):
    target = tmp_path / "made"
    packed = pickle.dumps({"labels": [3], "data": Hostile(target)}, protocol)
    with pytest.raises(ValueError, match="cannot reshape"):
        walk(packed)
    assert not target.exists()
    pickle.loads(packed)["data"].close()
    assert target.exists()


def test_walking_a_batch_finds_what_unpickling_it_finds():
    labels, pixels = [7, 0, 9], bytes(range(256)) * 36
    found, numbers = walk(pickled(labels, pixels))
    assert numbers.tolist() == labels
    assert found.tobytes() == pixels
    assert found.shape == (3, 3, 1024)


@pytest.mark.parametrize("spoil", [lambda p: p[:-1], lambda p: b"", lambda p: b"no pickle"])
def test_a_batch_that_is_no_whole_pickle_cannot_be_walked(spoil):
    with pytest.raises(ValueError):
        walk(spoil(pickled([1], bytes(3072))))
