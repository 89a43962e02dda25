"""Packages that only some tasks need."""

from importlib import import_module
from types import ModuleType

from zoo.registry import UserError, in_one_line, load_guarded


def import_extra(owner: str, module: str, extra: str) -> ModuleType:
    try:
        return load_guarded(lambda: import_module(module))
    except Exception as error:
        raise UserError(
            f"{owner} needs {module}, which cannot be imported ({in_one_line(error)}); "
            f"in the clone of this project run: pip install -c constraints.txt -e '.[{extra}]'"
        ) from error
