"""Image, Text, Retrieval and the official ListOps and Pathfinder: from files to splits."""

import io
import json
import lzma
import pickle
import tarfile

import numpy as np
import PIL.Image
import pytest
import torch

from tasks.contract import SPLITS
from tasks.data.files import SMALL_FILE
from tasks.language.wikitext import WikiText
from tasks.lra.image import Image, to_grey
from tasks.lra.listops import OfficialListOps, tokenise
from tasks.lra.pathfinder import OfficialPathfinder
from tasks.lra.retrieval import Retrieval
from tasks.lra.text import Text
from tasks.registry import tasks
from tests.conftest import one_line
from tests.tasks.conftest import REVIEWS, pack, packed_reviews, require_conformance


def texts_of(split) -> list[list[bytes]]:
    texts = (split.tokens(i) for i in range(len(split)))
    return [[bytes(token - 1 for token in tokens) for tokens in example] for example in texts]


class TestImage:
    @pytest.fixture
    def image(self, images, tmp_path) -> Image:
        Image.import_files(tmp_path / "packed")
        return Image(train=180, dev=20, test=30)

    def test_images_are_in_their_order_one_token_per_pixel_in_raster_order(self, image, images):
        split = image.load("test")
        assert np.array_equal(split.sequences.numpy(), images["x_test"].reshape(30, 1024))
        assert split.targets.tolist() == images["y_test"].tolist()
        assert split.sequences.dtype == torch.uint8 and not split.padded
        # A smaller image has the means of blocks.
        split = Image(size=16, train=50, dev=10, test=30).load("test")
        whole = images["x_test"].reshape(30, 32, 32).astype(int)
        corners = sum(whole[:, row::2, column::2] for row in (0, 1) for column in (0, 1))
        assert split.sequences.tolist() == (corners // 4).reshape(30, 256).tolist()
        assert Image(size=16).max_len == 256

    def test_fewer_images_are_a_subset(self, image):
        require_conformance("image", train=50, dev=10, test=15)
        few = Image(train=50, dev=10, test=15)
        assert image.load("dev").targets.bincount().tolist() == [2] * 10
        selected, every = (task.load("train").sequences.tolist() for task in (few, image))
        assert len(selected) == 50 and all(tokens in every for tokens in selected)
        assert few.key == "image@1[train=50,dev=10,test=15]"
        with one_line("image.test=31"):
            Image(test=31).load("test")

    def test_the_official_batches_become_grey_in_their_order(self, tmp_path, declare):
        # trunc(255.5 (0.2989 R + 0.5870 G + 0.1140 B) / 255) by hand: white 255.47, half 128.24.
        colours = [(0, 0, 0), (255,) * 3, (255, 0, 0), (0, 255, 0), (0, 0, 255), (128,) * 3]
        # These change with the order of the additions.
        colours += [(5, 171, 227), (19, 217, 76), (32, 181, 166), (48, 144, 192), (53, 193, 233)]
        greys = np.array([0, 255, 76, 149, 29, 128, 127, 142, 134, 120, 156], np.uint8)
        assert to_grey(np.array(colours, np.uint8)[..., None])[:, 0].tolist() == greys.tolist()
        rows = [bytes([i % 10, *(level for level in colours[i % 11] for _ in range(1024))])
                for i in range(24)]  # fmt: skip
        names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
        with tarfile.open(tmp_path / "reversed.tar.gz", "w:gz") as archive:
            for n in range(5, -1, -1):
                (tmp_path / names[n]).write_bytes(b"".join(rows[4 * n : 4 * n + 4]))
                archive.add(tmp_path / names[n], f"x/cifar-10-batches-bin/{names[n]}")
        declare(Image, files=(), arrays={}, examples={"train": 20, "test": 4})
        with np.load(Image.import_files(tmp_path / "reversed.tar.gz")) as arrays:
            for split, part in (("train", range(20)), ("test", range(20, 24))):
                assert arrays[f"{split}_targets"].tolist() == [i % 10 for i in part]
                pixels = arrays[f"{split}_pixels"].reshape(len(part), -1)
                assert (pixels == greys[np.array(part) % 11, None]).all()


SMALL = {"train": 36, "dev": 4, "test": 6}  # all of the reviews


class TestText:
    @pytest.fixture
    def imported(self, reviews):
        return Text.import_files(reviews)

    def test_every_review_is_loaded_byte_for_byte_and_truncated_at_a_byte(self, imported, home):
        split = Text(**SMALL).load("test")
        assert texts_of(split) == [[text.encode()] for *_, text in REVIEWS["test"]]
        assert split.targets.tolist() == [0, 0, 0, 1, 1, 1]
        assert split.lengths[0] == 21 and split.sequences[0, 21:].eq(0).all() and split.padded
        truncated = Text(max_len=14, **SMALL).load("test")
        assert truncated.sequences.shape == (6, 14) and not truncated.padded
        assert texts_of(truncated) == [[text.encode()[:14]] for *_, text in REVIEWS["test"]]
        assert [*home.iterdir()] == [imported]  # one import for every length

    def test_train_and_dev_partition_the_official_train_reviews(self, imported):
        splits = [Text(**SMALL).load(name) for name in ("train", "dev")]
        assert [split.targets.bincount().tolist() for split in splits] == [[18, 18], [2, 2]]
        texts = [text for split in splits for (text,) in texts_of(split)]
        assert sorted(texts) == sorted(text.encode() for *_, text in REVIEWS["train"])
        targets = [target for split in splits for target in split.targets.tolist()]
        assert [int(text.split()[1]) for text in texts] == targets

    def test_reviews_that_occur_more_than_once_are_never_in_train_and_dev(self, reviews, declare):
        for i, path in enumerate(sorted(reviews.glob("train/???/*.txt"))):
            if i % 2:  # of both classes: without the rule some are in dev
                path.write_text(f"copy {i // 4}")
        declare(Text, arrays={})
        Text.import_files(reviews)
        train, dev = ({*map(tuple, texts_of(Text(**SMALL).load(n)))} for n in ("train", "dev"))
        assert len(dev) == 4 and not train & dev
        assert not any(text.startswith(b"copy") for (text,) in dev)


LONG = b"x" * 12_000
LITERAL = rb"b'caf\xc3\xa9\n'"
QUOTES = b'quotes " and \\ stay'
PAIRS = {
    "train": [
        (b"1.0", b"A.txt", b"B.txt", LITERAL, "café".encode()),
        (b"0.0", b"B.txt", b"C.txt", "café".encode(), QUOTES),
        (b"1", b"C.txt", b"C.txt", QUOTES, QUOTES),
        (b"0", b"D.txt", b"A.txt", LONG, LITERAL),
    ],
    "eval": [(b"0.0", b"E.txt", b"C.txt", b"only here", QUOTES)],
    "test": [(b"1.0", b"A.txt", b"D.txt", LITERAL, LONG)],
}
FEW = {"train": 4, "dev": 1, "test": 1}


@pytest.fixture
def papers(tmp_path, declare):
    folder = tmp_path / "lra_release" / "lra_release" / "tsv_data"
    folder.mkdir(parents=True)
    for name, rows in PAIRS.items():
        lines = [b"\t".join(row) + b"\n" for row in rows]
        (folder / f"new_aan_pairs.{name}.tsv").write_bytes(b"".join(lines))
    declare(Retrieval, examples=FEW)
    return folder


class TestRetrieval:
    def test_every_pair_is_loaded_byte_for_byte_in_its_order(self, papers):
        first = Retrieval.import_files(papers).read_bytes()
        require_conformance("retrieval", **FEW)
        for name, official in zip(SPLITS, PAIRS, strict=True):
            split, rows = Retrieval(**FEW).load(name), PAIRS[official]
            expected = [[left[:4000], right[:4000]] for *_, left, right in rows]
            assert texts_of(split) == expected
            assert split.targets.tolist() == [int(float(row[0])) for row in rows]
            # Each text is stored once, and only in splits that use it.
            assert len(split.sequences) == len({text for pair in expected for text in pair})
        path = papers / "new_aan_pairs.eval.tsv"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        archive = pack(papers.parents[1], "lra_release.gz")
        assert Retrieval.import_files(archive).read_bytes() == first

    def test_texts_are_truncated_at_max_len_and_cached_to_ten_thousand_bytes(self, papers):
        Retrieval.import_files(papers)
        load = lambda name, **options: Retrieval(**FEW | options).load(name)  # noqa: E731
        assert texts_of(load("test", max_len=9)) == [[rb"b'caf\xc3", b"x" * 9]]
        assert load("test", max_len=10_000).lengths.tolist() == [16, 10_000]
        assert [load("train", max_len=n).padded for n in (5, 6)] == [False, True]
        assert load("train", train=2).targets.tolist() == [1, 1]  # of 1, 0, 1, 0
        with one_line("retrieval.train=5"):
            load("train", train=5)


TREES = {
    "train": [("( ( ( [MAX 1 ) 2 ) ] )", 2), ("( ( ( ( [SM 7 ) 8 ) 9 ) ] )", 4)],
    "val": [("( ( ( [MED 3 ) ( ( ( [MIN 0 ) 9 ) ] ) ) ] )", 1)], "test": [("( ( [MIN 5 ) ] )", 5)],
}  # fmt: skip


@pytest.fixture
def trees(tmp_path, declare):
    folder = tmp_path / "lra_release" / "listops-1000"
    folder.mkdir(parents=True)
    for split, rows in TREES.items():
        lines = ["Source\tTarget", *(f"{tree}\t{value}" for tree, value in rows)]
        (folder / f"basic_{split}.tsv").write_text("\n".join(lines) + "\n")
    declare(OfficialListOps, examples={"train": 2, "dev": 1, "test": 1})
    return folder


class TestOfficialListOps:
    def test_the_trees_of_a_file_are_its_split_in_their_order(self, trees):
        OfficialListOps.import_files(trees.parent)
        require_conformance("listops-lra", train=2, dev=1, test=1)
        for name, rows in zip(SPLITS, TREES.values(), strict=True):
            split = OfficialListOps(train=2, dev=1, test=1).load(name)
            expected = [[tokenise(tree).tolist()] for tree, _ in rows]
            assert [split.tokens(i) for i in range(len(split))] == expected
            assert split.targets.tolist() == [value for _, value in rows]


def png(level: int, size: int = 32, mode: str = "L") -> bytes:
    stream, levels = io.BytesIO(), np.full((size, size), level, np.uint8)
    PIL.Image.fromarray(levels).convert(mode).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def snakes(tmp_path, declare):
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
    declare(OfficialPathfinder, examples={"train": 8, "dev": 1, "test": 1})
    return folder


class TestOfficialPathfinder:
    def test_every_listed_image_is_in_one_split_with_its_class(self, snakes):
        content = OfficialPathfinder.import_files(snakes).read_bytes()
        require_conformance("pathfinder-lra", train=8, dev=1, test=1)
        archive = pack(snakes.parents[1], "lra_release.gz")
        assert OfficialPathfinder.import_files(archive).read_bytes() == content
        task = OfficialPathfinder(train=8, dev=1, test=1)
        splits = [task.load(name) for name in SPLITS]
        classes = {}
        for split, count in zip(splits, (8, 1, 1), strict=True):
            assert split.sequences.shape == (count, 1024) and not split.padded
            assert (split.sequences == split.sequences[:, :1]).all()
            levels = split.sequences[:, 0].tolist()
            classes |= dict(zip(levels, split.targets.tolist(), strict=True))
        assert classes == {level: level % 10 % 2 for level in (*range(5), *range(10, 15))}
        assert splits[0].sequences[:, 0].tolist() != sorted(splits[0].sequences[:, 0].tolist())


def line(number: int, new: bytes):
    return lambda old: old.replace(old.splitlines()[number - 1], new)


def text(old: str, new: str):
    return lambda content: content.replace(old.encode(), new.encode())


def first(**changes):
    def change(content: bytes) -> bytes:
        row, *others = lzma.decompress(content).splitlines()
        changed = json.dumps(json.loads(row) | changes).encode()
        return lzma.compress(b"\n".join([changed, *others]))

    return change


def packed(**changes):
    def change(content: bytes) -> bytes:
        arrays, stream = {**np.load(io.BytesIO(content))} | changes, io.BytesIO()
        np.savez(stream, **{n: array for n, array in arrays.items() if array is not None})
        return stream.getvalue()

    return change


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint8)


TASKS = {
    "images": Image, "reviews": Text, "packed": Text, "papers": Retrieval, "trees": OfficialListOps,
    "snakes": OfficialPathfinder, "official": WikiText, "vowels": tasks.find("uea-japanese-vowels"),
}  # fmt: skip
DAMAGED = {
    ("official", "wiki.train.tokens"): [lambda old: old[:-1]],
    ("official", "wiki.test.tokens"): [b"other"],
    ("vowels", "JapaneseVowels_TEST.ts"): [
        text("true 1 2", "true 2 1"), text(" 8 9\n", " 8 9 10\n"),
        lambda old: old.rsplit(b"\n", 2)[0],
    ],
    ("images", "cifar10_gray_uint8.npz"): [
        packed(x_train=zeros(200, 32, 31)), packed(x_train=zeros(199, 32, 32)),
        packed(y_test=zeros(30)), packed(y_test=None),
        packed(x_test=np.array(["pickled"], object)), b"", b"PK\x03\x04 and no more",
    ],
    ("reviews", "test/neg/0_2.txt"): [None, b"caf\xe9", lambda _: b"x" * (SMALL_FILE + 1)],
    ("reviews", "test/pos/3.txt"): [b"fine"],
    ("reviews", "train/neg/20_1.txt"): [b"fine"],
    ("packed", "imdb_test.jsonl.xz"): [
        first(label=1), first(text=None), lzma.compress(b"[]"), lambda old: old[:-30],
    ],
    ("papers", "new_aan_pairs.train.tsv"): [None, *(line(3, new) for new in (
        b"0.0\tA\tB\ttext", b"0.0\tA\tB\t1\t2\t3", b"2.0\tA\tB\tone\ttwo",
        b"1.0\tA\tB\tcaf\xe9\ttwo", b"1.0\tA\tB\t\ttwo", b"1.0\tA\tB\tone\t",
    ))],
    ("trees", "basic_train.tsv"): [
        text("e\t", "e,"), text(")\t4", ")\t5"), text("[SM", "[SUM"), text(" ] )\t2", "\t2"),
        text("2 )", "2 ) " * 2000), lambda old: old[: old.index(b"\n( ( ( ( [SM")],
    ],
    ("snakes", "imgs/0/sample_1.png"): [png(1)[:60], png(1, 64), png(1, 32, "RGB"), None],
    ("snakes", "imgs/0/notes.txt"): [b""],
    ("snakes", "metadata/0.npy"): [
        b"imgs/0 sample_0.png 0\n", b"imgs/10 sample_0.png 0 1\n", b"",
        b"\x93NUMPY" + pickle.dumps([1]), pickle.dumps(["x"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "name", "change"),
    [(*place, change) for place, changes in DAMAGED.items() for change in changes],
)
def test_a_damaged_file_is_one_line(request, rejected, declare, tmp_path, source, name, change):
    folder = request.getfixturevalue("reviews" if source == "packed" else source)
    if source == "images":  # without the digest of the whole file
        folder = tmp_path / "packed"
        declare(Image, files=())
    folder = packed_reviews(tmp_path / "packed") if source == "packed" else folder
    path = folder / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change if isinstance(change, bytes) else change(path.read_bytes()))
    rejected(TASKS[source], folder)
