"""Packages that only some tasks need."""

from importlib import import_module
from types import ModuleType

from zoo.registry import UserError, in_one_line, load_guarded


def how_to_install(extra: str) -> str:
    """The command that installs an extra of this package, in the versions that are tested."""
    return f"in the clone of this project run: pip install -c constraints.txt -e '.[{extra}]'"


def import_extra(owner: str, module: str, extra: str) -> ModuleType:
    """Import `module` for `owner`."""
    try:
        return load_guarded(lambda: import_module(module))
    except Exception as error:
        raise UserError(
            f"{owner} needs {module}, which cannot be imported ({in_one_line(error)}); "
            f"{how_to_install(extra)}"
        ) from error
