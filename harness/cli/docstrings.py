"""What docstrings say of options: the texts of the help and of `harness list`."""

import inspect
import re


def meanings(factory: type) -> dict[str, str]:
    """What the docstrings of a class and of its bases say of each parameter.

    That is an entry of a section, `name: text`, or a first line that begins with its name.
    """
    texts: dict[str, str] = {}
    for owner in reversed(factory.__mro__):
        for documented in (owner, vars(owner).get("__init__")):
            docstring = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
            found = re.findall(r"^ {4}(\w[\w, ]*): (.+(?:\n {8}.+)*)", docstring, re.MULTILINE)
            found += re.findall(r"\A`(\w+)`: (.+)", docstring)
            for names, text in found:
                texts |= dict.fromkeys(names.split(", "), " ".join(text.split()).rstrip("."))
    return texts
