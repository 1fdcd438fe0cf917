"""How many files a reader opens to follow a record: those with a function that runs between a command, or ``fit``, and the first exact sum.

``python tests/walks.py`` prints the walks as docs/architecture.md names their files, and tests/test_walks.py compares them. Each walk is run once before it is traced, so that what is
imported and compiled on the way is not counted.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import noisewise as nw
from noisewise.faces.cli import main
from noisewise.faces.cli.demo import write_census

HOUSE = Path(nw.__file__).parent
NOISE = "trusted/noise/normal"  # where an exact sum gets its noise: the walk ends before it
OF_FUNCTIONS = 1  # the flag of code that is a function's, not a module's or a class's


def files_on(walk: Callable[[], object]) -> list[str]:
    """Files of the package, in the order in which they are entered, up to the noise of the first sum."""
    found: dict[str, None] = {}
    ended = False

    def entered(frame: FrameType, event: str, _: Any) -> None:
        nonlocal ended
        code, name = frame.f_code, Path(frame.f_code.co_filename)
        if ended or event != "call" or not code.co_flags & OF_FUNCTIONS or HOUSE not in name.parents:
            return
        path = name.relative_to(HOUSE).as_posix()
        if ended := path.startswith(NOISE):
            return
        found.setdefault(path)

    threading.setprofile(entered)
    sys.setprofile(entered)
    try:
        walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert ended, "no sum was noised on this walk"
    return list(found)


def command(folder: Path) -> Callable[[], None]:
    """``noisewise train`` on the files of the demo."""
    numbers = iter(range(99))

    def run() -> None:
        out = folder / f"run{next(numbers)}"
        words = ["--epsilon", "1", "--delta", "1e-6", "--method", "descent", "--seed", "1", "--out", str(out)]
        sys.argv = ["noisewise", "train", str(folder / "census.csv"), "--schema", str(folder / "schema.toml"), *words]
        silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        with silent[0], silent[1], contextlib.suppress(SystemExit):
            main()

    return run


def walks() -> dict[str, list[str]]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 4))
    model = nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), random_state=0, method="descent")

    def fit() -> None:
        model.fit(X, X[:, 0] > 0)

    with tempfile.TemporaryDirectory() as name:
        write_census(Path(name), private=2000, new=10)
        train = command(Path(name))
        train()
        fit()
        return {"train": files_on(train), "fit": files_on(fit)}


def event() -> list[str]:
    """The files from a question to the verdict on what it cost, of a run of ``descent``."""
    asked = (
        "asking trusted/curator trusted/question trusted/questions/gradient trusted/events trusted/gate trusted/meter"
    )
    priced = "trusted/accountants/gdp trusted/accountants/base trusted/accountants/common accounts/purse"
    told = "statements/statement statements/verify accounts/replay"
    return [f"{name}.py" for name in f"{asked} {priced} {told}".split()]


def by_room(files: list[str]) -> str:
    """The files under their folders, in the order in which the folders are entered first."""
    rooms: dict[str, list[str]] = {}
    for path in files:
        folder, _, name = path.removesuffix(".py").rpartition("/")
        rooms.setdefault(f"{folder}/" if folder else "", []).append(name)
    width = max(map(len, rooms)) + 1 if rooms else 0
    return "\n".join(f"{room:{max(width, 11)}}{', '.join(names)}" for room, names in rooms.items())


if __name__ == "__main__":
    for start, files in {**walks(), "event": event()}.items():
        print(f"{start}: {len(files)} files\n{by_room(files)}\n")
