"""Examples of `docs/library.md` run, statements of `docs/primal.md` name tests; links, prose."""

import ast
import json
import re
import sys
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT

LIBRARY = ROOT / "docs" / "library.md"
PRINTED = re.compile(r"^\s*print\(.*\)  # (.*)$", re.MULTILINE)


def examples() -> dict[str, str]:
    texts = re.split(r"^## (.*)$", LIBRARY.read_text("utf-8"), flags=re.MULTILINE)
    code = {
        heading: "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
        for heading, text in zip(texts[1::2], texts[2::2], strict=True)
    }
    return {heading: block for heading, block in code.items() if block}


SECTIONS = examples()
FIRST = "Create a layer"
SLOW = r"torch\.compile\(|zoo\.check\("


def test_the_index_of_decisions_has_each_page_with_its_title():
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text("utf-8")
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", index, re.MULTILINE)
    found = {path.name: path.read_text("utf-8").splitlines()[0] for path in folder.glob("*.md")}
    del found["README.md"]
    assert {name: f"# {title}" for title, name in listed} == found


def test_every_link_to_a_file_and_every_page_that_a_module_or_a_recipe_names_leads_to_one():
    folders = (ROOT / name for name in ("zoo", "tasks", "harness", "reports"))
    files = [file for folder in folders for file in folder.rglob("*.*")]
    texts = [file.read_text("utf-8") for file in files if file.suffix in (".py", ".toml", ".j2")]
    named = {name for text in texts for name in re.findall(r"(?<!\w)docs/[\w/-]+\.md", text)}
    assert len(named) > 10 and [name for name in named if not (ROOT / name).exists()] == []
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    links = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
    found = [page.parent / link for page in pages for link in links.findall(page.read_text())]
    assert len(found) > 100 and [path for path in found if not path.exists()] == []


# PyTorch's compiler warns about code of PyTorch.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("code", [
    pytest.param(code, id=heading, marks=[pytest.mark.slow] * bool(re.search(SLOW, code)))
    for heading, code in SECTIONS.items()
])  # fmt: skip
def test_examples_of_a_section_run(code, tmp_path, monkeypatch, capsys, request, no_type_checks):
    if "from transformers" in code:
        request.getfixturevalue("transformers")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    # The compiler imports the module of a function that it compiles.
    monkeypatch.setitem(sys.modules, "page", module)
    if "torch.compile(" in code:
        # One kernel: a pool of compilers, a precompiled header and the trials of the processor's
        # vector instructions take longer than they save.
        monkeypatch.setattr("torch._inductor.config.cpp.vec_isa_ok", False)
        monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
        monkeypatch.setattr("torch._inductor.config.cpp_cache_precompile_headers", False)
    if code != SECTIONS[FIRST]:
        exec(compile(SECTIONS[FIRST], LIBRARY, "exec"), vars(module))
        capsys.readouterr()
    exec(compile(code, LIBRARY, "exec"), vars(module))
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in PRINTED.findall(code) if line not in printed] == [], printed


PAGE = (ROOT / "docs" / "primal.md").read_text("utf-8")
POINTER = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def statements() -> dict[int, str]:
    texts = re.split(r"^\*\*(\d+)\. ", PAGE, flags=re.MULTILINE)
    return {int(number): text for number, text in zip(texts[1::2], texts[2::2], strict=True)}


def test_statements_are_numbered_in_order_and_each_names_tests_that_exist():
    numbers, named = [*statements()], POINTER.findall(PAGE)
    assert len(numbers) > 20 and all(b == a + 1 for a, b in pairwise([0, *numbers]))
    assert [number for number, text in statements().items() if not POINTER.search(text)] == []
    texts = {path: (ROOT / path).read_text("utf-8") for path, _ in named}
    missing = [name for path, name in named if f"\ndef {name}(" not in texts[path]]
    assert missing == [] and all(name.startswith("test_") for _, name in named)
    # Nothing that looks like a pointer is written in another form.
    assert PAGE.count("tests/") == PAGE.count("::test_") == len(named)
    # Formulas are closed.
    assert [text for text in PAGE.split("\n\n") if text.count("$") % 2] == []


def test_the_notebook_runs_and_ends_with_the_leaders_of_a_question(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "docs" / "examples" / "quickstart.ipynb").read_text("utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    *steps, last = [line for cell in cells for line in ast.parse(cell).body]
    names: dict[str, Any] = {}
    exec(compile(ast.Module(steps, []), "quickstart", "exec"), names)
    leaders = eval(compile(ast.Expression(last.value), "quickstart", "eval"), names)
    assert len(names["runs"]) == 2 and names["runs"]["score"].notna().all()
    assert leaders.is_monotonic_decreasing and leaders.iloc[0] > 90


MOST_WORDS = 25  # Words of a sentence
# What a stranger reads first.
FIRST_PAGES = [ROOT / "README.md", ROOT / "docs/reading.md", *(ROOT / "results").glob("*.md")]
WORDS = {"README.md": 450, "results/lra.md": 400, "docs/validity.md": 500}

# Beginnings of a noun clause; a question ends with its mark.
CLAUSE = re.compile(r"(What|How|Which|Whether|Where)\b[^?]*$")

# Code, comments, tables, images, headings, and the marks of links and of lists.
NO_PROSE = re.compile(
    r"^```.*?^```|<!--.*?-->|^(?: {4}|\||#).*?$|!\[[^]]*\]\([^)]*\)|<[^>]+>",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\[([^][]*)\]\([^)]*\)")


def prose(page: str) -> str:
    return LINK.sub(r"\1", NO_PROSE.sub("\n\n", page))


@pytest.mark.parametrize("file", sorted(FIRST_PAGES), ids=lambda file: file.name)
def test_sentences_of_a_page_are_short_and_begin_with_a_subject(file):
    for paragraph in re.split(r"\n\s*\n|\n\s*[-*] ", prose(file.read_text("utf-8"))):
        for sentence in re.split(r"(?<=[.!?])\)?\s+", " ".join(paragraph.split()).strip("-* ")):
            assert len(sentence.split()) <= MOST_WORDS and not CLAUSE.match(sentence), sentence


def test_the_documentation_stays_small():
    pages = [page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md")]
    assert len(pages) <= 30 and sum(len(page.split()) for page in pages) <= 25_000
    assert len((ROOT / "docs" / "reading.md").read_text("utf-8").split()) <= 600
    counts = {name: len(prose((ROOT / name).read_text("utf-8")).split()) for name in WORDS}
    assert {name: count for name, count in counts.items() if count > WORDS[name]} == {}
