"""The pictures that quick commands make, made anew: ``make pictures``, or ``python tests/docs/make_pictures.py plan.png demo.png``.

Each is what its command draws, so it cannot say anything else than the code does. docs/images/README.md lists all pictures.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMAGES, SCREENS = ROOT / "docs" / "images", ROOT / "tests_browser" / "screens.py"
BUDGET = "--epsilon 1 --delta 1e-6"
TRAIN = f"noisewise train noisewise-demo/census.csv --schema noisewise-demo/schema.toml {BUDGET} --out run"
TEST = "noisewise evaluate run noisewise-demo/new.csv --public-test"
CANDIDATES = "1,2,4,8,16,32,64,128"


@dataclass(frozen=True)
class Made:
    """Commands that end in a picture, and where they leave it."""

    commands: tuple[str, ...]
    picture: str


PICTURES: Mapping[str, Made] = {
    "demo.png": Made(("noisewise demo",), "noisewise-demo/accuracy.png"),
    "report.png": Made(
        ("noisewise demo", TRAIN, TEST, f"python {SCREENS} run/report.html report.png --width 1280 --height 1600"),
        "report.png",
    ),
    "plan.png": Made((f"noisewise plan {BUDGET} --size 3000 --features 14 --plot plan.png",), "plan.png"),
    "tuning-price.png": Made(
        (f"noisewise plan {BUDGET} --size 30000 --features 14 --candidates {CANDIDATES} --plot price.png",), "price.png"
    ),
    **{
        f"theory-{part}.png": Made((f"noisewise theory {part} --out {part}.png",), f"{part}.png")
        for part in ("bounds", "influence", "tails", "accountants")
    },
    **{
        name: Made(("noisewise bench beginners --out beginners",), f"beginners/{name}")
        for name in (
            *(f"beginners-{part}.png" for part in ("two-worlds", "odds", "adding-up", "crowd", "clip-and-noise")),
            "beginners-not-protected.png",
            "which-method.png",
        )
    },
}


def make(names: Sequence[str], folder: Path = IMAGES) -> None:
    """Write these pictures, or all, into a folder; what several need is run once."""
    if unknown := [name for name in names if name not in PICTURES]:
        raise SystemExit(f"{unknown[0]} is not made here; pass some of {', '.join(PICTURES)}")
    done: set[str] = set()
    with tempfile.TemporaryDirectory() as place:
        for name in names or PICTURES:
            for command in PICTURES[name].commands:
                if command not in done:
                    _run(command, Path(place))
                    done.add(command)
            shutil.copyfile(Path(place) / PICTURES[name].picture, folder / name)
            print(f"{folder / name}: {'; '.join(PICTURES[name].commands)}", flush=True)


def _run(command: str, place: Path) -> None:
    """A command as users type it, by this Python."""
    program, *words = shlex.split(command)
    module = ["-m", "noisewise"] if program == "noisewise" else []
    ended = subprocess.run([sys.executable, *module, *words], cwd=place, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{command}: {ended.stderr.strip() or ended.stdout.strip()}")


if __name__ == "__main__":
    make(sys.argv[1:])
