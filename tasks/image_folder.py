"""Image folder: a user's colour images, one folder a class, such as ImageNet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tasks.contract import SPLITS, Split, SplitName, Task
from tasks.data.corpus import require_shares, stratified
from tasks.data.images import ImageSplit, Listing, class_names, list_images
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least


@tasks.register("image-folder")
@dataclass(frozen=True, kw_only=True)
class ImageFolder(Task):
    """Files in `PATH/train/CLASS/` and `PATH/val/CLASS/`, or in `PATH/CLASS/`.

    The folder `val` is test, which is read once; dev is a share of each class of `train`, drawn
    from `seed`. If there is a folder `test` of classes, it is test, and `val`, if any, is dev.
    Without such folders, test is drawn in the same way. `validation` is another name of `val`.
    Classes are in the order of their names, numbers in their own.

    An image is cut into patches, which are the tokens; before them is the class token.

    Attributes:
        path: the folder.
        dev: share of dev.
        test: share of test, without a folder of it.
        seed: seed of the splits.
        size: pixels of an image along each side.
        patch: pixels of a patch along each side.
    """

    name = "image-folder"
    version = 2
    inputs = "images"
    packages = ("timm",)
    vocabulary = 0
    channels = 3

    path: str
    size: int = 224
    patch: int = 16
    dev: float = 0.04
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least(8, self.name, size=self.size)
        require_at_least(1, self.name, patch=self.patch)
        if self.size % self.patch:
            value = f"image-folder.size={self.size}"
            raise UserError(f"{value} is not a multiple of patch={self.patch}; give another size")
        require_shares(self.name, self.dev, self.test, self.seed)
        self._derive(classes=len(self._names), max_len=(self.size // self.patch) ** 2 + 1)

    def load(self, split: SplitName) -> Split:
        return ImageSplit.of(self._splits[split], self.classes, self.size)

    def show(self, split: Split, example: int) -> list[str]:
        found = [split.files.names[example]] if isinstance(split, ImageSplit) else []
        return [name.decode(errors="backslashreplace") for name in found]

    def class_name(self, target: int) -> str:
        return self._names[target]

    @cached_property
    def _folders(self) -> Mapping[SplitName, str]:
        root = Path(self.path)
        found = [name for name in ("train", "val", "validation") if (root / name).is_dir()]
        if not found:
            return {}
        # ImageNet's folder `test` has images without classes.
        has_test = (root / "test").is_dir() and any(e.is_dir() for e in (root / "test").iterdir())
        others = [name for name in found if name != "train"]
        if len(others) == len(found) or len(others) > 1 or not (others or has_test):
            remedy = "give train and val, or train, val and test, or folders of classes"
            raise UserError(f"{self.path} has the folders {', '.join(found)}; {remedy}")
        given: dict[SplitName, str] = {"train": "train", "test": "test" if has_test else others[0]}
        if has_test and others:
            given["dev"] = others[0]
        return given

    @cached_property
    def _names(self) -> Sequence[str]:
        root = Path(self.path)
        if not root.is_dir():
            remedy = "give one with train/CLASS/ and val/CLASS/, or with CLASS/"
            raise UserError(f"image-folder.path={self.path} is not a folder; {remedy}")
        names = class_names(root / self._folders.get("train", ""))
        if len(names) < 2:
            raise UserError(f"{self.path} has {len(names)} folders of classes; give at least two")
        for folder in self._folders.values():
            for name in sorted({*names} ^ {*class_names(root / folder)}):
                place = "train" if name in names else folder
                raise UserError(f"{self.path} has {name!r} in {place} only; add or remove it")
        return names

    @cached_property
    def _splits(self) -> Mapping[str, Listing]:
        root, names, folders = Path(self.path), self._names, self._folders
        given = {split: list_images(root, folder, names) for split, folder in folders.items()}
        if "dev" in given:
            return given
        files = given["train"] if folders else list_images(root, "", names)
        keys = np.random.Generator(np.random.PCG64(self.seed)).random(len(files.targets))
        test = None if folders else self.test
        indices = stratified(
            files.targets, keys, names, dev=self.dev, test=test, owner=self.path, items="images"
        )
        drawn = {name: files.select(indices == i) for i, name in enumerate(SPLITS)}
        return {**drawn, "test": given["test"]} if folders else drawn
