"""Images as files in folders: their list, their splits, and the decoding of a batch.

Transforms are by timm, which belongs to the extra `vision`.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from tasks.contract import Batch, Split
from tasks.data.corpus import class_order
from tasks.data.extras import import_extra
from tasks.data.files import decoding, require_regular, system_errors
from zoo.registry import UserError

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")  # Suffixes of the files of images, in lower case

# Suffixes of images that are rejected; files of other suffixes, and hidden ones, are ignored.
UNREAD = (
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".jxl", ".ppm", ".tga",
    ".tif", ".tiff",
)  # fmt: skip

Augmentation = Literal["none", "crop", "deit"]

# Arguments of `timm.data.create_transform`. In evaluation a side is resized to size / 0.875.
AUGMENTATIONS: Mapping[Augmentation, Mapping[str, Any]] = {
    "none": {"is_training": False, "crop_pct": 0.875},
    "crop": {"is_training": True, "color_jitter": None},
    "deit": {"is_training": True, "auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25,
             "re_mode": "pixel"},
}  # fmt: skip

Transform = Callable[[Any], Tensor]  # From an image of pillow to a tensor, (3, h, w)


@runtime_checkable
class ImageTask(Protocol):
    """A task of square colour images, `size` pixels a side, in patches of `patch` pixels a side."""

    size: int
    patch: int


@dataclass(frozen=True, kw_only=True)
class Listing:
    # The images of a folder, in the order of their classes and names.
    root: str
    names: np.ndarray  # Paths in `root`, encoded as the file system does
    sizes: Int64[np.ndarray, " n"]  # Bytes
    targets: Int64[np.ndarray, " n"]

    def select(self, chosen: Bool[np.ndarray, " n"]) -> "Listing":
        columns = {name: getattr(self, name)[chosen] for name in ("names", "sizes", "targets")}
        return replace(self, **columns)


@dataclass(frozen=True, kw_only=True)
class ImageSplit(Split):
    """A split whose images are read when a batch is gathered; `sequences` hold no tokens."""

    files: Listing
    classes: int
    pixels: int

    @classmethod
    def of(cls, files: Listing, classes: int, pixels: int) -> "ImageSplit":
        sequences = torch.empty(len(files.targets), 0, dtype=torch.uint8)
        plain = Split.single(sequences, None, torch.from_numpy(files.targets))
        return cls(**vars(plain), files=files, classes=classes, pixels=pixels)

    def gather(self, examples: Int[Tensor, " b"], length: int | None = None) -> Batch:
        transform = transform_of("none", self.pixels)
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            images = [*threads.map(lambda i: self.image(i, transform), examples.tolist())]
        return Batch(torch.stack(images).to(self.targets.device), None, self.targets[examples])

    def image(self, example: int, transform: Transform) -> Float[Tensor, "3 h w"]:
        return transform(decode(Path(self.files.root) / os.fsdecode(self.files.names[example])))

    def digest(self) -> str:
        # Without the pixels, which would take minutes for ImageNet: a replaced file of the same
        # size is not noticed.
        sha256 = hashlib.sha256()
        rows = zip(self.files.names, self.files.sizes, self.files.targets, strict=True)
        for name, size, target in rows:
            sha256.update(b"%b\0%d %d\n" % (name.replace(os.sep.encode(), b"/"), size, target))
        return sha256.hexdigest()


def class_names(folder: Path) -> list[str]:
    names = []
    for entry in _entries(folder):
        if _is_folder(entry):
            names.append(entry.name)
        elif entry.is_symlink() and not Path(entry.path).exists():
            raise UserError(f"{entry.path} is a link to nothing; correct or remove it")
        elif entry.name.lower().endswith((*SUFFIXES, *UNREAD)):
            raise UserError(f"{entry.path} is in no folder of a class; move it into one")
    return class_order(folder, names)


def list_images(root: Path, part: str, classes: Sequence[str]) -> Listing:
    rows: list[tuple[bytes, int, int]] = []
    for target, name in enumerate(classes):
        folder, before = root / part / name, len(rows)
        for entry in _entries(folder):
            if _is_folder(entry):
                raise UserError(f"{entry.path} is a folder in a class; move its images out of it")
            if entry.name.lower().endswith(UNREAD):
                raise UserError(
                    f"{entry.path} is not {' or '.join(SUFFIXES)}; convert or remove it"
                )
            if not entry.name.lower().endswith(SUFFIXES):
                continue
            if not entry.is_file(follow_symlinks=False):
                require_regular(Path(entry.path))
            with system_errors(entry.path):
                size = entry.stat().st_size
            rows.append((os.fsencode(Path(part, name, entry.name)), size, target))
        if len(rows) == before:
            raise UserError(f"{folder} has no image ({', '.join(SUFFIXES)}); add some or remove it")
    names, sizes, targets = map(np.array, zip(*rows, strict=True))
    return Listing(root=str(root), names=names, sizes=sizes, targets=targets)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    folder = entry.is_dir(follow_symlinks=False)
    return folder or (entry.is_symlink() and Path(entry.path).is_dir())


def decode(path: Path) -> Any:
    # Read the higher 8 of 16 bits of grey, the first frame of an animation, and no transparency.
    from PIL import Image, ImageOps

    require_regular(path)
    formats = ("JPEG", "PNG", "WEBP")  # By content, whatever the suffix
    with decoding(path, "replace or remove it"), Image.open(path, formats=formats) as image:
        ImageOps.exif_transpose(image, in_place=True)
        image.info.pop("transparency", None)  # `convert` warns of a transparent palette
        if image.mode == "I;16":  # `convert` would clip at 255
            return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
        return image.convert("RGB")


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with system_errors(folder), os.scandir(folder) as entries:
        visible = [entry for entry in entries if entry.name[0] != "."]
    return sorted(visible, key=lambda entry: entry.name)


@cache
def transform_of(augmentation: Augmentation, pixels: int) -> Transform:
    # `crop` resizes a random part of an image and mirrors every second one. `deit` (Touvron et al.,
    # 2021, arXiv 2012.12877) adds RandAugment and erases a rectangle in a quarter of the images.
    require_timm()
    from timm.data.transforms_factory import create_transform

    found: Any = create_transform(pixels, interpolation="bicubic", **AUGMENTATIONS[augmentation])
    return found


@cache
def require_timm() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _declare_operators()
        for module in ("torchvision", "timm.data", "timm.models.vision_transformer"):
            import_extra("a task of images", module, "vision")


@cache
def _declare_operators() -> torch.library.Library | None:
    # The wheel for CUDA does not load beside PyTorch for CPUs, and torchvision describes its
    # operators to PyTorch on import even then. The cache keeps the library alive, and with it the
    # operators, which nothing here uses.
    spec = find_spec("torchvision")
    folders = spec.submodule_search_locations if spec else None
    libraries = [path for folder in folders or () for path in Path(folder).glob("_C.*")]
    try:
        for path in libraries:
            torch.ops.load_library(path)
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        return library
    return None
