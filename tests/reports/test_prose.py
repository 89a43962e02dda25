"""The prose of the pages that a stranger reads first: short sentences, few words."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.catalogue import described
from reports.pages.suite import tables
from reports.site import site
from tests.conftest import ROOT
from tests.suite_frames import published_costs, suite_frames

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


class Texts(HTMLParser):
    """The paragraphs and definitions of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.texts, self.inside = [""], 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("p", "dd", "span", "div", "article"):
            self.texts.append("")
        self.inside += tag in ("p", "dd")

    def handle_endtag(self, tag: str) -> None:
        self.inside -= tag in ("p", "dd")

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data * bool(self.inside)


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


def test_sentences_of_the_site_are_short_and_begin_with_a_subject():
    suite, runs, baselines = suite_frames()
    costs, texts = published_costs(), Texts()
    found = tables(suite, runs, baselines, costs, described())
    texts.feed(site(found, costs, described(), records=[], studies=[]).decode())
    assert [fault for text in texts.texts for fault in faults(text)] == []


@pytest.mark.parametrize("name", WORDS)
def test_a_page_has_few_words(name: str):
    assert len(prose((ROOT / name).read_text("utf-8")).split()) <= WORDS[name]
