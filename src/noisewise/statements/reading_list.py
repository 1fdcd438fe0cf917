"""Which files a run's promise rests on, so that somebody can read them; with digests, so that they can be compared.

Three rings. 1: always read. 2: what the statement names: the code between the records and the answers of such a run. 3: not read:
compiled twins, which tests compare bit for bit with their references, and carriers of messages. Methods, protectors, reports and
all else that sees answers only is in none. A test traces runs and finds every file that they executed in the list.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1]
DEPENDENCIES = ("numpy", "scipy", "numba", "torch", "pyarrow", "cryptography", "dp-accounting")
TORCH = "trusted/torch_extra.py"  # without it a run has used no torch
RING_1 = "events counts meter opening facts question gate"  # in reading order


class Named(NamedTuple):
    """A file of the package (a path below it) and its ring."""

    path: str
    ring: int


class RunKind(NamedTuple):
    """What of a run decides which code it is."""

    records: str  # the module of trusted/stores that keeps them
    loss: str
    meter: Mapping[str, Any]
    questions: frozenset[str] = frozenset()  # by their names in a trace
    source: str = "arrays"  # of SOURCES
    uses: frozenset[str] = frozenset()  # of USES


USES = {  # what not every run does, and the code of it
    "walk": "trusted/walks/oneshot trusted/walks/objective trusted/walks/iterations trusted/accountants/common",
    "bought bounds": "trusted/curator trusted/stores/tables tables/bought methods/preparation/bounds methods/preparation/choices",
    "shards": "trusted/stores/shards protect/learned/private protect/learned/inside trusted/torch_extra",
    "selection": "trusted/selection tune/candidates tune/selection tune/runs tune/price trusted/accountants/selection",
    "exponential": "trusted/selection trusted/arithmetic tune/candidates tune/exponential tune/runs tune/price",
    "guest": "remote/messages guest/running guest/wire guest/isolation guest/method",
    "ledger": "accounts/ledger/store accounts/ledger/ledger accounts/ledger/database accounts/ledger/sql_tables accounts/ledger/lines",
    "journal": "accounts/journal/journalled accounts/journal/folder accounts/journal/chain",
    "clients": "remote/clients/server remote/clients/client remote/clients/one_record trusted/stores/protocol remote/clients/agreement remote/clients/messages",
}
CARRIERS = {"ranks": "remote/transport remote/gloo remote/messages", "clients": "remote/transport remote/messages"}
CURATOR = (
    "asking trusted/curator trusted/units trusted/arithmetic trusted/process "
    "trusted/validate trusted/losses/__init__ trusted/losses/base trusted/tickets trusted/models/base trusted/stores/__init__ "
    "trusted/stores/protocol trusted/stores/totals train"
)
NOISE = (
    "trusted/noise/stream trusted/noise/normal trusted/noise/normal_reference trusted/noise/intervals trusted/noise/secret_words "
    "trusted/noise/discrete"
)
PRICES = (
    "trusted/accountants/base trusted/accountants/common trusted/accountants/terms trusted/accountants/special "
    "trusted/accountants/gdp trusted/accountants/choose"
)
PAYING = "accounts/account accounts/purse accounts/spending_file accounts/budget_warnings"
SOURCES = {
    "files": "tables/addresses tables/column_checks tables/encode tables/files tables/persons tables/refusal tables/rows tables/schema tables/values "
    "tables/fit/build tables/fit/labels tables/fit/fit",
    "arrays": "tables/fit/build tables/encode tables/refusal tables/rows tables/values tables/fit/labels tables/fit/fit",
    "tensors": "tables/refusal tables/fit/build tables/fit/fit faces/pytorch/fit faces/pytorch/handed_over",
    "loop": "trusted/tickets faces/pytorch/run faces/pytorch/loop_meter faces/pytorch/loader faces/pytorch/criterion faces/pytorch/optimizer faces/pytorch/handed_over",
}
SOURCES["ranks"] = SOURCES["files"] + " remote/processes remote/holder remote/forms remote/workers"
GRID = "trusted/stores/grid trusted/stores/linear trusted/stores/reference trusted/stores/threads trusted/models/batches trusted/elementwise"
SPARSE = "trusted/stores/tables trusted/stores/sparse trusted/stores/sparse_reference"
FEATURES = "trusted/features trusted/models/linear methods/preparation/bounds methods/preparation/choices"
STORES = {
    "linear": f"{GRID} trusted/models/linear",
    "tables": f"{GRID} {SPARSE} {FEATURES} trusted/models/linear",
    "perceptron": f"{GRID} trusted/stores/perceptron trusted/stores/perceptron_passes "
    "trusted/stores/perceptron_reference trusted/models/perceptron trusted/models/layers/* trusted/torch_extra",
    "modules": "trusted/stores/modules trusted/models/module trusted/models/module_loss trusted/engine/* trusted/torch_extra",
}
PLANS = "trusted/accountants/calibrate trusted/accountants/pld trusted/accountants/classic"
RENYI = "trusted/accountants/rdp trusted/accountants/renyi"
CURRENCIES = {
    "gdp": "", "zcdp": "trusted/accountants/zcdp", "rdp": f"{RENYI} trusted/accountants/repetitions", "plan": f"{PLANS} {RENYI}",
    "tcdp": "trusted/accountants/tcdp trusted/accountants/zcdp", "ctcdp": "trusted/accountants/tcdp trusted/accountants/zcdp",
}  # fmt: skip
PATH = re.compile(r"(?:[a-z0-9_]{1,40}/){0,4}[a-z0-9_]{1,40}\.py")  # what a statement of a stranger's may name
ALWAYS, MAX_FILES = frozenset(f"trusted/{name}.py" for name in RING_1.split()), 1000
DIGEST, VERSION = re.compile(r"[0-9a-f]{64}"), re.compile(r"[\w.+!-]{1,64}", re.ASCII)
CODE = {"rings": [dict], "dependencies": dict}


def files_of(kind: RunKind, homes: Mapping[str, str]) -> list[Named]:
    """The list for such a run; ``homes`` has the file of every question and those of its sums, by its name in a trace."""
    asked = [homes[name].partition(" ") for name in sorted(kind.questions) if name in homes]
    second = [CURATOR, SOURCES[kind.source], STORES[kind.records]]
    second += [home for home, _, _ in asked] + [sums for _, _, sums in asked]
    second += [USES[use] for use in sorted(kind.uses)]
    if kind.records != "modules":
        second.append(f"trusted/losses/{kind.loss} trusted/losses/weighted")
    second += [NOISE, PRICES, CURRENCIES[kind.meter["name"]], PAYING]
    rings = dict.fromkeys(_paths([f"trusted/{name}" for name in RING_1.split()]), 1)
    third = ["trusted/fast/*", *(CARRIERS.get(one, "") for one in (kind.source, *sorted(kind.uses)))]
    for ring, paths in ((2, second), (3, third)):
        for path in _paths(paths):
            rings.setdefault(path, ring)
    return [Named(path, ring) for path, ring in rings.items()]


def _paths(lists: Iterable[str]) -> Iterator[str]:
    for name in " ".join(lists).split():
        if name.endswith("/*"):
            yield from (str(path.relative_to(PACKAGE)) for path in (PACKAGE / name[:-2]).rglob("*.py"))
        elif (PACKAGE / f"{name}.py").exists():
            yield f"{name}.py"


@cache
def digest_of(path: str) -> str | None:
    """Of a file of the installed package; None where there is none."""
    file = PACKAGE / path
    return hashlib.sha256(file.read_bytes()).hexdigest() if PATH.fullmatch(path) and file.is_file() else None


def code_of(files: Sequence[Named]) -> dict[str, Any]:
    """What a statement says of the code that ran: the files of each ring with their digests, and versions of libraries."""
    rings: list[dict[str, str | None]] = [{}, {}, {}]
    for one in files:
        rings[one.ring - 1][one.path] = digest_of(one.path)
    needed = [name for name in DEPENDENCIES if name != "torch" or any(one.path == TORCH for one in files)]
    versions = {name: version for name in needed if (version := _version(name)) is not None}
    return {"rings": rings, "dependencies": versions}


def also(code: Mapping[str, Any], use: str) -> dict[str, Any]:
    """The same code, and what something else that was done needs."""
    first, second, third = code["rings"]
    more = {path: digest_of(path) for path in _paths([USES[use]]) if path not in first}
    return {**code, "rings": [first, {**second, **more}, third]}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def odd_code(code: Mapping[str, Any]) -> str | None:
    """What no list of code can be, in words: other than three rings of files with digests, or libraries without versions."""
    rings, libraries = code["rings"], code["dependencies"]
    if len(rings) != 3 or not rings[0]:
        return "the list of code has not three rings, of which the first has files"
    if sum(map(len, rings)) > MAX_FILES:
        return f"the list of code has more than {MAX_FILES} files"
    pairs = [(PATH, DIGEST, pair) for ring in rings for pair in ring.items()]
    pairs += [(VERSION, VERSION, pair) for pair in libraries.items()]
    odd = next((name for one, other, (name, value) in pairs if not (_is(one, name) and _is(other, value))), None)
    if odd is not None:
        return f"the list of code has {str(odd)[:60]!r}, which is no file with a digest and no library with a version"
    if len(rings[0]) != len(ALWAYS) or not ALWAYS.issubset(rings[0]):
        return "the first ring is not the files that are always read"
    if len({*rings[0], *rings[1], *rings[2]}) < sum(map(len, rings)) or not all(map(_unread, rings[2])):
        return "a file that is to be read stands in another ring as well, or among those that are not"
    return None


def _unread(path: str) -> bool:
    return path.startswith("trusted/fast/") or path in {*_paths(CARRIERS.values())}


def _is(what: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and bool(what.fullmatch(value))


def installed(code: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The list of a statement for a reader: with lines, and whether each file is the one that is installed here."""
    found = []
    for ring, files in enumerate(code["rings"], 1):
        for path, digest in files.items():
            same = digest is not None and digest_of(path) == digest
            lines = len((PACKAGE / path).read_text(encoding="utf-8").splitlines()) if same else None
            found.append({"path": path, "lines": lines, "digest": digest, "ring": ring, "installed": same})
    return found
