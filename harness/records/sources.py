"""Digests of the source of variants, and whether the code and the data of a record are current.

Source files are read without importing them, so that pages and tables need no torch. A digest is
of the code alone: comments, docstrings, blank lines and the width of indents do not count.
"""

import hashlib
import io
import json
import keyword
import sys
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

MARKS = {tokenize.INDENT: "\x01", tokenize.DEDENT: "\x02", tokenize.ENDMARKER: ""}
"""The normal form of the changes of indents."""

UNKNOWN = ""
"""The code of a record without digests, or with digests of the text with its comments."""

OURS = {"zoo", "tasks", "harness", "reports"}
"""The packages of this project, of which `zoo` alone is code of variants."""

BEHAVIOUR = Path(__file__).parents[1] / "behaviour.json"
"""What each variant computes; see `harness.behaviour`."""

INSTALLED = {"site-packages", "dist-packages"}
"""The names of folders of installed packages, which are not of one author."""

Import = tuple[str, tuple[str, ...]]
"""A module, perhaps relative, and the names that are taken from it."""


class Code(NamedTuple):
    """The normal form of a module, and what it imports."""

    text: str
    imports: frozenset[Import]


class Sources:
    """The source files of modules, each read once."""

    def __init__(self) -> None:
        self._spec, self._read = cache(self._find), cache(self._read_now)
        self._digests: dict[str, str] = {}

    def digest(self, module: str) -> str:
        """`MODULE:SHA-256` of the code of a module, and of what it imports; empty without source.

        What it imports counts where it is of `zoo`, of the package of the module, or in its folder.
        """
        if module not in self._digests:
            found = self.closure(module, {"zoo", module.partition(".")[0]})
            self._digests[module] = f"{module}:{digest_of(found)}" if found else UNKNOWN
        return self._digests[module]

    def closure(self, module: str, packages: Collection[str]) -> dict[str, str]:
        """The code of a module, and of the modules of `packages` that it imports, by name.

        Modules beside it, or beside its package, count as well, unless they are installed; imports
        in functions and of imported modules count. Not found are modules that a program names in
        another way, as by `import_module`, and what `zoo/__init__.py` imports on first use. Nothing
        is imported.
        """
        found: dict[str, str] = {}
        left, folder, within = [module], self._folder(module), tuple(f"{p}." for p in packages)
        while left:
            name = left.pop()
            direct = None if name in found or name == "zoo" else self._read(name)
            if direct:
                found[name] = direct[0]
                left += (
                    other for other in direct[1]
                    if f"{other}.".startswith(within) or (folder and self._folder(other) == folder)
                )  # fmt: skip
        return found

    def _folder(self, module: str) -> Path | None:
        """The folder of a module, or of its package; None of `OURS`, and of what is installed."""
        top = module.partition(".")[0]
        spec = None if top in OURS else self._spec(top)
        if not (spec and spec.origin and spec.has_location):
            return None
        file = Path(spec.origin).absolute()
        folder = file.parent.parent if spec.submodule_search_locations else file.parent
        return None if folder.name in INSTALLED else folder

    def _read_now(self, module: str) -> tuple[str, tuple[str, ...]] | None:
        """The code of a module, and the modules that it imports; None where it has no source."""
        spec, source = self._spec(module), None
        # A package without `__init__` has no origin.
        if spec and spec.origin and isinstance(spec.loader, InspectLoader):
            with suppress(ImportError, OSError, SyntaxError):
                source = spec.loader.get_source(spec.name)
        if spec is None or source is None:
            return None
        code = parse(source)
        imports = (self._modules(spec.parent or "", *one) for one in code.imports)
        return code.text, tuple(sorted(name for names in imports for name in names))

    def _modules(self, parent: str, start: str, names: tuple[str, ...]) -> list[str]:
        with suppress(ImportError):
            start = resolve_name(start, parent)
            paths = (f"{start}.{name}" for name in names)
            modules = [path for path in paths if getattr(self._spec(path), "origin", None)]
            return modules if modules and len(modules) == len(names) else [start, *modules]
        return []  # from above its package

    def _find(self, module: str) -> ModuleSpec | None:
        """The specification of a module, without an import of it or its parents; None without."""
        if module in sys.modules:
            return getattr(sys.modules[module], "__spec__", None)
        parent = module.rpartition(".")[0]
        above = self._spec(parent) if parent else None
        if parent and not (above and above.submodule_search_locations):
            return None
        # A class given as MODULE:CLASS may be in the current folder.
        paths = above.submodule_search_locations if above else [*sys.path, ""]
        try:
            return PathFinder.find_spec(module, paths)
        except KeyError:  # a folder without `__init__`, of a package that is not imported
            return None


def digest_of(found: Mapping[str, str]) -> str:
    """SHA-256 of the code of modules by name; empty where there are none."""
    text = "".join(code for _, code in sorted(found.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if found else ""


def implementation_of(digests: Mapping[str, str], names: Collection[str]) -> str:
    """The digests in one line; `UNKNOWN` where a variant of `names` has none of its code."""
    known = all(":" in digests.get(name, "") for name in {*names, *digests})
    return " ".join(sorted({*digests.values()})) if known else UNKNOWN


@cache
def code_that_computes_the_same() -> Mapping[str, str]:
    """The digest now, by the digest of earlier code with the same outputs and gradients."""
    entries = json.loads(BEHAVIOUR.read_text("utf-8")).values()
    return {earlier: e["code"][-1] for e in entries for earlier in e["code"]}


def current(implementation: str) -> str:
    """An implementation in one line, with digests now for those of code that computes the same."""
    same = code_that_computes_the_same()
    return " ".join(sorted(same.get(digest, digest) for digest in implementation.split()))


def is_other_code(implementation: str, sources: Sources) -> bool:
    """Return whether the code has changed since, or is not known.

    A module that is not found, as of a plug-in that is not installed, counts as unchanged.
    """
    recorded = implementation.split()
    modules = {text: sources.digest(text.partition(":")[0]) for text in recorded}
    return not recorded or any(now not in (UNKNOWN, text) for text, now in modules.items())


class Origin(NamedTuple):
    """The code and the data of a run, which decide whether it is outdated.

    `implementation` is of `implementation_of`, `data` is the name of its data, `files` has SHA-256
    of files of a user by path.
    """

    implementation: str
    task: str
    data: str
    files: dict[str, str]
    started: str


def outdated(origins: Sequence[Origin]) -> list[bool]:
    """Return whether each run is of unknown code, or of other code or data than a new run.

    The data of a task with files are others if a file has other content now; those of a task
    without files, if a later run has other data.
    """
    sources, data, code = Sources(), dict[str, str](), dict[str, bool]()
    for origin in sorted(origins, key=lambda one: one.started):
        data[origin.task] = origin.data
        if origin.implementation not in code:
            code[origin.implementation] = is_other_code(origin.implementation, sources)
    files = {path: file_digest(path) for origin in origins for path in origin.files}
    return [
        code[one.implementation]
        or any(files[path] not in ("", recorded) for path, recorded in one.files.items())
        or (not one.files and data[one.task] != one.data)
        for one in origins
    ]


def file_digest(path: str) -> str:
    """SHA-256 of the content of a file, or of all files of a folder; empty where none can be read.

    Hidden files of a folder and its folders do not count, as for a task of several files.
    """
    try:
        if Path(path).is_dir():
            files = sorted(file for file in Path(path).iterdir() if file.name[0] != ".")
            named = {f.name: f.name + file_digest(str(f)) for f in files if f.is_file()}
            return digest_of(named)
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


@cache
def parse(source: str) -> Code:
    """The code of a module; the source itself, without imports, where it has no tokens.

    `ast.parse` is not safe in two threads at once, and its trees differ by the version of Python.
    """
    code: list[str] = []
    imports: set[Import] = set()
    line: list[tuple[int, str]] = []
    try:
        for kind, text in _tokens(source):
            if kind in MARKS:
                code.append(MARKS[kind])
            elif kind != tokenize.NEWLINE:
                line.append((kind, text))
            else:
                # A line of texts alone is a docstring.
                if any(kind != tokenize.STRING for kind, _ in line):
                    texts = [text for _, text in line]
                    code += [*texts, "\n"]
                    imports.update(_imports(texts))
                line = []
    except (SyntaxError, tokenize.TokenError):
        return Code(source, frozenset())
    return Code("\0".join(code), frozenset(imports))


def _tokens(source: str) -> Iterator[tuple[int, str]]:
    """Tokens without comments; a formatted string is one, as before Python 3.12."""
    rows, depth, start = source.splitlines(keepends=True), 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if name in ("FSTRING_START", "TSTRING_START"):
            start = token.start if depth == 0 else start
            depth += 1
        elif name in ("FSTRING_END", "TSTRING_END"):
            depth -= 1
            if depth == 0:
                lines = rows[start[0] - 1 : token.end[0]]
                lines[-1] = lines[-1][: token.end[1]]
                yield tokenize.STRING, "".join([lines[0][start[1] :], *lines[1:]])
        elif depth == 0 and token.type not in (tokenize.COMMENT, tokenize.NL):
            yield token.type, token.string


def _imports(line: list[str]) -> Iterator[Import]:
    for at in (place for place, text in enumerate(line) if text == "import"):
        path = takewhile(lambda t: t != ";" and not keyword.iskeyword(t), reversed(line[:at]))
        before = [*path][::-1]
        after = [text for text in takewhile(lambda t: t not in ";", line[at + 1 :])
                 if text not in "()"]  # fmt: skip
        parts = [part.split(" as ")[0] for part in " ".join(after).split(" , ")]
        place = at - len(before) - 1
        if place >= 0 and line[place] == "from":
            yield "".join(before), tuple(part.strip(" ,") for part in parts)
        else:
            yield from ((part.replace(" ", ""), ()) for part in parts)
