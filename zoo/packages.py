"""Published packages that a variant wraps, imported when the variant is built."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import ModuleType

from torch import Tensor

from zoo.contract import Unsupported
from zoo.registry import in_one_line, load_guarded


def load(owner: str, module: str, package: str) -> ModuleType:
    try:
        with silence():
            return load_guarded(lambda: import_module(module))
    except Exception as error:
        raise Unsupported(f"{owner} needs {package}, which cannot be imported "
                          f"({in_one_line(error)}); pip install {package}") from error  # fmt: skip


def library(self: object, x: Tensor) -> str:
    """See `Attention.backend_for`: the package of a variant that wraps one."""
    return "library"


@contextmanager
def silence() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
