"""What was meant by an option that a command does not have."""

import re
from collections.abc import Container, Iterator, Sequence


def hint(option: str, argv: Sequence[str], *, recipe: bool) -> str:
    """Which `--set OWNER.NAME=VALUE` an unknown option means; empty where there is none.

    Args:
        option: as `--lr`.
        argv: all arguments; a variant that they name is preferred, a task is named by them.
        recipe: whether the command trains, and has fields of `model` and `train`.
    """
    name, named = option.lstrip("-").replace("-", "_"), set(re.split("[,+=]", ",".join(argv)))
    owners = list(_owners(name, named, recipe))
    owners = [owner for owner in owners if owner in {"train", "model", *named}] or owners
    if not owners:
        return ""
    value = next(_values(option, argv), "VALUE")
    others = f" (also an option of {', '.join(owners[1:])})" if owners[1:] else ""
    return f"give --set {owners[0]}.{name}={value}{others}"


def _owners(name: str, tasks: Container[str], recipe: bool) -> Iterator[str]:
    """The owners of options of that name: the recipe, then variants, then `tasks`."""
    from harness.cli.catalogue import described
    from harness.records.models import MODELS
    from harness.records.spec import TrainSpec

    of_models = {field for kind in MODELS.values() for field in kind.model_fields} - {"kind"}
    for owner, fields in (("train", {*TrainSpec.model_fields}), ("model", of_models)):
        if recipe and name in fields:
            yield owner
    document = described()
    chosen = (task for task in document["tasks"] if task["name"] in tasks)
    for entry in (*document["variants"], *chosen):
        if any(option["name"] == name for option in entry["options"]):
            yield entry["name"]


def _values(option: str, argv: Sequence[str]) -> Iterator[str]:
    """The value that the option has on the command line, if it has one."""
    for text, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = text.partition("=")
        value = value if equals else following
        if name == option and value and not value.startswith("--"):
            yield value
