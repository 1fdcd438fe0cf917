"""Every file that a run's promise rests on has a mutant, and every mutant has its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from every_mutant import MUTANTS
from mutant import ROOT, home

from noisewise.statements import reading_list as reading
from noisewise.statements.statement import HOMES

SOURCES = ROOT / "src" / "noisewise"
WITHOUT = {  # files of the first two rings in which there is nothing to change
    "protect/learned/private.py": "imports a part that needs torch when it is asked for",
    "trusted/accountants/special.py": "fetches functions of scipy by their names",
    "trusted/engine/__init__.py": "names of its parts",
    "trusted/engine/rules/__init__.py": "imports its parts",
    "trusted/torch_extra.py": "imports torch, or says that it is not installed",
}


def to_be_read() -> set[str]:
    """All files of the first two rings, of runs of every kind."""
    lists = [f"trusted/{name}" for name in reading.RING_1.split()]
    lists += [reading.CURATOR, reading.NOISE, reading.PRICES, reading.PAYING, *HOMES.values()]
    for several in (reading.SOURCES, reading.STORES, reading.USES, reading.CURRENCIES):
        lists += several.values()
    lists += ["trusted/questions/*", "trusted/losses/*"]
    paths: list[Path] = []
    for name in " ".join(lists).split():
        paths += (SOURCES / name[:-2]).rglob("*.py") if name.endswith("/*") else [SOURCES / f"{name}.py"]
    return {str(path.relative_to(SOURCES)) for path in paths}


def test_every_file_that_must_be_read_has_a_mutant():
    there = to_be_read()
    changed = {str(home(ROOT, mutant).relative_to(SOURCES)) for mutant in MUTANTS}
    assert len(there) > 150
    assert sorted(there - changed - {*WITHOUT}) == []
    assert sorted({*WITHOUT} - there) == [] == sorted({*WITHOUT} & changed)


def test_every_mutant_has_a_name_of_its_own_and_changes_something():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert not [mutant.name for mutant in MUTANTS if mutant.old == mutant.new or not mutant.tests]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_a_program_and_its_tests_are_there(mutant):
    path = home(ROOT, mutant)  # refuses a text that is not there once
    compile(path.read_text().replace(mutant.old, mutant.new), str(path), "exec")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
        assert (ROOT / file).exists() and (not name or f"def {name.partition('[')[0]}(" in text), test
