"""The examples of `docs/library.md` run, and print what the page shows."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "library.md"
PRINTED = re.compile(r"^\s*print\(.*\)  # (.*)$", re.MULTILINE)


def sections() -> dict[str, str]:
    """The Python code under each heading that has some."""
    parts = re.split(r"^## (.*)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    code = {
        heading: "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {heading: block for heading, block in code.items() if block}


SECTIONS = sections()
FIRST = "Create a layer"


def parameters() -> list:
    slow = [code for code in SECTIONS.values() if "torch.compile(" in code or "zoo.check(" in code]
    return [
        pytest.param(code, id=heading, marks=[pytest.mark.slow] * (code in slow))
        for heading, code in SECTIONS.items()
    ]


def test_every_section_has_an_example():
    assert next(iter(SECTIONS)) == FIRST and len(SECTIONS) == 9


# PyTorch's compiler warns about its own code.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("code", parameters())
def test_the_examples_of_a_section_run(
    code, tmp_path, monkeypatch, capsys, request, no_type_checks
):
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
        exec(compile(SECTIONS[FIRST], PAGE, "exec"), vars(module))
        capsys.readouterr()
    exec(compile(code, PAGE, "exec"), vars(module))
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in PRINTED.findall(code) if line not in printed] == [], printed
