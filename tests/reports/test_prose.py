"""The prose of the pages that a stranger reads first: short sentences, few words."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

MOST_WORDS = 25  # Words of a sentence
PAGES = [ROOT / "README.md", ROOT / "docs" / "reading.md", *sorted((ROOT / "results").glob("*.md"))]
WORDS = {"README.md": 450, "docs/reading.md": 600, "results/lra.md": 400, "docs/validity.md": 500}

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


def faults(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n|\n\s*[-*] ", text):
        for sentence in re.split(r"(?<=[.!?])\)?\s+", " ".join(paragraph.split()).strip("-* ")):
            if len(sentence.split()) > MOST_WORDS or CLAUSE.match(sentence):
                yield sentence


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_sentences_of_a_page_are_short_and_begin_with_a_subject(file: Path):
    assert [*faults(prose(file.read_text("utf-8")))] == []


@pytest.mark.parametrize("name", WORDS)
def test_a_page_has_few_words(name: str):
    assert len(prose((ROOT / name).read_text("utf-8")).split()) <= WORDS[name]
