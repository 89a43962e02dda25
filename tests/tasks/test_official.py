"""The official files of ListOps and Pathfinder give their trees and images, or one clear line."""

import io
import pickle

import numpy as np
import pytest
from PIL import Image

from tasks.lra.listops import tokenise
from tasks.lra.listops_official import OfficialListOps
from tasks.lra.pathfinder_official import OfficialPathfinder
from tests.tasks.conftest import Published, change, pack, source
from zoo.registry import UserError

TREES = {
    "train": [("( ( ( [MAX 1 ) 2 ) ] )", 2), ("( ( ( ( [SM 7 ) 8 ) 9 ) ] )", 4)],
    "val": [("( ( ( [MED 3 ) ( ( ( [MIN 0 ) 9 ) ] ) ) ] )", 1)],
    "test": [("( ( [MIN 5 ) ] )", 5)],
}


def published(folder, task, examples) -> Published:
    """The files in `folder`, also packed, as a source with so many examples."""
    archive = change(pack(folder), size=0, digest="unpublished")
    layout = change(task.source().layouts[0], archives=(archive,))
    return Published(folder.parent, source(layout, {}, examples), {})


@pytest.fixture
def trees(tmp_path) -> Published:
    folder = tmp_path / "lra_release" / "lra_release" / "listops-1000"
    folder.mkdir(parents=True)
    for split, rows in TREES.items():
        lines = ["Source\tTarget", *(f"{tree}\t{value}" for tree, value in rows)]
        (folder / f"basic_{split}.tsv").write_text("\n".join(lines) + "\n")
    return published(tmp_path / "lra_release", OfficialListOps, {"train": 2, "dev": 1, "test": 1})


@pytest.mark.parametrize("path", ["", "lra_release.tar.gz"])
def test_the_trees_of_a_file_are_its_split_in_their_order(trees, path):
    OfficialListOps.import_files(trees.folder / path, trees.source)
    task = OfficialListOps(train=2, dev=1, test=1)
    for name, official in (("train", "train"), ("dev", "val"), ("test", "test")):
        split = task.load(name)
        expected = [tokenise(tree).tolist() for tree, _ in TREES[official]]
        assert [split.tokens(i)[0] for i in range(len(split))] == expected
        assert split.targets.tolist() == [value for _, value in TREES[official]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Source\tTarget", "Source,Target", "line 1 is not the header Source, Target"),
        ("9 ) ] )\t4", "9 ) ] )\t5", "line 3 has the value '5', 4 expected; get it again"),
        ("[SM", "[SUM", "line 3 is not a tree .'.SUM' is not a word of ListOps"),
        (" ] )\t2", "\t2", "line 2 is not a tree"),
        ("\n( ( ( ( [SM 7 ) 8 ) 9 ) ] )\t4", "", "contains 1 examples in train, 2 expected"),
    ],
)
def test_a_damaged_file_of_trees_is_one_line_and_nothing_is_cached(trees, home, old, new, message):
    (file,) = trees.folder.rglob("basic_train.tsv")
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=message) as error:
        OfficialListOps.import_files(trees.folder, trees.source)
    assert "\n" not in str(error.value) and not home.exists()


def png(level: int, size: int = 32, mode: str = "L") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((size, size), level, np.uint8)).convert(mode).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def images(tmp_path) -> Published:
    """Two batches of five images, whose level is their number and whose class its parity."""
    folder = tmp_path / "lra_release" / "pathfinder32" / "curv_contour_length_14"
    (folder / "metadata").mkdir(parents=True)
    for batch in (0, 10):
        (folder / "imgs" / str(batch)).mkdir(parents=True)
        lines = []
        for i in range(5):
            (folder / f"imgs/{batch}/sample_{i}.png").write_bytes(png(batch + i))
            lines.append(f"imgs/{batch} sample_{i}.png {i} {i % 2} 1.0 14 4 2 0.5 1 1")
        (folder / "metadata" / f"{batch}.npy").write_text("\n".join(lines) + "\n")
    other = folder.parent / "curv_baseline" / "metadata"
    other.mkdir(parents=True)
    (other / "0.npy").write_bytes(b"not read")
    examples = {"train": 8, "dev": 1, "test": 1}
    return published(tmp_path / "lra_release", OfficialPathfinder, examples)


@pytest.mark.parametrize("path", ["", "lra_release.tar.gz"])
def test_every_listed_image_is_in_one_split_with_its_class(images, path):
    OfficialPathfinder.import_files(images.folder / path, images.source)
    task = OfficialPathfinder(train=8, dev=1, test=1)
    splits = [task.load(name) for name in ("train", "dev", "test")]
    assert [len(split) for split in splits] == [8, 1, 1]
    classes = {}
    for split in splits:
        assert split.sequences.shape[1] == 1024 and not split.padded
        assert (split.sequences == split.sequences[:, :1]).all()
        levels = split.sequences[:, 0].tolist()
        classes |= dict(zip(levels, split.targets.tolist(), strict=True))
    assert classes == {level: level % 10 % 2 for level in (*range(5), *range(10, 15))}
    assert splits[0].sequences[:, 0].tolist() != sorted(splits[0].sequences[:, 0].tolist())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("imgs/0/sample_1.png", b"", "sample_1.png is not a readable PNG; get it again"),
        ("imgs/0/sample_1.png", png(1)[:60], "sample_1.png is not a readable PNG; get it again"),
        ("imgs/0/sample_1.png", png(1, 64), "sample_1.png is L 64 x 64, grey 32 x 32 expected"),
        ("imgs/0/sample_1.png", png(1, 32, "RGB"), "is RGB 32 x 32, grey 32 x 32 expected"),
        ("imgs/0/sample_1.png", None, "contains no .*imgs/0/sample_1.png; get it again"),
        ("imgs/0/notes.txt", b"", "notes.txt is neither an image nor a list; remove it"),
        ("metadata/0.npy", b"imgs/0 sample_0.png 0\n", "0.npy, line 1 is not a folder, a file"),
        ("metadata/0.npy", b"imgs/10 sample_0.png 0 1\n", "lists an image twice"),
        ("metadata/0.npy", b"", "contains 4 examples in train, 8 expected"),
        ("metadata/0.npy", b"\x93NUMPY" + pickle.dumps([1]), "is a NumPy array, text expected"),
        ("metadata/0.npy", pickle.dumps(["x"]), "0.npy, line 1 is not a folder, a file"),
    ],
)
def test_damaged_images_are_one_line_and_nothing_is_cached(images, home, name, content, message):
    file = images.folder / "lra_release" / "pathfinder32" / "curv_contour_length_14" / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        OfficialPathfinder.import_files(images.folder, images.source)
    assert "\n" not in str(error.value) and not home.exists()
