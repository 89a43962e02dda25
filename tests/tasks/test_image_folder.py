"""Image folders: layouts, splits, digests, and files that cannot be read."""

import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from tasks import create
from tasks.contract import SPLITS, Split
from tasks.data import images
from tasks.data.images import decode
from zoo.registry import UserError


def fill(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for i in range(count):
        Image.fromarray(np.full((9 + i, 8, 3), i, np.uint8)).save(folder / f"{i:02}.JPEG")
    (folder / "notes.txt").write_text("no image")


@pytest.fixture
def plain(tmp_path) -> Path:
    """A folder of two classes without published splits."""
    for name in ("cat", "dog"):
        fill(tmp_path / "plain" / name, 10)
    return tmp_path / "plain"


@pytest.fixture
def published(tmp_path) -> Path:
    """A folder of two classes in `train` and `val`."""
    for name in ("cat", "dog"):
        fill(tmp_path / "published" / "train" / name, 10)
        fill(tmp_path / "published" / "val" / name, 3)
    return tmp_path / "published"


def names(split: Split) -> list[str]:
    return [name.decode() for name in split.files.names]


def load(folder: Path, **options) -> dict[str, Split]:
    task = create("image-folder", path=str(folder), **options)
    return {name: task.load(name) for name in SPLITS}


def test_the_published_validation_set_is_test_and_dev_a_share_of_each_class_of_train(published):
    splits = load(published, dev=0.2)
    expected = [f"val/{c}/{i:02}.JPEG" for c in ("cat", "dog") for i in (0, 1, 2)]
    assert names(splits["test"]) == expected
    assert splits["test"].targets.tolist() == [0, 0, 0, 1, 1, 1]
    train, dev = names(splits["train"]), names(splits["dev"])
    expected = [f"train/{c}/{i:02}.JPEG" for c in ("cat", "dog") for i in range(10)]
    assert sorted(train + dev) == expected
    assert splits["dev"].targets.tolist() == [0, 0, 1, 1]
    assert [name.split("/")[1] for name in dev] == ["cat", "cat", "dog", "dog"]
    task = create("image-folder", path=str(published), size=64, patch=16)
    assert (task.classes, task.max_len, task.class_name(1)) == (2, 17, "dog")


def test_without_published_splits_all_three_are_drawn(plain):
    splits = load(plain, dev=0.2, test=0.3)
    counts = [splits[name].targets.bincount().tolist() for name in SPLITS]
    assert counts == [[5] * 2, [2] * 2, [3] * 2]
    assert len({name for split in splits.values() for name in names(split)}) == 20
    small = load(plain, dev=0.01, test=0.01)
    assert [len(small[name]) for name in SPLITS] == [16, 2, 2]


def test_the_digest_depends_on_names_sizes_classes_and_the_seed(published):
    def digests(**options) -> list[str]:
        return [split.digest() for split in load(published, **options).values()]

    before = digests()
    assert digests(size=32) == before
    other = digests(seed=1)
    assert other[0] != before[0] and other[1] != before[1] and other[2] == before[2]
    path = published / "val" / "dog" / "00.JPEG"
    path.write_bytes(path.read_bytes() + b" ")
    assert digests()[:2] == before[:2] and digests()[2] != before[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: None, "has class 'cow' in train only; add it to the other folder"),
        (lambda f: fill(f / "val" / "emu", 1), "has class 'cow' in train only"),
        (lambda f: (f / "train" / "cow").rename(f / "val" / "cow"), "has class 'cow' in val only"),
        (lambda f: (f / "val").rename(f / "old"), "has only one of the folders train and val"),
    ],
)
def test_classes_of_train_and_val_must_be_the_same(published, change, message):
    fill(published / "train" / "cow", 3)
    change(published)
    with pytest.raises(UserError, match=message):
        create("image-folder", path=str(published))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "nowhere"}, "image-folder.path=nowhere is not a folder; give one with train/CLA"),
        ({"size": 30, "patch": 16}, "size=30 is not a multiple of patch=16"),
        ({"size": 4, "patch": 2}, "image-folder.size=4 must be at least 8"),
        ({"dev": 0.0}, "image-folder.dev=0.0 and image-folder.test=0.1 must be above 0"),
        ({"seed": -1}, "image-folder.seed=-1 must be at least 0"),
    ],
)
def test_bad_options_are_one_clear_line(plain, options, message):
    with pytest.raises(UserError, match=message):
        create("image-folder", **{"path": str(plain), **options})


def test_a_folder_needs_two_classes_with_images_for_each_split(tmp_path):
    fill(tmp_path / "cat", 3)
    with pytest.raises(UserError, match="has 1 folders of classes; give at least two"):
        create("image-folder", path=str(tmp_path))
    fill(tmp_path / "dog", 2)
    with pytest.raises(UserError, match="has 2 images of class 'dog', one for each of 3 splits"):
        load(tmp_path)
    fill(tmp_path / "emu", 0)
    with pytest.raises(UserError, match=r"emu has no image \(.jpeg, .jpg, .png, .webp\); add some"):
        load(tmp_path)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "P"])
def test_every_image_is_decoded_in_colour(tmp_path, mode):
    # ImageNet has grey and CMYK images, and a PNG file with the suffix of the others.
    path = tmp_path / "one.JPEG"
    image = Image.new("RGB", (5, 4), (250, 20, 20)).convert(mode)
    image.save(path, "PNG" if mode == "P" else "JPEG")
    image = decode(path)
    assert (image.mode, image.size) == ("RGB", (5, 4))


def test_a_damaged_file_is_one_clear_line(published):
    path = published / "val" / "cat" / "01.JPEG"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"GIF89a", b""):
        path.write_bytes(content)
        with pytest.raises(UserError) as raised:
            decode(path)
        message = str(raised.value)
        assert message.startswith(f"image {path} cannot be read (") and "\n" not in message
        assert message.endswith("; replace or remove it")


def test_a_pipe_is_rejected_where_files_are_listed_and_where_one_is_read(published):
    pipe = published / "train" / "cat" / "pipe.png"
    os.mkfifo(pipe)
    for read in (lambda: load(published), lambda: decode(pipe)):
        with pytest.raises(UserError, match=r"pipe.png is not a regular file"):
            read()


def test_timm_is_imported_again_without_a_second_declaration_of_operators():
    for _ in range(2):
        images.require_timm.cache_clear()
        images.require_timm()
    assert sys.modules["torchvision"]


def test_without_timm_the_error_names_the_extra(plain, monkeypatch):
    split = load(plain)["test"]
    images.transform_of.cache_clear()
    images.require_timm.cache_clear()
    monkeypatch.setattr(images, "_declare_operators", lambda: None)
    monkeypatch.setitem(sys.modules, "timm.data", None)
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    with pytest.raises(UserError, match=r"images needs timm.data, which .*'\.\[vision\]'"):
        split.gather(torch.tensor([0]))
