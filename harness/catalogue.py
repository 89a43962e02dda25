"""The registered variants and tasks with their options; names of recipes and suites."""

import copy
import inspect
import json
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from harness.arguments import meanings
from harness.records.families import LISTED
from zoo.registry import UserError, entry_points, options_of, unknown

if TYPE_CHECKING:
    from zoo.contract import Attention

# Bounds of a number in a JSON schema.
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
# A citation in the docstring of a variant's module: `Authors, "Title", venue year, arXiv id`.
# Authors are family names, or the first one and "et al."; title and venue are optional.
PAPER = re.compile(
    r"(?P<authors>[A-Z][\w'-]+(?:, [A-Z][\w'-]+)*(?: et al\.)?), "
    r'(?:"(?P<title>[^"]+)", )?(?P<venue>[A-Z][\w ]*? )?(?P<year>\d{4}), arXiv (?P<arxiv>[\d.]*\d)'
)

Entry = dict[str, Any]  # A variant or a task


def described() -> dict[str, list[Any]]:
    if any(map(entry_points, ("zoo.variants", "tasks.tasks"))):
        return registered(plug_ins=True)
    return json.loads(LISTED.read_text("utf-8"))


def listed(name: str = "") -> Entry:
    # All of `described`, or the entry of a variant or task; with the packages that are installed.
    document = copy.deepcopy(described())
    entries: dict[str, Entry] = {
        entry["name"]: entry for kind in ("tasks", "variants") for entry in document[kind]
    }
    if name and name not in entries:
        raise UserError(unknown("variant or task", name, entries))
    if "caveat" in entries.get(name, {}):
        from harness.records.store import BaselineStore
        from harness.stores import PUBLISHED

        entries[name]["baselines"] = {
            each.spec.key: "; ".join(
                f"{name} {each.metric.sentence(score)}" for name, score in each.scores.items()
            )
            for each in BaselineStore.within(PUBLISHED).read_whole()
            if each.spec.name == name
        }
    for entry in entries.values():
        entry["installed"] = {package: _is_installed(package) for package in entry["requires"]}
    return entries[name] if name else document


def _is_installed(package: str) -> bool | None:
    if package == "CUDA":
        return None
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def registered(plug_ins: bool) -> dict[str, list[Any]]:
    from harness import recipes
    from harness.records import suites
    from tasks.registry import tasks
    from zoo.variants import variants

    kinds = (each.items() if plug_ins else each.built_in() for each in (variants, tasks))
    return {
        **_entries(*map(tuple, kinds)),
        "budgets": [*recipes.NAMES],
        "suites": [suites.find(name).key for name in suites.names()],
    }


@lru_cache(maxsize=1)
def _entries(
    variants: tuple[tuple[str, Any], ...], tasks: tuple[tuple[str, Any], ...]
) -> dict[str, list[Any]]:
    # A report asks many times: they are made once as long as the classes are the same.
    modules = Counter(variant.__module__ for _, variant in variants)
    return {
        "variants": [_variant(name, variant, modules) for name, variant in variants],
        "tasks": [entry for name, task in tasks if (entry := _task(name, task))],
    }


def content() -> bytes:
    tables = []
    for kind, entries in registered(plug_ins=False).items():
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        tables.append(f'"{kind}": [\n{lines}\n]')
    return "\n".join(["{", ",\n".join(tables), "}\n"]).encode()


def _variant(name: str, variant: Any, modules: Mapping[str, int]) -> Entry:
    import zoo

    docstring = inspect.getdoc(inspect.getmodule(variant)) or ""
    # The first indented block with an equals sign.
    blocks = re.findall(r"(?:^ {4,}\S.*\n?(?:\n(?= {4}))?)+", docstring, re.MULTILINE)
    formula = next((inspect.cleandoc(block) for block in blocks if "=" in block), "")
    return {
        "name": name, **_summary(name, variant, modules), "formula": formula,
        "family": variant.family,
        "version": vars(variant).get("version", ""),
        **asdict(variant.traits),
        "uses": {
            form: [place for place, use in zoo.uses(name, causal=form == "causal").items()
                   if use.works]
            for form in ("causal", "bidirectional")
            if getattr(variant.traits, form) and not variant.requires
        },
        "requires": variant.requires,
        "identities": [f"{of.other} where {of.where}" for of in variant.identities],
        "failures": dict(variant.expected_failures), "source": variant.__module__,
        "options": _options(variant),
    }  # fmt: skip


def _summary(name: str, variant: "type[Attention]", modules: Mapping[str, int]) -> dict[str, str]:
    docstring = inspect.getdoc(inspect.getmodule(variant)) or variant.__doc__ or ""
    source = ""
    if paper := paper_of(docstring, name):
        first, _, others = paper["authors"].partition(",")
        authors = f"{first} et al." if others else first
        source = f"{authors}, {paper['year']}, arXiv {paper['arxiv']}"
    quadratic = "O(N log N)" if re.search(r"Time O\([^.]*log n", docstring) else "O(N²)"
    cost = "O(N)" if variant.traits.linear else quadratic
    # The docstring of a module of several variants describes none of them.
    title = (variant.__doc__ or "") if modules[variant.__module__] > 1 else docstring
    return {"mechanism": title.partition("\n")[0].rstrip("."), "paper": source, "cost": cost}


def paper_of(docstring: str, name: str) -> re.Match[str] | None:
    line = re.search(rf"^ +{re.escape(name)} +(\S.*)$", docstring, re.MULTILINE)
    return PAPER.search(" ".join((line[1] if line else docstring).split()))


def _task(name: str, factory: Any) -> Entry | None:
    from tasks import create

    title = (factory.__doc__ or "").partition("\n")[0].rstrip(".")
    options, source = _options(factory), getattr(factory, "source", None)
    size: Entry = {"classes": None, "length": None, "vocabulary": None, "causal": factory.causal}
    # Unknown size if an option has no default.
    if all(option["default"] is not None for option in options):
        try:
            task = create(name)
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
            return None
        size = {
            "classes": task.classes, "length": task.max_len, "vocabulary": task.vocabulary or None,
            "causal": task.causal,
        }  # fmt: skip
    return {
        "name": name, "version": factory.version, "title": title, **size,
        "about": (inspect.getdoc(inspect.getmodule(factory)) or "").partition("\n")[0],
        "data": f"{source.title}; {source.origin}; {source.terms}" if source else "",
        "caveat": factory.caveat, "source": factory.__module__,
        "requires": factory.packages, "options": options,
    }  # fmt: skip


def _options(factory: Any) -> list[Entry]:
    texts = meanings(factory)
    return [
        {"name": name, "type": _type(option.annotation),
         "default": None if option.default is option.empty else option.default,
         "meaning": texts.get(name, "")}
        for name, option in options_of(factory).items()
    ]  # fmt: skip


def _type(annotation: Any) -> str:
    from pydantic import TypeAdapter

    schema = TypeAdapter(annotation).json_schema()
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(map(str, choices))
    names = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}
    bounds = [f"{sign} {schema[bound]:g}" for bound, sign in BOUNDS.items() if bound in schema]
    return " ".join([names[schema["type"]], *bounds])
