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
def published(plain) -> Path:
    folder = plain.rename(plain.with_name("train")).parent
    for name in ("cat", "dog"):
        fill(folder / "val" / name, 3)
    return folder


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


REJECTED = [
    ("plain", lambda folder: fill(folder / "cat/more", 3)),
    ("plain", lambda folder: fill(folder / "emu", 2)),
    ("plain", lambda folder: (folder / "emu").mkdir()),
    ("plain", lambda folder: (folder / "cat/up").symlink_to(folder)),
    ("plain", lambda folder: (folder / "cat/a.png").symlink_to(folder / "cat/a.png")),
    ("plain", lambda folder: (folder / "emu").symlink_to(folder / "none")),
    ("plain", lambda folder: (folder / "x.jpg").touch()),
    ("plain", lambda folder: (folder / "cat/a.TIFF").touch()),
    ("plain", lambda folder: (folder / "cat").rename(folder / "\udce9")),
    ("plain", lambda folder: (folder / "cat").rename(folder / "dog ")),
    ("plain", lambda folder: (folder / "cat").rename(folder / ".cat")),
    ("published", lambda folder: fill(folder / "train/cow", 3)),
    ("published", lambda folder: fill(folder / "val/cow", 3)),
    ("published", lambda folder: (folder / "val").rename(folder / "old")),
    ("published", lambda folder: fill(folder / "test/cat", 3)),
]


@pytest.mark.parametrize(("start", "change"), REJECTED)
def test_no_image_is_left_out_in_silence(request, start, change):
    folder = request.getfixturevalue(start)
    change(folder)
    with one_line(folder):
        load(folder)


@pytest.mark.parametrize("options", [
    {"path": "nowhere"}, {"size": 30, "patch": 16}, {"size": 4, "patch": 2}, {"dev": 0.0},
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
    "grey": (RED.convert("L"), "JPEG", (89, 89, 89)),
    "CMYK": (RED.convert("CMYK"), "JPEG", (250, 20, 20)),
    "palette with transparency": (palette(RED), "PNG", (250, 20, 20)),
    "transparent": (RED.convert("RGBA"), "WEBP", (250, 20, 20)),
}


@pytest.mark.parametrize("what", PIXELS)
def test_every_image_is_decoded_in_colour(tmp_path, what):
    # ImageNet has grey and CMYK images, and a PNG file with the suffix of the others.
    original, form, expected = PIXELS[what]
    original.save(tmp_path / "one.JPEG", form)
    image = np.asarray(decode(tmp_path / "one.JPEG")).astype(int)
    assert image.shape == (4, 5, 3) and np.abs(image - expected).max() <= 3


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
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
        # 16 bits of grey are scaled to 8.
        Image.fromarray(np.arange(0, 2**16, 128, dtype=np.uint16)[None]).save(tmp_path / "b.png")
        assert (np.asarray(decode(tmp_path / "b.png"))[0] == np.arange(512)[:, None] // 2).all()


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
