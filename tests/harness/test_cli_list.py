"""`harness list`: what it shows, and that files for all users name no plug-in."""

import inspect
import json
from importlib import metadata

import pytest

import tasks
from harness import recipes
from harness.catalogue import paper_of, registered
from harness.cli.list import details
from harness.records.families import LISTED, family_of
from tasks.lra.text import Text
from tests.conftest import ROOT
from zoo.registry import CUSTOM
from zoo.variants import variants

DOCUMENT = json.loads(LISTED.read_text("utf-8"))
ENTRIES = {entry["name"]: entry for entry in (*DOCUMENT["variants"], *DOCUMENT["tasks"])}


def test_the_list_names_every_variant_task_and_budget_in_100_columns(output):
    assert output("list", "--budget", "smoke").rstrip() == recipes.show("smoke").rstrip()
    out = output("list")
    assert max(map(len, out.splitlines())) <= 100
    lines, words = out.splitlines(), set(out.replace(",", " ").split())
    versions = {f"{name}@{tasks.create(name).version}" for name in ("listops", "copying", "image")}
    assert words >= {*variants.names(), *versions, *recipes.NAMES, "laptop@3"}
    for entry in DOCUMENT["variants"]:
        assert any(line.split(maxsplit=1) == [entry["name"], entry["mechanism"]] for line in lines)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_option_has_its_type_its_default_and_its_meaning(name):
    entry = ENTRIES[name]
    assert all(option["type"] and option["meaning"] for option in entry["options"])
    lines = details({**entry, "installed": dict.fromkeys(entry["requires"], False)}).splitlines()
    assert max(map(len, lines)) <= 100
    shown = {line.split()[0] for line in lines if line}
    assert shown >= {option["name"] for option in entry["options"]}


def test_requirements_say_whether_they_are_installed(call, monkeypatch):
    installed = {"triton": "1"}

    def version(package):
        if package not in installed:
            raise metadata.PackageNotFoundError
        return installed[package]

    monkeypatch.setattr(metadata, "version", version)
    entry = json.loads(call("list", "fla-gla", "--json")[1])
    assert entry["installed"] == {"CUDA": None, "flash-linear-attention": False, "triton": True}
    out = call("list", "fla-gla")[1]
    assert "flash-linear-attention (not installed), triton (installed)" in out


FAULTY = """
from tasks.registry import tasks
from zoo.variants import variants
class Swallows(variants.find("linear")):
    def __init__(self, size, **options): super().__init__(size)
class Unbuilt(tasks.find("majority")):
    name = "unbuilt"
    def __init__(self): raise ValueError("boom")
class Undefined(Unbuilt):
    name = "undefined"
    def __init__(self): pass
"""


@pytest.mark.filterwarnings("always")
def test_each_faulty_plug_in_is_one_line_and_is_not_listed(call, install, no_type_checks):
    variants = {"absent": "no_such_package:Attention", "stranger": "pathlib:Path",
                "swallows": "faulty_plug_ins:Swallows"}  # fmt: skip
    tasks = {name.lower(): f"faulty_plug_ins:{name}" for name in ("Unbuilt", "Undefined")}
    folder = install({"zoo.variants": variants, "tasks.tasks": tasks})
    (folder / "faulty_plug_ins.py").write_text(FAULTY)
    code, out, err = call("list")
    listed = {line.split()[0].partition("@")[0] for line in out.splitlines() if line.strip()}
    assert code == 0 and listed > {"softmax", "majority"} and not listed & {*variants, *tasks}
    lines = [line for line in err.splitlines() if line.startswith("harness: warning: ")]
    for name in variants:
        (line,) = [line for line in lines if f"attention variant '{name}'" in line]
        assert line.endswith("uninstall that plug-in")
    assert "task 'unbuilt' cannot be built (ValueError: boom)" in err
    assert "task 'undefined' cannot be built (AttributeError: 'Undefined' object has no" in err


def test_a_plug_in_is_listed_but_is_in_no_generated_file(call, install, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples" / "plugin")
    install({"zoo.variants": {"aft-simple": "attention_free:AttentionFree"}})
    document = json.loads(call("list", "--json")[1])
    names = {entry["name"] for entry in (*document["variants"], *document["tasks"])}
    assert names == {*ENTRIES, "aft-simple"}
    written = json.loads(json.dumps(registered(plug_ins=False)))
    assert written == DOCUMENT, "run: python -m harness.cli.pages"


NATIVE = [
    name
    for name, variant in variants.built_in()
    if not variant.unchecked and name != "none" and not name.endswith("-lib")
    if not name.startswith("fla-")
]


@pytest.mark.parametrize("name", NATIVE)
def test_every_native_variant_has_a_family_and_its_docstring_cites_its_paper(name):
    assert family_of(name) == variants.find(name).family != CUSTOM == family_of("plug-in")
    paper = paper_of(inspect.getdoc(inspect.getmodule(variants.find(name))), name)
    assert paper and paper["authors"] and len(paper["title"]) > 15
    year = int(paper["year"])
    assert 2013 < year < 2030 and 0 <= year % 100 - int(paper["arxiv"][:2]) <= 1


def test_a_variant_is_described_by_its_formula_and_known_failures_a_task_by_its_baselines(output):
    text = output("list", "delta-product")
    assert "    " + ENTRIES["delta-product"]["formula"].splitlines()[0] in text
    assert "gated-delta where second key 0" in " ".join(text.split())
    assert "; export: the package pads" in " ".join(output("list", "nystrom-lib").split())
    text = " ".join(output("list", "adding").split())
    assert "caveat: *bag of tokens* is the task" in text
    assert "adding@2[max_len=64]: mean 15.2 %; bag of tokens 100.0 %" in text
    assert Text.source.terms in " ".join(output("list", "text").split())
