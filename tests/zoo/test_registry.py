"""Registries: names, plug-ins, and errors of either."""

import sys
from abc import ABC, abstractmethod
from importlib import import_module, metadata
from typing import ClassVar

import pytest

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


class Unfinished(Tool, ABC):
    use = "planing"

    @abstractmethod
    def plane(self): ...


class Mistyped(Tool):
    use = "drilling"

    def __init__(self, *, depth: int = None): ...  # noqa: RUF013


class Listed(Tool):
    use = "sanding"

    def __init__(self, *, grits: list[int]): ...


NOT_A_CLASS = Saw()


SHOP = {
    "__init__": (
        f"from zoo.registry import Registry\ntools = Registry('tool', 'shop', group={GROUP!r})\n"
    ),
    "cutting": "from shop import tools\ntools.register('saw')(1)\ntools.register('file-2')(2)\n",
    "later": "from shop import tools\nSEEN = tools.names()\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes a package of the given modules, removed afterwards."""

    def write(name: str, modules: dict[str, str]) -> None:
        (tmp_path / name).mkdir()
        for module, text in modules.items():
            (tmp_path / name / f"{module}.py").write_text(text)

    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("shop", "empty"):
            del sys.modules[name]


@pytest.fixture
def shop(package):
    """The registry of a package whose modules are not imported yet."""
    package("shop", SHOP)
    return import_module("shop").tools


@pytest.fixture
def plug_ins(monkeypatch):
    """Return a function that makes the given {name: origin} the only installed plug-ins."""

    def install(*named: tuple[str, str]) -> None:
        points = [metadata.EntryPoint(name, origin, GROUP) for name, origin in named]
        only = {GROUP: points}
        monkeypatch.setattr(metadata, "entry_points", lambda group: only.get(group, []))

    install()
    return install


@pytest.fixture
def tools(package, plug_ins):
    """A registry with `saw` and the plug-ins of the test."""
    package("empty", {"__init__": ""})
    registry = Registry("tool", "empty", group=GROUP, base=Tool)
    registry.register("saw")(Saw)
    return registry


def test_a_package_is_imported_at_first_use_and_may_list_names_meanwhile(shop, plug_ins):
    assert "shop.cutting" not in sys.modules
    assert shop.names() == ["file-2", "saw"]
    assert shop.find("saw") == 1
    assert sys.modules["shop.later"].SEEN == ["file-2", "saw"]


@pytest.mark.parametrize("name", ["", "a+b", "a.b", "a b", "a=b", "-", "a/b", "saw"])
def test_a_name_that_is_taken_or_has_other_characters_is_rejected(tools, name):
    message = "'saw' is registered already; choose another" if name == "saw" else "may contain lett"
    with pytest.raises(UserError, match=message):
        tools.register(name)(Useless)
    assert tools.find("saw") is Saw


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("saww", "unknown tool 'saww'; did you mean 'saw'?"),
        ("zzz", "unknown tool 'zzz'; known: hammer, saw, zsaw"),
        (
            "hammer",
            "tool 'hammer' cannot be loaded from no_such_shop:Hammer: ModuleNotFoundError: "
            "No module named 'no_such_shop'; fix or uninstall that plug-in",
        ),
    ],
)
def test_plug_ins_are_listed_and_found_or_the_error_says_why_not(tools, plug_ins, name, message):
    plug_ins(("hammer", "no_such_shop:Hammer"), ("zsaw", f"{__name__}:Saw"))
    assert tools.names() == ["hammer", "saw", "zsaw"]
    assert tools.find("zsaw").__name__ == "Saw"
    with pytest.raises(UserError) as error:
        tools.find(name)
    assert str(error.value) == message
    with pytest.warns(UserWarning, match="'hammer' cannot be loaded") as warned:
        assert [found for found, _ in tools.items()] == ["saw", "zsaw"]
    assert len(warned) == 1
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("ignored", "reason"),
    [
        (("saw", f"{__name__}:Useless"), "'saw' from .*:Useless is ignored: the name is taken"),
        (("zsaw", "nowhere:Other"), "'zsaw' from nowhere:Other is ignored"),
        *(
            ((name, f"{__name__}:Saw"), "is ignored: a name may contain letters, digits, .*rename")
            for name in ("a+b", "a.b", "../saw", "two words", "")
        ),
    ],
)
def test_a_plug_in_with_a_taken_or_invalid_name_is_ignored_with_one_warning(
    tools, plug_ins, ignored, reason
):
    plug_ins(("zsaw", f"{__name__}:Saw"), ignored)
    for listing in (tools.names, tools.items):
        with pytest.warns(UserWarning, match=reason) as warned:
            assert len(listing()) == 2
        assert len(warned) == 1
    with pytest.warns(UserWarning, match=reason):
        assert tools.find("zsaw").__name__ == "Saw"
    assert tools.find("saw") is Saw


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("NOT_A_CLASS", "is not a subclass of .*Tool"),
        ("Registry", "is not a subclass of .*Tool"),
        ("Useless", "Useless sets no class attribute 'use'"),
        ("Unfinished", "Unfinished does not define plane"),
        ("Mistyped", "Mistyped.depth=None is not of type int"),
        ("Listed", "Listed.grits is annotated list.int.; annotate it bool"),
    ],
)
def test_a_plug_in_of_another_kind_is_rejected_with_the_reason(tools, plug_ins, attribute, reason):
    plug_ins(("odd", f"{__name__}:{attribute}"))
    with pytest.raises(UserError, match=f"tool 'odd' cannot be loaded from .*{reason}"):
        tools.find("odd")


def test_a_plug_in_with_another_name_than_its_class_is_rejected(package, plug_ins):
    package("empty", {"__init__": ""})
    tools = Registry("tool", "empty", group=GROUP, base=Signed)
    plug_ins(("chisel", f"{__name__}:Chisel"), ("gouge", f"{__name__}:Chisel"))
    assert tools.find("chisel").name == "chisel"
    with pytest.raises(UserError, match="TypeError: the name of Chisel is 'chisel'; fix"):
        tools.find("gouge")


def test_a_plug_in_neither_ends_the_process_nor_writes_to_stdout(tools, plug_ins, package, capsys):
    package("shop", {"__init__": "", "leaves": "import sys; print('bye'); sys.exit(3)"})
    plug_ins(("leaver", "shop.leaves:Saw"))
    with pytest.raises(UserError, match="ImportError: it exits on import, with 3; fix"):
        tools.find("leaver")
    assert capsys.readouterr() == ("", "bye\n")


def test_the_package_of_a_plug_in_has_name_and_version(tools, plug_ins, tmp_path):
    (tmp_path / "drills-1.2.dist-info").mkdir()
    (tmp_path / "drills-1.2.dist-info" / "METADATA").write_text("Name: drills\nVersion: 1.2\n")
    plug_ins(("zsaw", f"{__name__}:Saw"))
    (point,) = metadata.entry_points(group=GROUP)
    assert tools.package("zsaw") == {}
    vars(point)["dist"] = metadata.Distribution.at(tmp_path / "drills-1.2.dist-info")
    assert tools.package("zsaw") == {"drills": "1.2"}
    assert tools.package("saw") == tools.package("nobody") == {}


def test_errors_of_building_are_one_line():
    def fail(error):
        raise error

    with pytest.raises(UserError) as error:
        build("the saw", lambda: fail(KeyError("teeth\nmissing")))
    expected = "the saw cannot be built (KeyError: 'teeth\\nmissing'); fix it, or its options"
    assert str(error.value) == expected
    with pytest.raises(UserError, match=r"^too short$"):
        build("the saw", lambda: fail(UserError("too short")))
    assert build("the saw", lambda: 3) == 3


class Stop(BaseException):
    """An error of a plug-in that is no `Exception`."""


@pytest.mark.parametrize("error", [SystemExit(0), Stop("now"), GeneratorExit()], ids=repr)
def test_a_plug_in_that_raises_a_base_exception_is_a_broken_one(tools, plug_ins, package, error):
    def stop():
        raise error

    with pytest.raises(ImportError, match=r"now|GeneratorExit|exits on import, with 0"):
        load_guarded(stop)
    with pytest.raises(UserError, match=r"^a saw cannot be built"):
        build("a saw", stop)
    package("shop", {"__init__": "", "stops": "class E(BaseException): ...\nraise E('now')"})
    plug_ins(("stopper", "shop.stops:Saw"))
    with pytest.warns(UserWarning, match=r"'stopper' cannot be loaded .*E: now; fix or uninstall"):
        assert tools.items() == [("saw", Saw)]
