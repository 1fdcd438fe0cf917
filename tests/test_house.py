"""The house: rooms in one order, arrows one way, function-level imports included; nobody reaches for a private name.

A room is a folder or a file of ``src/noisewise``. It may import rooms that stand before it in ``ORDER`` and no others, so
there can be no cycle; docs/architecture.md draws it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

HOUSE = Path(__file__).parents[1] / "src" / "noisewise"
ORDER = (
    *("_version", "_public"),  # what everything stands on
    "trusted",  # what must be believed: it imports nothing outside itself
    "asking",  # the shapes in which untrusted code asks, and the same questions on public rows
    "remote",  # records that lie in other processes
    "accounts",  # who pays, and what survives a crash
    *("protect", "methods", "guest", "train"),  # what asks, and the one loop
    "statements",  # what a run promises
    "tables",  # from files to a fitted model
    "remote.clients",  # records that lie with clients, each of which reads a file of its own
    "evidence",  # what is known of a model
    *("learned", "tune"),  # meta-training, and searching with a price
    *("faces", "__main__"),
)
FLOORS_OF_THEIR_OWN = ("remote.clients",)
ROOT = ""  # the package itself: names for users, imported when first used


def room_of(name: str) -> str:
    own = next((room for room in FLOORS_OF_THEIR_OWN if f"{name}.".startswith(f"{room}.")), None)
    return own or name.split(".")[0]


class Arrow(NamedTuple):
    source: str
    target: str
    names: tuple[str, ...]
    line: int

    @property
    def rooms(self) -> tuple[str, str]:
        return room_of(self.source), room_of(self.target)

    def __str__(self) -> str:
        return f"{self.source}:{self.line} -> {self.target} ({', '.join(self.names)})"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(HOUSE.rglob("*.py")):
        parts = path.relative_to(HOUSE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def arrows(name: str) -> Iterator[Arrow]:
    """Every import of our own code, wherever in the file it stands, also for types alone."""
    path = MODULES[name]
    package = [part for part in (name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]) if part]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "noisewise":
                    yield Arrow(name, alias.name.removeprefix("noisewise").lstrip("."), (), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            said = (node.module or "").split(".") if node.module else []
            if node.level:
                base = [*package[: len(package) - node.level + 1], *said]
            elif said[:1] == ["noisewise"]:
                base = said[1:]
            else:
                continue
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                target = whole if whole in MODULES else ".".join(base)
                yield Arrow(name, target, () if whole in MODULES else (alias.name,), node.lineno)


ARROWS = [arrow for name in MODULES for arrow in arrows(name)]


def test_every_room_has_its_place():
    rooms = {room_of(name) for name in MODULES} - {ROOT}
    assert rooms == {*ORDER}, "give a new room its place in ORDER, and in docs/architecture.md"
    assert len(ARROWS) > 500  # the graph is really drawn


def against_the_order(arrow: Arrow) -> bool:
    source, target = arrow.rooms
    if source in {target, ROOT}:
        return False
    return target not in ORDER or ORDER.index(target) >= ORDER.index(source)


def test_no_arrow_goes_against_the_order():
    assert not [str(arrow) for arrow in ARROWS if against_the_order(arrow)]


def test_an_arrow_against_the_order_would_be_seen():
    assert against_the_order(Arrow("trusted.gate", "methods.base", (), 1))
    assert against_the_order(Arrow("trusted.accountants.gdp", "", ("Budget",), 1))
    assert against_the_order(Arrow("cli.main", "choice", (), 1))
    assert not against_the_order(Arrow("methods.base", "trusted.facts", (), 1))


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_private_name_is_used_across_rooms():
    imported = [str(arrow) for arrow in ARROWS if arrow.rooms[0] != arrow.rooms[1] and any(map(private, arrow.names))]
    inside = [
        str(arrow)
        for arrow in ARROWS
        if arrow.rooms[0] != arrow.rooms[1] and any(map(private, arrow.target.split(".")[1:]))
    ]
    assert imported == inside == []


def reached(name: str) -> list[str]:
    """Private attributes of modules of other rooms, as in ``module._name``."""
    tree, room = ast.parse(MODULES[name].read_text()), name.split(".")[0]
    elsewhere = {
        arrow.target.split(".")[-1]
        for arrow in ARROWS
        if arrow.source == name and not arrow.names and arrow.rooms[1] != room
    }
    return [
        f"{name}:{node.lineno} {node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and private(node.attr) and isinstance(node.value, ast.Name)
        and node.value.id in elsewhere
    ]  # fmt: skip


def test_nobody_reaches_into_a_module_of_another_room():
    assert not [line for name in MODULES for line in reached(name)]


FITTED = {
    "_theta",
    "_trained_model",
    "_scaling",
    "_encoder",
    "_row_scores",
    "_predictions",
    "_spread",
    "_target_bounds",
}


def test_nobody_reaches_into_what_was_fitted():
    """Those were 42 reaches into a half-made estimator; a Fitted has names for all of it."""
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in FITTED:
                assert isinstance(node.value, ast.Name) and node.value.id == "self", f"{name}:{node.lineno} {node.attr}"


def needed_by(*names: str) -> set[str]:
    """Modules that importing these imports, with the packages they stand in, and what is imported for types."""
    todo, seen = [*names], set()
    while todo:
        name = todo.pop()
        if name not in seen and name in MODULES:
            seen.add(name)
            targets = [arrow.target.split(".") for arrow in ARROWS if arrow.source == name]
            todo += [".".join(parts[:depth]) for parts in targets for depth in range(1, len(parts) + 1)]
    return seen


@pytest.mark.parametrize("heavy", ["theory", "learned", "audit", "report", "cli", "estimators"])
def test_training_needs_no_laboratory_and_no_face(heavy):
    seen = needed_by("fitting.fit", "train", "methods")
    assert len(seen) > 50 and not [name for name in seen if name.split(".")[0] == heavy]


LINES = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
TRUSTED = [name for name in MODULES if name.split(".")[0] == "trusted"]
FLOORS = (  # of the trusted side, lowest first: a file or folder imports what stands before it, and twins of what is compiled
    *("validate", "torch_extra", "process", "arithmetic", "events", "units"),
    *("fast", "elementwise", "accountants", "counts", "meter", "opening"),
    *("losses", "features", "engine", "models", "noise", "stores", "facts", "question", "questions"),
    *("tickets", "gate", "walks", "curator", "selection"),
)


def floor(name: str) -> str:
    return name.split(".")[1] if "." in name else ROOT


def test_the_trusted_side_imports_nothing_outside_itself():
    outside = [str(arrow) for arrow in ARROWS if arrow.rooms[0] == "trusted" != arrow.rooms[1]]
    assert not outside and {floor(name) for name in TRUSTED} - {ROOT} == {*FLOORS}


def test_on_the_trusted_side_too_arrows_go_one_way():
    inside = [arrow for arrow in ARROWS if arrow.rooms == ("trusted", "trusted")]
    against = [
        str(arrow)
        for arrow in inside
        if floor(arrow.source) not in (floor(arrow.target), "fast")
        and FLOORS.index(floor(arrow.target)) >= FLOORS.index(floor(arrow.source))
    ]
    assert len(inside) > 300 and not against


REPLAY = "src/noisewise/accounts/replay.py"  # pays again for what a statement lists; nothing is released


@pytest.mark.parametrize(
    ("what", "elsewhere"), [("meter.spend(", {REPLAY}), ("Stream(", {"src/noisewise/asking.py"})], ids=["pay", "stream"]
)
def test_the_gate_alone_charges_a_meter_and_makes_a_private_stream(what, elsewhere):
    """By these names, examples in docstrings apart; ``class Stream`` is no construction."""
    found = {
        str(path.relative_to(HOUSE.parents[1]))
        for path in HOUSE.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(rf"(?<![\w]){re.escape(what)}", line) and ">>>" not in line and "... " not in line
    }
    assert found == {"src/noisewise/trusted/gate.py"} | elsewhere


def test_files_are_short():
    assert not {name: count for name, count in LINES.items() if count > 400}


def test_the_curator_of_a_linear_model_loads_no_records_of_another():
    code = "import sys, noisewise.asking; print(*[name for name in sys.modules if 'stores.perceptron' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


SHORT = ("curator", "gate", "question", "questions", "meter", "opening", "counts", "facts", "selection")


def test_functions_that_must_be_believed_are_short():
    for name in TRUSTED:
        if floor(name) in SHORT:
            for node in ast.walk(ast.parse(MODULES[name].read_text())):
                if isinstance(node, ast.FunctionDef):
                    assert (node.end_lineno or 0) - node.lineno < 40, f"{name}:{node.lineno} {node.name}"


def test_the_page_about_the_house_names_every_room():
    page = (HOUSE.parents[1] / "docs" / "architecture.md").read_text()
    rooms = [room.replace(".", "/") for room in ORDER]
    assert not [room for room in rooms if f"`{room}`" not in page and f"`{room}/`" not in page]
    drawing = (HOUSE.parents[1] / "docs" / "images" / "house.svg").read_text()
    assert all(
        f">{room}/<" in drawing for room in ORDER if (HOUSE / room.replace(".", "/")).is_dir() and "." not in room
    )


DEFINED_TWICE = {
    "Curator": "asking.Curator is the trusted one, with the shapes in which methods ask",
    "State": "each method has its own, as methods/base asks",
}


def named_twice(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Public class names that several modules define, and those that another module gives to a type alias."""
    classes: dict[str, list[str]] = {}
    aliases: dict[str, list[str]] = {}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.setdefault(node.name, []).append(name)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(
                node.value, ast.Subscript | ast.BinOp | ast.Name | ast.Attribute
            ):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        aliases.setdefault(target.id, []).append(name)
    whole = {name: where + aliases.get(name, []) for name, where in classes.items()}
    return {name: where for name, where in whole.items() if len(where) > 1}


TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def test_no_class_name_is_defined_twice():
    found = named_twice(TREES)
    assert {*found} == {*DEFINED_TWICE}, "give each thing a name of its own"
    assert all(name.startswith("methods.") for name in found["State"])
    assert {*found["Curator"]} == {"asking", "trusted.curator"}


def test_a_class_name_that_is_defined_twice_would_be_seen():
    both = {"one": ast.parse("class Part: ..."), "two": ast.parse("Part = list[int]")}
    assert named_twice(both) == {"Part": ["one", "two"]}


SAYS_NOTHING = re.compile(
    r"_?((MOST|LEAST|LONGEST|LARGEST|SMALLEST|FEWEST)(_.*)?|ENOUGH.*|FEW|MANY|CHUNK|BLOCK|LINE|SMALL|TINY|HUGE)"
)


def constants(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name) and part.id.isupper())


LABORATORY = HOUSE.parents[1] / "lab" / "src"


def test_constants_say_what_they_limit():
    laboratory = {path.stem: ast.parse(path.read_text()) for path in LABORATORY.rglob("*.py")}
    assert len(laboratory) > 20
    assert not [
        f"{name}: {constant}"
        for trees in (TREES, laboratory)
        for name, tree in trees.items()
        for constant in constants(tree)
        if SAYS_NOTHING.fullmatch(constant)
    ]


def test_a_constant_that_says_nothing_would_be_seen():
    tree = ast.parse("MAX_ROWS, MOST = 1, 2\nLEAST_MU: float = 1e-6\nENOUGH_FOR_PAIRS = 3\nBATCH_NORMS = 4")
    assert [name for name in constants(tree) if SAYS_NOTHING.fullmatch(name)] == [
        "MOST",
        "LEAST_MU",
        "ENOUGH_FOR_PAIRS",
    ]
