"""Image folders: layouts, splits, digests, and files that cannot be read."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tasks import create
from tasks.contract import SPLITS, Split
from tasks.data.images import decode
from tests.conftest import one_line
from tests.tasks.conftest import require_conformance


def fill(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for i in range(count):
        Image.fromarray(np.full((9 + i, 8, 3), i, np.uint8)).save(folder / f"{i:02}.JPEG")
    (folder / "notes.txt").write_text("no image")


@pytest.fixture
def plain(tmp_path) -> Path:
    for name in ("cat", "dog"):
        fill(tmp_path / "plain" / name, 10)
    return tmp_path / "plain"


@pytest.fixture
def published(tmp_path) -> Path:
    for name in ("cat", "dog"):
        fill(tmp_path / "published" / "train" / name, 10)
        fill(tmp_path / "published" / "val" / name, 3)
    return tmp_path / "published"


def names(split: Any) -> list[str]:
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
    require_conformance("image-folder", path=str(plain), size=32)
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


@pytest.mark.parametrize(("name", "test", "sizes"), [
    ("val", ["cat", "dog"], [20, 6, 4]), ("validation", ["cat", "dog"], [20, 6, 4]),
    ("test", [], [16, 4, 6]), ("val", [""], [16, 4, 6]),
])  # fmt: skip
def test_a_folder_test_of_classes_is_test_and_validation_is_then_dev(published, name, test, sizes):
    (published / "val").rename(published / name)
    for label in test:  # ImageNet's has images without classes
        fill(published / "test" / label, 2)
    splits = load(published, dev=0.2)
    assert [len(split) for split in splits.values()] == sizes
    is_given = len(test) > 1 or name == "test"
    assert {n.split("/")[0] for n in names(splits["test"])} == {"test" if is_given else name}
    assert {n.split("/")[0] for n in names(splits["dev"])} == {name if len(test) > 1 else "train"}


def test_classes_named_by_numbers_are_in_the_order_of_the_numbers(tmp_path):
    for name in ("0", "10", "2"):
        fill(tmp_path / name, 3)
    task = create("image-folder", path=str(tmp_path))
    assert [task.class_name(i) for i in range(3)] == ["0", "2", "10"]
    assert names(task.load("test"))[1].startswith("2/")


def test_hidden_files_are_ignored_and_a_name_may_be_no_utf8(plain):
    for name in ("._00.jpg", ".hidden.png"):
        (plain / "cat" / name).write_bytes(b"resource fork")
    (plain / ".cache").mkdir()
    before = {name for split in load(plain).values() for name in names(split)}
    assert len(before) == 20
    odd = os.fsencode(plain / "cat") + b"/caf\xe9.jpg"
    Image.new("RGB", (9, 9)).save(plain / "new.jpg")
    (plain / "new.jpg").rename(os.fsdecode(odd))
    task, shown = create("image-folder", path=str(plain)), set()
    for split in map(task.load, SPLITS):
        shown.update(path for i in range(len(split)) for path in task.show(split, i))
        assert split.gather(torch.arange(len(split))).tokens.isfinite().all()
    assert shown - before == {r"cat/caf\xe9.jpg"}


def image(name: str, content: bytes = b""):
    return lambda folder: (folder / name).write_bytes(content)


def link(name: str, target: str):
    return lambda folder: (folder / name).symlink_to(folder / target)


def renamed(name: str, new: str):
    return lambda folder: (folder / name).rename(folder / new)


def full(name: str, count: int = 3):
    return lambda folder: fill(folder / name, count)


REJECTED = {
    "plain": [
        full("cat/more"), link("cat/up", "."), link("cat/a.png", "cat/a.png"), link("emu", "none"),
        image("x.jpg"), renamed("cat", "\udce9"), renamed("cat", "dog "), image("cat/a.TIFF"),
        full("emu", 2), full("emu", 0), renamed("cat", ".cat"),
    ],
    "published": [
        full("train/cow"), full("val/cow"), renamed("val", "old"), full("test/cat"),
    ],
}  # fmt: skip
"""Changes of folders."""


@pytest.mark.parametrize(
    ("start", "change"), [(start, change) for start in REJECTED for change in REJECTED[start]]
)
def test_no_image_is_left_out_in_silence(request, start, change):
    folder = request.getfixturevalue(start)
    change(folder)
    with one_line(folder):
        load(folder)


@pytest.mark.parametrize("options", [
    {"path": "nowhere"}, {"size": 30, "patch": 16}, {"size": 4, "patch": 2}, {"dev": 0.0},
    {"seed": -1},
])  # fmt: skip
def test_an_option_out_of_range_is_rejected(plain, options):
    with one_line(next("{}={}".format(*of) for of in options.items())):
        create("image-folder", **{"path": str(plain)} | options)


def palette(image: Image.Image) -> Image.Image:
    image = image.quantize(2)
    image.info["transparency"] = bytes([128])  # a number where it is 0 or 255
    return image


RED = Image.new("RGB", (5, 4), (250, 20, 20))
PIXELS = {
    "RGB": (RED, "JPEG", (250, 20, 20)), "grey": (RED.convert("L"), "JPEG", (89, 89, 89)),
    "CMYK": (RED.convert("CMYK"), "JPEG", (250, 20, 20)),
    "palette with transparency": (palette(RED), "PNG", (250, 20, 20)),
    "one bit": (Image.new("1", (5, 4), 1), "PNG", (255, 255, 255)),
    "transparent": (RED.convert("RGBA"), "WEBP", (250, 20, 20)),
}  # fmt: skip


@pytest.mark.parametrize("what", PIXELS)
def test_every_image_is_decoded_in_colour(tmp_path, what):
    # ImageNet has grey and CMYK images, and a PNG file with the suffix of the others.
    original, form, expected = PIXELS[what]
    original.save(tmp_path / "one.JPEG", form)
    image = decode(tmp_path / "one.JPEG")
    assert (image.mode, image.size) == ("RGB", (5, 4))
    assert np.abs(np.asarray(image).astype(int) - expected).max() <= 3


def test_16_bits_of_grey_are_scaled_to_8(tmp_path):
    levels = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    Image.fromarray(levels).save(tmp_path / "a.png")
    assert (np.asarray(decode(tmp_path / "a.png")) == np.arange(256)[:, None, None]).all()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_a_photograph_is_turned_and_the_first_frame_of_an_animation_read(tmp_path, form):
    image, exif = Image.new("RGB", (64, 32)), Image.Exif()
    image.paste((255, 255, 255), (0, 0, 32, 32))
    exif[0x0112] = 6  # the camera was turned: the first row of the file is the right column
    image.save(tmp_path / "a.jpg", form, exif=exif)
    turned = decode(tmp_path / "a.jpg")
    assert turned.size == (32, 64)
    assert np.asarray(turned)[[8, 56], 16, 0].tolist() == pytest.approx([255, 0], abs=8)
    if form != "JPEG":
        frames = [Image.new("RGB", (8, 8), (level,) * 3) for level in (0, 250)]
        frames[0].save(tmp_path / "a.png", form, save_all=True, append_images=frames[1:])
        assert np.asarray(decode(tmp_path / "a.png")).max() == 0


def test_a_damaged_file_is_one_clear_line(published):
    path = published / "val" / "cat" / "01.JPEG"
    whole = path.read_bytes()
    gif = io.BytesIO()
    Image.new("L", (8, 8)).save(gif, "GIF")
    for content in (whole[: len(whole) // 2], whole[:-9], gif.getvalue(), b"", bytes(99)):
        path.write_bytes(content)
        with one_line(path):
            decode(path)
    # A pipe is rejected where files are listed, and where one is read.
    pipe = published / "train" / "cat" / "pipe.png"
    os.mkfifo(pipe)
    for read, at in ((load, published), (decode, pipe)):
        with one_line("pipe.png"):
            read(at)
