"""The global state of PyTorch, which all runs of a process share: each must leave it as it was.

It consists of settings, such as the default dtype, and of the functions and classes that PyTorch
offers, which a plug-in may have replaced.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.backends import cuda, cudnn, mkldnn
from torch.utils import deterministic

from zoo.registry import UserError

FOLDER = str(Path(torch.__file__).parent)
"""PyTorch's. Its optimisers and its compiler replace attributes, by internal functions."""

MODULES = (
    torch, torch.nn, torch.nn.functional, torch.nn.init, torch.optim, torch.autograd, torch.linalg,
    torch.fft, torch.special,
)  # fmt: skip


class Setting(NamedTuple):
    """How a setting is read and written."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


def _attribute(owner: Any, name: str) -> Setting:
    return Setting(partial(getattr, owner, name), partial(setattr, owner, name))


SETTINGS: Mapping[str, Setting] = {
    "the default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    # None, and not the CPU, is the state without any default.
    "the default device": Setting(
        torch.get_default_device,
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    ),
    "the gradient mode": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "the number of threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": Setting(
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda both: torch.use_deterministic_algorithms(both[0], warn_only=both[1]),
    ),
    "the fill of uninitialised memory": _attribute(deterministic, "fill_uninitialized_memory"),
    "the precision of float32 products": Setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    "the detection of anomalies": Setting(
        torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly
    ),
    "denormal numbers": Setting(
        # Nothing else tells whether they are flushed to zero.
        lambda: bool(torch.full((), 1e-39, dtype=torch.float32, device="cpu").mul(1) == 0),
        torch.set_flush_denormal,
    ),
    "autocast": Setting(
        lambda: torch.is_autocast_enabled("cpu"), partial(torch.set_autocast_enabled, "cpu")
    ),
    "oneDNN": _attribute(mkldnn, "enabled"),
    "flash attention": Setting(cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    "efficient attention": Setting(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
    "plain attention": Setting(cuda.math_sdp_enabled, cuda.enable_math_sdp),
    **{f"cuDNN's {name}": _attribute(cudnn, name) for name in ("benchmark", "deterministic")},
}


@contextmanager
def unchanged(who: str) -> Iterator[None]:
    """Restore the state of PyTorch at the end.

    Raises:
        UserError: `who` has changed it, and raised no other error.
    """
    settings = {name: setting.read() for name, setting in SETTINGS.items()}
    attributes = _attributes()
    changed = []
    try:
        yield
    finally:
        for name, before in settings.items():
            if SETTINGS[name].read() != before:
                changed.append(name)
                SETTINGS[name].write(before)
        changed += _restore(attributes)
    if changed:
        raise UserError(
            f"{who} changes the state of PyTorch that all runs share ({', '.join(changed[:5])}); "
            "restore it after use"
        )


def _attributes() -> dict[Any, dict[str, Any]]:
    """What can be called of PyTorch's modules and of their classes, by owner and name."""
    classes = {
        value
        for module in MODULES[:5]
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__.startswith("torch")
    }
    owners = [*MODULES, *classes]
    return {owner: {k: v for k, v in vars(owner).items() if callable(v)} for owner in owners}


def _restore(before: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """Put replaced attributes back; return their names."""
    replaced, public = [], {id(value) for owned in before.values() for value in owned.values()}
    for owner, attributes in _attributes().items():
        # What is new in a class may hide what a base class has; in a module it hides nothing.
        expected = before.get(owner, attributes)
        names = {*expected, *(attributes if isinstance(owner, type) else ())}
        for name in sorted(names):
            value = attributes.get(name)
            if value is expected.get(name):
                continue
            if _is_of_torch(value) and id(value) not in public:
                continue
            if name in expected:
                setattr(owner, name, expected[name])
            else:
                delattr(owner, name)
            label = owner.__name__ if owner in MODULES else f"{owner.__module__}.{owner.__name__}"
            replaced.append(f"{label}.{name}")
    return replaced


def _is_of_torch(value: Any) -> bool:
    """Whether the code of a function is PyTorch's."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(FOLDER)
