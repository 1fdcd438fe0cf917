"""Golden entries as text: what varies is taken out, the rest is written readably and compared.

Exactly, on the machine that recorded them (same processor, same libraries). Elsewhere BLAS and torch may round sums of
floats another way, so numbers are compared to a tolerance there, and the frames that rich and typer draw not at all.
"""

from __future__ import annotations

import json
import math
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import noisewise

HOME = Path(__file__).parent
LIBRARIES = ("dp-accounting", "numba", "numpy", "pandas", "pyarrow", "rich", "scikit-learn", "scipy", "torch", "typer")
NUMBER = re.compile(r"\d+\.?\d*(?:[eE][-+]?\d+)?")
FRAME = re.compile(r"[\s\u2500-\u257f]+")  # white space and what boxes are drawn with
SOURCE = re.compile(r"^ *(\"|&quot;)[\w/]+\.py\1: \1(?:[0-9a-f]{64}|DIGEST)\1,?\n", re.MULTILINE)
RELATIVE = 1e-9  # of float64 sums that another processor adds up in another order
SINGLE = 1e-4  # of what follows from float32 sums, such as a public start by L-BFGS


def machine() -> dict[str, str]:
    """What the low bits of a float depend on: the processor, Python and the libraries."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    names = ("model name", "cpu family", "model", "stepping")
    processor = ", ".join(told[name] for name in names if name in told) or platform.processor()
    flags = " ".join(flag for flag in told.get("flags", "").split() if flag.startswith(("avx", "fma", "amx")))
    return {
        "processor": f"{platform.machine()}: {processor}; {flags}",
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


def normal(text: str, folder: Path | None = None) -> str:
    """A text without what must vary: colours, the moment, versions of noisewise and libraries, the temporary folder."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)", "MOMENT", text)
    text = re.sub(r"\d{1,2} [A-Z][a-z]+ \d{4}(?:, \d\d:\d\d UTC)?", "MOMENT", text)
    text = re.sub(rf"(noisewise ){re.escape(noisewise.__version__)}", r"\1VERSION", text)
    between = r"(?:\"|&quot;): (?:\"|&quot;)|(?:</?\w+[^>]*>\s*)+"  # in JSON, in JSON on a page, in cells of a table
    for name in ("noisewise", *LIBRARIES):
        text = re.sub(rf"\b({name}(?:{between}))\d[\w.+]*", r"\1VERSION", text)
    text = SOURCE.sub("", text)  # of the list of code: files move and change
    return text if folder is None else text.replace(str(folder.resolve()), "FOLDER").replace(str(folder), "FOLDER")


def readable(value: Any, indent: str = "") -> str:
    """JSON with a line for each line of a text, and for each other list or object that holds no further ones."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    text = isinstance(value, list) and len(value) > 1 and all(isinstance(line, str) for line in value)
    if not text and not any(isinstance(item, dict | list) for item in inside):
        return json.dumps(value, ensure_ascii=False)
    deeper, ends = indent + " ", "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {readable(item, deeper)}" for key, item in value.items()]
    else:
        items = [readable(item, deeper) for item in value]
    return ends[0] + "\n" + ",\n".join(deeper + item for item in items) + "\n" + indent + ends[1]


def recorded(name: str) -> Any:
    """A golden file, or a folder of texts as {name: lines}."""
    if (HOME / name).is_dir():
        return {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted((HOME / name).iterdir())}
    return json.loads((HOME / name).read_text(encoding="utf-8"))


def put(name: str, document: Any) -> None:
    """Write a golden file, or a folder of texts when the name says no kind of file."""
    if name.endswith(".json"):
        (HOME / name).write_text(readable(document) + "\n", encoding="utf-8")
        return
    (HOME / name).mkdir(exist_ok=True)
    for file, lines in document.items():
        (HOME / name / f"{file}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def moved(before: Any, now: Any, *, exact: bool, at: str = "", close: float = RELATIVE) -> str | None:
    """The first place where two entries differ, in one line; None when they are the same."""
    if type(before) is not type(now):
        return f"{at or 'it'}: {_short(before)} became {_short(now)}"
    if isinstance(before, list) and all(isinstance(line, str) for line in [*before, *now]):
        before, now = "\n".join(before), "\n".join(now)  # a text, which may be wrapped elsewhere
    if isinstance(before, dict):
        if list(before) != list(now):
            return f"{at or 'it'}: fields {list(before)} became {list(now)}"
        pairs = [(f"{at}.{key}".lstrip("."), before[key], now[key]) for key in before if exact or key != "sha256"]
    elif isinstance(before, list):
        if len(before) != len(now):
            return f"{at}: {len(before)} items became {len(now)}"
        pairs = [(f"{at}[{i}]", *both) for i, both in enumerate(zip(before, now, strict=True))]
    else:
        return None if _same(before, now, exact, close) else f"{at or 'it'}: {_first(before, now)}"
    found = (moved(old, new, exact=exact, at=where, close=close) for where, old, new in pairs)
    return next((line for line in found if line), None)


def _same(before: Any, now: Any, exact: bool, close: float) -> bool:
    if exact or not isinstance(before, str | float):
        return before == now
    if isinstance(before, float):
        return math.isclose(before, now, rel_tol=close, abs_tol=close)
    if "Usage: noisewise" in before:  # a page of help: other versions of typer lay it out in other words
        return sorted(set(re.findall(r"--[a-z][a-z-]+", before))) == sorted(set(re.findall(r"--[a-z][a-z-]+", now)))
    if FRAME.sub(" ", NUMBER.sub("#", before)) != FRAME.sub(" ", NUMBER.sub("#", now)):
        return False
    pairs = zip(NUMBER.findall(before), NUMBER.findall(now), strict=True)
    return all(old == new or math.isclose(float(old), float(new), rel_tol=close, abs_tol=close) for old, new in pairs)


def _first(before: Any, now: Any) -> str:
    if not isinstance(before, str):
        return f"{before!r} became {now!r}"
    old, new = before.splitlines(), now.splitlines()
    place = next(
        (i for i, both in enumerate(zip(old, new, strict=False)) if both[0] != both[1]), min(len(old), len(new))
    )
    ends = [_short(lines[place]) if place < len(lines) else "(no line)" for lines in (old, new)]
    return f"line {place + 1}: {ends[0]} became {ends[1]}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
