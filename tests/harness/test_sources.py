"""Sources of variants: their digests, and whether code has changed since."""

import hashlib
import sys

import pytest

from harness.records.sources import (
    UNKNOWN,
    Origin,
    Sources,
    file_digest,
    implementation_of,
    is_other_code,
    outdated,
    parse,
)

SOURCE = """
from . import a as b, c; import zoo.d
class Mine(Linear):
    def attend(self, q): return f"{q}, {q:>8}"  
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("\nclass", "\n# a comment\n\n\nclass", True),
        ("Linear):\n", 'Linear):\n    """A docstring,\n\n    two paragraphs."""\n', True),
        ("    def", "  def", True),
        ("q): return", "q):\n        return", False),
        ("(self, q)", "(\n        self, q  # tokens\n    )", True),
        ("(Linear)", "( Linear )", True),
        ("{q}", "{ q}", False),
        ("attend", "attended", False),
        ("return ", "return 'x' ", False),
        (":>8", ":>9", False),
        ("def", "@cache\n    def", False),
    ],
)
def test_a_digest_is_of_the_code_alone(old, new, same):
    assert SOURCE.count(old) == 1
    first, second = parse(SOURCE), parse(SOURCE.replace(old, new))
    assert (first.text == second.text) == same
    assert first.imports == second.imports == {(".", ("a", "c")), ("zoo.d", ())}


def test_the_form_of_code_is_the_same_for_all_versions_of_python():
    digest = hashlib.sha256(parse(SOURCE).text.encode()).hexdigest()
    assert digest[:16] == "812cd1e464cd8794"


def test_the_sources_of_a_variant_are_those_of_its_package_that_it_imports():
    moments, softmax = (
        set(Sources().closure(f"zoo.variants.{name}", {"zoo"}))
        for name in ("primal_moments", "softmax")
    )
    # The last two are imported by a module that the variant imports: one of them in a function.
    ours = {
        "zoo.variants.primal_moments", "zoo.ksvd", "zoo.kernels.sampled_tokens",
        "zoo.kernels.cosine_map_triton",
    }  # fmt: skip
    assert ours <= moments and not ours & softmax
    assert all(name.startswith("zoo.") for name in moments | softmax)
    # `from zoo import ksvd` imports no name that `zoo` defines.
    assert "zoo.encoder" not in moments


def test_a_plug_in_s_sources_are_its_package_and_what_it_imports_of_ours(tmp_path, monkeypatch):
    package = tmp_path / "plug"
    package.mkdir()
    (package / "__init__.py").write_text("from .layer import Mine\n")
    (package / "layer.py").write_text(
        "import torch\nfrom zoo.variants.linear import Linear\n"
        "class Mine(Linear):\n    def forward(self, *a):\n        from .late.part import LATE\n"
        "try:\n    from ...above import x\nexcept ImportError:\n    pass\n"
    )
    (package / "late").mkdir()
    (package / "late" / "__init__.py").write_text("raise RuntimeError('no device')\n")
    (package / "late" / "part.py").write_text("from plug import folder, broken\n")
    (package / "broken.py").write_text("def\n")
    (package / "folder").mkdir()  # no module: its name is of the package
    monkeypatch.syspath_prepend(tmp_path)
    found = set(Sources().closure("plug.layer", {"zoo", "plug"}))
    ours = {"plug", "plug.layer", "plug.late.part", "plug.broken"}
    assert {name for name in found if name.startswith("plug")} == ours
    assert {"zoo.variants.linear", "zoo.contract"} <= found and "zoo" not in found
    assert not {"torch", "plug.folder"} & found and not {"plug", "plug.late"} & {*sys.modules}
    assert not [*tmp_path.rglob("__pycache__")]


@pytest.mark.parametrize(("folder", "counts"), [("scripts", True), ("site-packages", False)])
def test_a_file_beside_a_plug_in_is_a_source_if_not_installed(
    folder, counts, tmp_path, monkeypatch
):
    (path := tmp_path / folder).mkdir()
    # The name of a package of the project is the beginning of the name of another.
    (path / "plugged.py").write_text("import helping\nimport torch\nimport zoology\n")
    (path / "helping.py").write_text("scale = 1\n")
    (path / "zoology.py").write_text("")
    monkeypatch.syspath_prepend(path)
    assert {*Sources().closure("plugged", {"zoo"})} == {
        "plugged", *["helping", "zoology"] * counts,
    }  # fmt: skip
    before = Sources().digest("plugged")
    (path / "helping.py").write_text("scale = 2\n")
    assert is_other_code(before, Sources()) == counts


def test_a_run_of_two_variants_is_outdated_if_one_of_them_changed():
    now = Sources().digest("zoo.variants.linear")
    for texts, expected in ((now, False), (f"{now} zoo.variants.softmax:0", True)):
        assert is_other_code(texts, Sources()) == expected
    assert implementation_of({"linear": now}, ["linear"]) == now
    assert implementation_of({"linear": now}, ["linear", "softmax"]) == UNKNOWN


def test_a_run_is_outdated_by_another_file_or_by_a_later_run_of_other_data(tmp_path):
    now, path = Sources().digest("zoo.variants.linear"), tmp_path / "my.csv"
    path.write_text("text,label\n")
    same, other, gone = (
        {str(path): file_digest(str(path))}, {str(path): "0" * 64}, {str(tmp_path / "no"): "0" * 64}
    )  # fmt: skip
    runs = [
        ("listops@1", "new", {}, 2), ("listops@1", "old", {}, 1), ("table@1", "a", same, 1),
        ("table@1", "b", other, 2), ("table@1", "c", gone, 3),
    ]  # fmt: skip
    origins = [Origin(now, task, data, files, f"2026-01-0{day}") for task, data, files, day in runs]
    assert outdated(origins) == [False, True, False, True, False]
