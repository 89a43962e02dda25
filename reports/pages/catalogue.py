"""The tables docs/tasks.md, docs/variants.md and docs/certificates.md."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.records.results import Certificate
from reports.markdown import escape, escape_prose, rendered
from reports.text import NOTHING

Catalogue = Mapping[str, Sequence[Mapping[str, Any]]]


def variants_page(catalogue: Catalogue) -> str:
    rows = [
        [entry["name"], entry["mechanism"], entry["paper"] or NOTHING, entry["cost"],
         ", ".join(form for form in ("bidirectional", "causal") if entry[form]),
         "yes" if entry["recurrent"] else "no"]
        for entry in catalogue["variants"]
    ]  # fmt: skip
    return rendered("variants.md.j2", rows=[[*map(escape_prose, row)] for row in rows])


def tasks_page(catalogue: Catalogue) -> str:
    rows = [
        [f"{entry['name']}@{entry['version']}", entry["title"],
         *(f"{entry[size]:,}" if entry[size] else NOTHING for size in ("classes", "length")),
         "causal" if entry["causal"] else "bidirectional", re.split("[:;]", entry["data"])[0]
         or ("generated" if entry["length"] else "your files")]
        for entry in catalogue["tasks"]
    ]  # fmt: skip
    return rendered("tasks.md.j2", rows=[[*map(escape_prose, row)] for row in rows])


def certificates_page(certificates: Iterable[Certificate]) -> str:
    rows = []
    for certificate in certificates:
        results = certificate.results
        known = [result for result in results if result.passed and result.expected_failure]
        failed = [result for result in results if not result.passed]
        passed = len(results) - len(known) - len(failed)
        checks = [escape("; ".join(dict.fromkeys(result.check for result in of))) or NOTHING
                  for of in (known, failed)]  # fmt: skip
        rows.append([certificate.variant, str(passed), *checks])
    return rendered("certificates.md.j2", rows=rows)
