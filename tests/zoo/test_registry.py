"""Names are found, guessed and refused, and plug-ins are read late."""

import sys
from abc import ABC, abstractmethod
from importlib import import_module, metadata
from typing import ClassVar

import pytest

from zoo.registry import Registry, UserError, built

GROUP = "shop.tools"


class Tool:
    """What the registry of these tests holds."""

    use: ClassVar[str]


class Saw(Tool):
    use = "cutting"


class Useless(Tool):
    pass


class Signed(Tool):
    """What a registry of things that say their own names holds."""

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
    """Return a function that writes a package of the given modules, to be forgotten afterwards."""

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
    """The registry of a package whose modules nobody has imported yet."""
    package("shop", SHOP)
    return import_module("shop").tools


@pytest.fixture
def plug_ins(monkeypatch):
    """Return a function that makes the given {name: origin} the only installed plug-ins."""

    def install(*named: tuple[str, str]) -> None:
        points = [metadata.EntryPoint(name, origin, GROUP) for name, origin in named]
        monkeypatch.setattr(
            metadata, "entry_points", lambda group: points if group == GROUP else []
        )

    install()
    return install


@pytest.fixture
def tools(package, plug_ins):
    """A registry that holds `saw` alone, beside which plug-ins can be installed."""
    package("empty", {"__init__": ""})
    registry = Registry("tool", "empty", group=GROUP, base=Tool)
    registry.register("saw")(Saw)
    return registry


def test_a_package_is_imported_on_first_use_only(shop, plug_ins):
    assert "shop.cutting" not in sys.modules
    assert shop.names() == ["file-2", "saw"]
    assert shop.find("saw") == 1


def test_a_module_may_ask_for_names_while_it_is_imported(shop, plug_ins):
    shop.names()
    assert sys.modules["shop.later"].SEEN == ["file-2", "saw"]


def test_a_duplicate_is_refused_and_leaves_the_first(tools):
    with pytest.raises(UserError, match="tool 'saw' is registered already; choose another name"):
        tools.register("saw")(Useless)
    assert tools.find("saw") is Saw


@pytest.mark.parametrize("name", ["", "a+b", "a.b", "a b", "a=b", "-", "a/b"])
def test_a_name_that_argv_or_a_composition_needs_is_refused(tools, name):
    with pytest.raises(UserError, match="may hold letters"):
        tools.register(name)


def test_an_unknown_name_is_answered_with_the_nearest(tools):
    with pytest.raises(UserError) as refusal:
        tools.find("saww")
    assert str(refusal.value) == "unknown tool 'saww'; did you mean 'saw'?"


def test_an_unknown_name_near_to_nothing_is_answered_with_all(tools, plug_ins):
    plug_ins(("hammer", "nowhere:Hammer"))
    with pytest.raises(UserError) as refusal:
        tools.find("zzz")
    assert str(refusal.value) == "unknown tool 'zzz'; known: hammer, saw"


def test_plug_ins_are_listed_without_being_imported(tools, plug_ins):
    plug_ins(("hammer", "antigravity_of_the_shop:Hammer"))
    assert tools.names() == ["hammer", "saw"]
    assert "antigravity_of_the_shop" not in sys.modules


def test_a_plug_in_is_found_and_itemised(tools, plug_ins):
    plug_ins(("zsaw", f"{__name__}:Saw"))
    assert tools.find("zsaw").__name__ == "Saw"
    assert [name for name, _ in tools.items()] == ["saw", "zsaw"]


@pytest.fixture
def broken(tools, plug_ins):
    plug_ins(("hammer", "no_such_shop:Hammer"))
    return tools


def test_a_broken_plug_in_is_refused_by_name_origin_and_cause(broken):
    with pytest.raises(UserError) as refusal:
        broken.find("hammer")
    assert str(refusal.value) == (
        "tool 'hammer' cannot be loaded from no_such_shop:Hammer: ModuleNotFoundError: "
        "No module named 'no_such_shop'; mend or uninstall that plug-in"
    )


def test_a_broken_plug_in_spoils_nobody_else(broken):
    assert broken.find("saw") is Saw
    with pytest.warns(UserWarning, match="'hammer' cannot be loaded") as warned:
        assert broken.items() == [("saw", Saw)]
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_a_plug_in_that_shadows_a_name_is_ignored_with_one_warning(tools, plug_ins):
    plug_ins(("saw", f"{__name__}:Useless"), ("zsaw", f"{__name__}:Saw"))
    for ask in (tools.names, tools.items):
        with pytest.warns(UserWarning, match="'saw' from .*:Useless is ignored") as warned:
            ask()
        assert len(warned) == 1
    assert tools.find("saw") is Saw


@pytest.mark.parametrize("name", ["a+b", "a.b", "../saw", "two words", ""])
def test_a_plug_in_whose_name_nobody_could_give_is_ignored_with_a_warning(tools, plug_ins, name):
    plug_ins((name, f"{__name__}:Saw"))
    with pytest.warns(UserWarning, match="is ignored: a name may hold letters, digits, .*rename"):
        assert tools.names() == ["saw"]


def test_of_two_plug_ins_of_one_name_the_first_wins(tools, plug_ins):
    plug_ins(("zsaw", f"{__name__}:Saw"), ("zsaw", "nowhere:Other"))
    with pytest.warns(UserWarning, match="'zsaw' from nowhere:Other is ignored"):
        assert tools.find("zsaw").__name__ == "Saw"


@pytest.mark.parametrize(
    ("thing", "complaint"),
    [
        ("NOT_A_CLASS", "is not a subclass of .*Tool"),
        ("Registry", "is not a subclass of .*Tool"),
        ("Useless", "Useless sets no class attribute 'use'"),
        ("Unfinished", "Unfinished does not define plane"),
        ("Mistyped", "Mistyped.depth=None is not of type int"),
        ("Listed", "Listed.grits is annotated list; annotate it bool"),
    ],
)
def test_a_plug_in_of_another_kind_is_refused_with_what_it_lacks(tools, plug_ins, thing, complaint):
    plug_ins(("odd", f"{__name__}:{thing}"))
    with pytest.raises(UserError, match=f"tool 'odd' cannot be loaded from .*{complaint}"):
        tools.find("odd")


def test_a_plug_in_that_bears_the_name_of_another_is_refused(package, plug_ins):
    package("empty", {"__init__": ""})
    tools = Registry("tool", "empty", group=GROUP, base=Signed)
    plug_ins(("chisel", f"{__name__}:Chisel"), ("gouge", f"{__name__}:Chisel"))
    assert tools.find("chisel").name == "chisel"
    with pytest.raises(UserError, match="TypeError: Chisel calls itself 'chisel'; mend"):
        tools.find("gouge")


def test_a_plug_in_neither_ends_the_process_nor_writes_to_stdout(tools, plug_ins, package, capsys):
    package("shop", {"__init__": "", "leaves": "import sys; print('bye'); sys.exit(3)"})
    plug_ins(("leaver", "shop.leaves:Saw"))
    with pytest.raises(UserError, match="ImportError: it exits on import, with 3; mend"):
        tools.find("leaver")
    assert capsys.readouterr() == ("", "bye\n")


def test_a_plug_in_is_named_with_the_version_of_its_package(tools, plug_ins, tmp_path):
    (tmp_path / "drills-1.2.dist-info").mkdir()
    (tmp_path / "drills-1.2.dist-info" / "METADATA").write_text("Name: drills\nVersion: 1.2\n")
    plug_ins(("zsaw", f"{__name__}:Saw"))
    (point,) = metadata.entry_points(group=GROUP)
    assert tools.package("zsaw") == {}
    vars(point)["dist"] = metadata.Distribution.at(tmp_path / "drills-1.2.dist-info")
    assert tools.package("zsaw") == {"drills": "1.2"}
    assert tools.package("saw") == tools.package("nobody") == {}


def test_whatever_building_raises_is_one_line_and_a_refusal_stays_itself():
    def fail(error):
        raise error

    with pytest.raises(UserError) as refused:
        built("the saw", lambda: fail(KeyError("teeth\nmissing")))
    expected = "the saw cannot be built (KeyError: 'teeth\\nmissing'); mend it, or its options"
    assert str(refused.value) == expected
    with pytest.raises(UserError, match=r"^too short$"):
        built("the saw", lambda: fail(UserError("too short")))
    assert built("the saw", lambda: 3) == 3
