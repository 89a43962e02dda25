"""The recurrent variant that `docs/add_a_variant.md` shows."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from zoo.conformance import parametrize, run

DOCS = Path(__file__).parents[2] / "docs"
FILE = DOCS / "examples" / "running_mean.py"
sys.path.append(str(FILE.parent))


def test_the_page_shows_the_file_and_its_class_takes_thirty_lines_at_most():
    page, text = (path.read_text("utf-8") for path in (DOCS / "add_a_variant.md", FILE))
    assert text in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(text[text.index("class ") :].splitlines()) <= 30


@pytest.mark.slow
@parametrize(import_module("running_mean").RunningMean)
def test_it_passes_every_check(configuration, check, no_type_checks):
    result = run(check, configuration)
    assert result.passed, result.detail
