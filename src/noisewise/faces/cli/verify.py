"""``noisewise verify``: whether a statement or a run folder keeps its promise."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .main import JsonFlag, app, fail, print_json


@app.command()
def verify(
    statement: Annotated[Path, typer.Argument(help="A statement.json written by noisewise, or a run folder.")],
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Find the run of a folder in the account that paid for it.", show_default=False
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="The account that must have paid.", show_default=False)
    ] = None,
    reading_list: Annotated[
        bool,
        typer.Option(
            "--reading-list", help="Print the files that the promise rests on, in reading order, and no verdict."
        ),
    ] = False,
    json_output: JsonFlag = False,
) -> None:
    """Recompute the promise of a statement from the statement alone: yes or no.

    Of a run folder it also checks the seal, and that text, trace, settings and statement say the same. Whoever rewrites
    all of them alike and seals the folder anew cannot be found out from the folder: its word is its sender's word.

    With --ledger it looks the run up in the account that paid for it: the same terms, amounts and events must be written
    there. With --dataset it must be that account, in the ledger of --ledger or NOISEWISE_LEDGER.

    With --reading-list it prints which files of noisewise the run's promise rests on: what to read first (ring 1), what the statement
    names (ring 2), and compiled twins, which tests compare with their references (ring 3); and whether they are those installed here.

    Needs no data. Exit code 0 for yes, 1 for no, 2 when the file cannot be read.

    Example: [bold]noisewise verify noisewise-demo/statement.json[/bold]

    Example: [bold]noisewise verify run --ledger ledger.db[/bold]
    """
    from ...statements.verify import Unreadable, verify_path

    if reading_list:
        _show_list(statement, json_output=json_output)
        return
    try:
        verdict = verify_path(statement)
    except Unreadable as error:
        raise SystemExit(fail(str(error))) from None
    found = _in_account(statement, ledger, dataset) if ledger is not None or dataset is not None else None
    code = _code(statement)
    others = None if code is None else sum(not one["installed"] for one in code)
    if json_output:
        paid = {} if found is None else {"ledger": {"paid": found[0], "says": found[1]}}
        print_json({**asdict(verdict), **paid, **({} if others is None else {"other_files": others})})
    else:
        typer.echo(str(verdict))
        if others:
            typer.echo(
                f"note: {others} of the {len(code or ())} files that the run's promise rests on are not those installed here (--reading-list)"
            )
        if found is not None:
            typer.echo(f"{'yes' if found[0] else 'no'}: {found[1]}")
    raise typer.Exit(0 if verdict.holds and (found is None or found[0]) else 1)


def _in_account(folder: Path, ledger: str | None, dataset: str | None) -> tuple[bool, str]:
    """Whether the account has the run of a folder, and in one line what it says."""
    from ...accounts.ledger import Ledger
    from ...accounts.ledger.receipt import paid

    opened = Ledger(ledger)
    if not folder.is_dir():
        raise ValueError(f"{folder}: a ledger is asked about a run folder; pass the folder that noisewise train wrote")
    return paid(opened, _document(folder / "spending.json"), _document(folder / "statement.json") or {}, dataset)


def _document(path: Path) -> Any:
    """A JSON file of a stranger's; None where it is missing or none."""
    from ...statements.seal import parsed

    try:
        return parsed(path.read_bytes())  # as the verdict reads it
    except (OSError, ValueError, RecursionError):
        return None


RINGS = {
    1: "always read",
    2: "read what the statement names",
    3: "not read: compiled twins, compared bit for bit, and carriers",
}


def _code(path: Path) -> list[dict[str, Any]] | None:
    """The files that a statement lists; None where it lists none."""
    from ...statements.reading_list import CODE, installed, odd_code
    from ...statements.seal import check_shape

    data = _document(path / "statement.json" if path.is_dir() else path)
    code = data.get("code") if isinstance(data, dict) else None
    try:
        check_shape(code, CODE, "the code of the statement")
    except ValueError:
        return None
    return None if code is None or odd_code(code) else installed(code)  # of a forger's list nothing is printed


def _show_list(path: Path, *, json_output: bool) -> None:
    files = _code(path)
    if files is None:
        why = "there is no statement with a list of code that can be one; train again, or read docs/security.md"
        raise SystemExit(fail(f"{path}: {why}"))
    if json_output:
        print_json({"files": files})
        return
    for ring, words in RINGS.items():
        own = [one for one in files if one["ring"] == ring]
        lines = sum(one["lines"] or 0 for one in own)
        typer.echo(f"Ring {ring}, {words}: {len(own)} files, {lines:,} lines")
        for one in own:
            other = "" if one["installed"] else "  (another file is installed here)"
            typer.echo(f"  {one['lines'] or '-':>5}  {one['path']}{other}")
    same = all(one["installed"] for one in files)
    typer.echo(
        "These are the files that are installed here." if same else "Some files are not those that are installed here."
    )
