"""Transforms of decoded images, by timm, which belongs to the extra `vision`."""

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from tasks.data.extras import import_extra

OPERATORS = ("nms", "qnms")
"""Of torchvision, which it describes to PyTorch on import even where it cannot load them."""

Augmentation = Literal["none", "crop", "deit"]

AUGMENTATIONS: Mapping[Augmentation, Mapping[str, Any]] = {
    "none": {"is_training": False, "crop_pct": 0.875},
    "crop": {"is_training": True, "color_jitter": None},
    "deit": {
        "is_training": True,
        "auto_augment": "rand-m9-mstd0.5-inc1",
        "re_prob": 0.25,
        "re_mode": "pixel",
    },
}
"""Arguments of `timm.data.create_transform`. In evaluation a side is resized to size / 0.875."""

Transform = Callable[[Image.Image], Tensor]


@cache
def transform_of(augmentation: Augmentation, pixels: int) -> Transform:
    """From a decoded image to a normalised tensor, (3, h, w); random except for `none`.

    `crop` is a random part of the image, resized, and half of the time mirrored. `deit` adds the
    operations of RandAugment and erases a rectangle in a quarter of the images, as DeiT (Touvron et
    al., 2021, arXiv 2012.12877).

    Raises:
        UserError: timm is not installed.
    """
    require_timm()
    from timm.data.transforms_factory import create_transform

    options = AUGMENTATIONS[augmentation]
    result: Any = create_transform(pixels, interpolation="bicubic", **options)
    return result


@cache
def require_timm() -> None:
    """Import timm, and torchvision beside a PyTorch of another build too.

    Raises:
        UserError: one of them is missing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _declare_operators()
        for module in ("torchvision", "timm.data", "timm.models.vision_transformer"):
            import_extra("a task of images", module, "vision")


def _declare_operators() -> None:
    """Declare the operators of torchvision where its library was built for another PyTorch.

    The wheel for CUDA does not load beside PyTorch for CPUs. No operator is used here.
    """
    spec = find_spec("torchvision")
    folders = spec.submodule_search_locations if spec else None
    libraries = [path for folder in folders or () for path in Path(folder).glob("_C.*")]
    try:
        for path in libraries:
            torch.ops.load_library(path)
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in OPERATORS:
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        # The operators exist for as long as the library does.
        _DECLARED.append(library)


_DECLARED: list[torch.library.Library] = []
