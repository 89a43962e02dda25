"""Importing: nothing unverified gets in, and the status tells what is there."""

import re
from dataclasses import replace

import pytest

from tasks.data import sources
from tasks.data.files import source_of
from tasks.lra.image import Image
from tasks.lra.listops import ListOps
from tasks.lra.text import Text
from tests.tasks.conftest import facts
from zoo.registry import UserError


@pytest.mark.parametrize("task", ["image", "retrieval", "text"])
def test_the_known_files_are_stated_in_full(task):
    known = source_of(task)
    assert known.origin.startswith("https://")
    assert known.title and known.terms and known.rows
    assert len({edition.name for edition in known.editions}) == len(known.editions) > 0
    assert all(len(digest) == 64 for digest in known.arrays.values())
    for archive in known.public:
        assert archive.size > 80_000_000
        assert re.fullmatch("sha256:[0-9a-f]{64}", archive.digest)
        assert all(url.startswith("https://") for url in archive.mirrors)
    for file in (file for edition in known.editions for file in edition.files):
        assert re.fullmatch("sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}|unpublished", file.digest)
        assert (file.size > 8_000_000) == (file.digest != "unpublished")


def test_everything_that_is_kept_can_be_proved_but_for_retrieval():
    assert source_of("image").arrays.keys() == {
        "train_pixels", "train_targets", "test_pixels", "test_targets",
    }  # fmt: skip
    assert len(source_of("text").arrays) == 6
    assert source_of("retrieval").rows == {"train": 147_086, "dev": 18_090, "test": 17_437}
    assert source_of("retrieval").public == ()


def test_each_setting_has_its_own_data_beside_the_others():
    sizes = {"min_len": 2, "max_len": 24, "train": 20, "dev": 2, "test": 2}
    settings = [ListOps(**sizes, seed=seed) for seed in (1, 0)]
    assert [task.is_there() for task in settings] == [False, False]
    own = [task.generate()["train_values"].tobytes() for task in settings]
    for _ in range(2):
        found = [task.arrays(["train_values"])[0].tobytes() for task in settings]
        assert found == own and found[0] != found[1]
    assert [task.is_there() for task in settings] == [True, True]


@pytest.mark.parametrize(
    "packed", [b"no archive at all", None, b""], ids=["foreign", "cut", "empty"]
)
@pytest.mark.parametrize("task", [Text, Image])
def test_a_file_that_cannot_be_decoded_is_refused(task, packed, pictures_or_reviews, home):
    archive = pictures_or_reviews(task)
    (edition,) = archive.source.editions
    file, *rest = edition.files
    path = archive.folder / file.name
    if packed is None:
        packed = path.read_bytes()[:-30]
    path.write_bytes(packed)
    known = replace(edition, files=(facts(path), *rest))
    with pytest.raises(UserError, match=f"{path} cannot be decoded") as refused:
        task.bring(archive.folder, replace(archive.source, editions=(known,)))
    assert "\n" not in str(refused.value)
    assert not home.exists()


@pytest.fixture
def pictures_or_reviews(request):
    return lambda task: request.getfixturevalue("pictures" if task is Image else "reviews")


def test_a_failed_import_keeps_what_was_imported_before(reviews, home):
    Text.bring(reviews.folder, reviews.source)
    before = [(path, path.read_bytes()) for path in home.iterdir()]
    (reviews.folder / "train.jsonl.xz").write_bytes(b"spoiled")
    with pytest.raises(UserError):
        Text.bring(reviews.folder, reviews.source)
    assert [(path, path.read_bytes()) for path in home.iterdir()] == before


def test_importing_again_mends_a_damaged_cache(pictures):
    path = Image.bring(pictures.folder, pictures.source)
    good = path.read_bytes()
    path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="then run 'harness data fetch image'"):
        Image().load("test")
    assert Image.bring(pictures.folder, pictures.source).read_bytes() == good


def test_only_known_files_pass_for_the_real_ones(pictures):
    (pictures.folder / "cifar10_gray_uint8.npz").write_bytes(b"short")
    with pytest.raises(UserError, match="has 5 bytes, 47185241 expected"):
        sources.import_data("image", pictures.folder)


def test_there_is_nothing_to_import_for_a_generated_task(tmp_path):
    with pytest.raises(UserError, match="listops is generated when it is run; nothing to import"):
        sources.import_data("listops", tmp_path)


def test_an_unknown_task_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(UserError, match="unknown task 'imagee'; did you mean 'image'"):
        sources.import_data("imagee", tmp_path)


def test_the_status_tells_what_is_there_and_how_to_get_the_rest(pictures):
    path = Image.bring(pictures.folder, pictures.source)
    ListOps(min_len=3, max_len=30, train=20, dev=5, test=5).load("dev")
    found = {holding.task: holding for holding in sources.status()}
    assert found["image"] == ("image", [path], "")
    assert len(found["listops"].paths) == 1
    assert found["text"].paths == []
    assert found["text"].remedy.startswith("run 'harness data fetch text', or ")
    assert "\n" not in found["text"].remedy


def test_the_status_ignores_the_data_of_another_version(monkeypatch, pictures):
    Image.bring(pictures.folder, pictures.source)
    monkeypatch.setattr(Image, "version", 2)
    assert next(h for h in sources.status() if h.task == "image").paths == []
