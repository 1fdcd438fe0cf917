"""Record golden runs, or with ``--check`` say which of them moved: one line for each, exact to the last bit.

    python tests/golden/record.py [--check]

Record anew only when a change of a result is meant, and say in the changelog which and why. What varies from run to run
is taken out before (golden_text.normal): moments, versions of noisewise and of libraries, the temporary folder, colours; the seconds that
``compare`` measured; hashes in a seal, of which it is kept whether they are right.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from golden_cases import RUN, RUN_FILES, laid_out, made_run, method_runs, of_commands, of_file, of_old, old_folders
from golden_text import machine, moved, put, recorded

FILES = ("methods.json", "commands.json", "run", "old.json")


def everything() -> dict[str, dict[str, Any]]:
    """Every golden file, made anew."""
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        laid_out(Path(here))
        methods = {name: made_run(name, Path(here)) for name in method_runs()}
        commands = of_commands(Path(there))
        run = {name: of_file(Path(there) / RUN / name) for name in RUN_FILES}
        old = {name: of_old(name, Path(there)) for name in old_folders()}
    return dict(zip(FILES, (methods, commands, run, old), strict=True))


def check(made: dict[str, dict[str, Any]]) -> list[str]:
    """One line for each entry that is not what was recorded."""
    lines = []
    for file, now in made.items():
        before = recorded(file)
        lines += [f"{file}: {name}: is gone" for name in before if name not in now]
        for name, entry in now.items():
            found = moved(before[name], entry, exact=True) if name in before else "is new"
            lines += [f"{file}: {name}: {found}"] if found else []
    return lines


def main() -> int:
    made = everything()
    if "--check" in sys.argv[1:]:
        lines = check(made)
        here, there = machine(), recorded("machine.json")
        lines += [
            f"note: {name} was {there.get(name)!r}, is {here[name]!r}" for name in here if here[name] != there.get(name)
        ]
        print("\n".join(lines) or "nothing moved")
        return int(any(not line.startswith("note:") for line in lines))
    put("machine.json", machine())
    for file, document in made.items():
        put(file, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
