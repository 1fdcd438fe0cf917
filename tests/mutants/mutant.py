"""What a mutant is, and names of the tests that notice many."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAW = "tests/laws/test_curator_laws.py::test_no_record_moves_a_total_further_than_its_noise_allows_for"
PERSONS = "tests/laws/test_person_laws.py::test_no_person_moves_a_total_further_than_its_noise_allows_for"
BATCH = "tests/laws/test_curator_laws.py::test_a_batch_is_summed_as_if_it_were_the_data_set"
TABLES = "tests/attacks/test_tables.py::"
ONE_SHOT = "tests/curator/test_oneshot.py::test_"
METER = ("tests/laws/test_meter_edges.py", "tests/test_budget.py")


@dataclass(frozen=True)
class Mutant:
    """A change that makes a promise false, and the tests that should notice it first."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    where: str = "**/*.py"
    kernels: str = "reference"  # or "compiled", where a file is of no use without


def law(*cases: str) -> tuple[str, ...]:
    return tuple(f"{LAW}[{case}]" for case in cases)


def persons(*cases: str) -> tuple[str, ...]:
    return tuple(f"{PERSONS}[{case}]" for case in cases)


def one_shot(*names: str) -> tuple[str, ...]:
    return tuple(ONE_SHOT + name for name in names)


def home(tree: Path, mutant: Mutant) -> Path:
    """The one file with the text of a mutant, where it occurs once."""
    paths = [path for path in (tree / "src" / "noisewise").glob(mutant.where) if mutant.old in path.read_text()]
    if len(paths) != 1 or paths[0].read_text().count(mutant.old) != 1:
        places = ", ".join(str(path.relative_to(tree)) for path in paths) or "no file"
        raise SystemExit(
            f"{mutant.old!r} is in {places}; a mutant needs a text that occurs once: adapt {mutant.name!r}"
        )
    return paths[0]
