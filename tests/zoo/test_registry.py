"""Registries: names, plug-ins, and errors of either."""

import re
import sys
from abc import ABC, abstractmethod
from importlib import import_module, metadata
from typing import ClassVar

import pytest

from tests.conftest import one_line
from zoo.registry import Registry, UserError, build, load_guarded

GROUP = "shop.tools"


class Tool:
    use: ClassVar[str]


class Saw(Tool):
    use = "cutting"


class Useless(Tool):
    pass


class Signed(Tool):
    name: ClassVar[str]


class Chisel(Signed):
    name = "chisel"


class Unfinished(Saw, ABC):
    @abstractmethod
    def plane(self): ...


class Mistyped(Saw):
    def __init__(self, *, depth: int = None): ...  # noqa: RUF013


NOT_A_CLASS = Saw()

SHOP = {
    "cutting": "from shop import tools\ntools.register('saw')(1)\ntools.register('file-2')(2)\n",
    "later": "from shop import tools\nSEEN = tools.names()\n",
    "leaves": "import sys; print('bye'); sys.exit(3)",
    "stops": "class E(BaseException): ...\nraise E('now')",
    "__init__": "from zoo.registry import Registry\ntools = Registry('tool', 'shop', group='shop')",
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    (tmp_path / "shop").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    def write(*modules: str) -> Registry:
        for module in (*modules, "__init__"):
            (tmp_path / "shop" / f"{module}.py").write_text(SHOP[module])
        return import_module("shop").tools

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


@pytest.fixture
def plug_ins(monkeypatch):
    def install(*named: tuple[str, str]) -> None:
        points = [metadata.EntryPoint(name, origin, GROUP) for name, origin in named]
        only = {GROUP: points}
        monkeypatch.setattr(metadata, "entry_points", lambda group: only.get(group, []))

    install()
    return install


@pytest.fixture
def tools(plug_ins):
    registry = Registry("tool", group=GROUP, base=Tool)
    registry.register("saw")(Saw)
    return registry


def test_a_package_is_imported_at_first_use_and_may_list_names_meanwhile(shop, plug_ins):
    tools = shop("cutting", "later")
    assert "shop.cutting" not in sys.modules
    assert tools.names() == ["file-2", "saw"]
    assert tools.find("saw") == 1
    assert sys.modules["shop.later"].SEEN == ["file-2", "saw"]


INVALID = ["", "a+b", "a.b", "a b", "a=b", "-", "a/b"]


@pytest.mark.parametrize("name", [*INVALID, "saw"])
def test_a_name_that_is_taken_or_has_other_characters_is_rejected_or_ignored(tools, plug_ins, name):
    with one_line(repr(name)):
        tools.register(name)(Useless)
    plug_ins(("zsaw", f"{__name__}:Saw"), (name, f"{__name__}:Useless"))
    reason = f"{re.escape(repr(name))} from .*:Useless is ignored"
    for listing in (tools.names, tools.items):
        with pytest.warns(UserWarning, match=reason) as warned:
            assert len(listing()) == 2
        assert len(warned) == 1
    assert tools.find("saw") is Saw


@pytest.mark.parametrize(("name", "named"), [
    ("saww", "'saw'"), ("zzz", "hammer, saw, zsaw"), ("hammer", "no_such_shop:Hammer"),
])  # fmt: skip
def test_plug_ins_are_listed_and_found_or_the_error_says_why_not(tools, plug_ins, name, named):
    plug_ins(("hammer", "no_such_shop:Hammer"), ("zsaw", f"{__name__}:Saw"))
    assert tools.names() == ["hammer", "saw", "zsaw"]
    assert tools.find("zsaw").__name__ == "Saw"
    with one_line(repr(name), named):
        tools.find(name)
    with pytest.warns(UserWarning, match="'hammer'") as warned:
        assert [found for found, _ in tools.items()] == ["saw", "zsaw"]
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.parametrize(("attribute", "named"), [
    ("NOT_A_CLASS", "Tool"), ("Registry", "Tool"), ("Useless", "'use'"), ("Unfinished", "plane"),
    ("Mistyped", "Mistyped.depth=None"), ("Chisel", "'chisel'"),
])  # fmt: skip
def test_a_plug_in_of_another_kind_is_rejected_with_the_reason(plug_ins, attribute, named):
    base = Signed if attribute == "Chisel" else Tool
    tools = Registry("tool", group=GROUP, base=base)
    plug_ins(("odd", f"{__name__}:{attribute}"), ("chisel", f"{__name__}:Chisel"))
    with one_line("'odd'", named):
        tools.find("odd")
    assert base is Tool or tools.find("chisel").name == "chisel"


def test_the_package_of_a_plug_in_has_name_and_version(tools, plug_ins, tmp_path):
    (tmp_path / "drills-1.2.dist-info").mkdir()
    (tmp_path / "drills-1.2.dist-info" / "METADATA").write_text("Name: drills\nVersion: 1.2\n")
    plug_ins(("zsaw", f"{__name__}:Saw"))
    (point,) = metadata.entry_points(group=GROUP)
    assert tools.package("zsaw") == {}
    vars(point)["dist"] = metadata.Distribution.at(tmp_path / "drills-1.2.dist-info")
    assert tools.package("zsaw") == {"drills": "1.2"}
    assert tools.package("saw") == tools.package("nobody") == {}


class Stop(BaseException):
    pass


ERRORS = [SystemExit(0), Stop("now"), GeneratorExit(), KeyError("teeth\nmissing")]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_of_a_plug_in_of_any_kind_is_one_line(error):
    def fail():
        raise error

    with one_line("the saw"):
        build("the saw", fail)
    with pytest.raises(Exception, match=r"now|GeneratorExit|exits on import, with 0|missing"):
        load_guarded(fail)
    with pytest.raises(UserError, match=r"^too short$"):
        build("the saw", lambda: (_ for _ in ()).throw(UserError("too short")))
    assert build("the saw", lambda: 3) == 3


def test_a_plug_in_neither_ends_the_process_nor_writes_to_stdout(tools, plug_ins, shop, capsys):
    shop("leaves", "stops")
    plug_ins(("leaver", "shop.leaves:Saw"), ("stopper", "shop.stops:Saw"))
    with one_line("'leaver'", "3"):
        tools.find("leaver")
    assert capsys.readouterr() == ("", "bye\n")
    with one_line("'stopper'", "now"):
        tools.find("stopper")
