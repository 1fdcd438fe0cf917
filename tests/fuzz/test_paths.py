"""Attacks by paths: links laid where a file is written or read, names that lead out of a folder, files that others can read."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import Budget, Terms, atomic
from noisewise.accounts.journal.folder import Journal
from noisewise.accounts.purse import Purse
from noisewise.evidence.report.page import write_report
from noisewise.evidence.runs import load, new_folder
from noisewise.learned.tasks import load_tasks
from noisewise.statements.seal import put_json, reseal
from noisewise.statements.verify import verify
from noisewise.tables.rows import RowStore
from noisewise.trusted.events import Gaussian
from noisewise.tune.runs import _folder

SECRET = "S3CRET-417"
BUDGET = Budget(1.0, 1e-6)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A file of somebody else, which nothing may change or show."""
    path = tmp_path / "elsewhere.txt"
    path.write_text(SECRET)
    path.chmod(0o640)
    return path


@pytest.fixture
def untouched(elsewhere: Path) -> Any:
    yield elsewhere
    assert elsewhere.read_text() == SECRET and mode(elsewhere) == 0o640


@pytest.fixture
def run(tmp_path: Path) -> Path:
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    model = nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), random_state=0, method="descent").fit(X, X[:, 0] > 0)
    nw.save(model, tmp_path / "run")
    return tmp_path / "run"


# -- writing -----------------------------------------------------------------------------------------------------------


def test_a_link_at_the_name_is_replaced_and_not_written_through(tmp_path: Path, untouched: Path) -> None:
    path = tmp_path / "out.json"
    path.symlink_to(untouched)
    atomic.write_atomically(path, b"{}")
    assert not path.is_symlink() and path.read_bytes() == b"{}"


def test_a_link_laid_at_the_draft_changes_no_mode(tmp_path: Path, untouched: Path, monkeypatch: Any) -> None:
    """Whoever may write to the folder swaps the draft for a link while it is written."""
    real = os.fdopen

    def swapped(handle: int, *how: Any, **more: Any) -> Any:
        draft = next(path for path in tmp_path.iterdir() if path.name.startswith(".out"))
        draft.unlink()
        draft.symlink_to(untouched)
        return real(handle, *how, **more)

    monkeypatch.setattr(os, "fdopen", swapped)
    atomic.write_atomically(tmp_path / "out.json", b"{}")


def test_a_folder_swapped_in_the_middle_gets_nothing(tmp_path: Path, untouched: Path, monkeypatch: Any) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    real = os.replace

    def swapped(draft: Any, path: Any, **more: Any) -> None:
        (tmp_path / "mine").rename(tmp_path / "moved")
        (tmp_path / "mine").symlink_to(tmp_path / "theirs")
        real(draft, path, **more)

    monkeypatch.setattr(os, "replace", swapped)
    with pytest.raises(OSError):
        atomic.write_atomically(tmp_path / "mine" / "out.json", SECRET.encode())
    assert not list((tmp_path / "theirs").iterdir())


def test_a_new_run_folder_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "theirs")
    with pytest.raises(ValueError, match="exists already"), new_folder(tmp_path / "run"):
        pass
    with pytest.raises(OSError), new_folder(tmp_path / "late") as draft:
        (draft / "run.json").write_text(SECRET)
        (tmp_path / "late").symlink_to(tmp_path / "theirs")
    assert not list((tmp_path / "theirs").iterdir())


def test_a_report_and_a_list_of_a_run_replace_links(run: Path, untouched: Path) -> None:
    (run / "report.html").symlink_to(untouched)
    write_report(run)
    (run / "audit.json").symlink_to(untouched)
    put_json(run / "audit.json", [])
    assert not (run / "report.html").is_symlink() and not (run / "audit.json").is_symlink()


@pytest.mark.parametrize("words", [("theory", "accountants", "--csv", "link"), ("demo", "--files", ".")])
def test_commands_write_through_no_link(tmp_path: Path, untouched: Path, words: Any, monkeypatch: Any) -> None:
    from noisewise.faces.cli import main

    monkeypatch.chdir(tmp_path)
    for name in ("link", "people.csv"):
        Path(name).symlink_to(untouched)
    monkeypatch.setattr(sys, "argv", ["noisewise", *words])
    with pytest.raises(SystemExit):
        main()


@pytest.mark.parametrize("name", ["own.json", "own.json.lock"])
def test_a_spending_file_and_its_lock_are_no_links(tmp_path: Path, untouched: Path, name: str) -> None:
    (tmp_path / name).symlink_to(untouched)
    with pytest.raises((ValueError, OSError)) as stopped:
        Purse(BUDGET, store=tmp_path / "own.json").part(Terms.adaptive("gdp"))
    assert SECRET not in str(stopped.value)


@pytest.mark.parametrize("name", ["lock", "settings.json", "journal.jsonl", "answers.bin"])
def test_no_file_of_a_checkpoint_is_a_link(tmp_path: Path, untouched: Path, name: str) -> None:
    place = tmp_path / "checkpoint"
    place.mkdir()
    if name != "settings.json":
        made = Journal(place, {"run": 1})
        made.charged("gradient", Gaussian(3.0), 0.0, 0.1)
        made.close()
        (place / name).unlink(missing_ok=True)
    (place / name).symlink_to(untouched)
    with pytest.raises((ValueError, OSError)) as stopped:
        journal = Journal(place, {"run": 1})
        try:
            from noisewise.curator import Answer

            journal.answered(Answer(np.zeros(2, np.float32), 3.0), {"clip": 1.0, "noise_std": 3.0, "norm": None})
        finally:
            journal.close()
    assert SECRET not in str(stopped.value)


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.json", "statement.json", "seal.json", "model.safetensors", "audit.json"])
def test_a_link_in_a_run_folder_shows_nothing_of_what_it_leads_to(run: Path, untouched: Path, name: str) -> None:
    """A file is taken for what was sealed by its content alone, so a link to another one is refused, unseen."""
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(untouched)
    for reading in (load, write_report):
        with pytest.raises(ValueError, match=name) as stopped:
            reading(run)
        assert SECRET not in str(stopped.value)
    reseal(run)  # as the one who laid the link would
    if name != "seal.json":
        with pytest.raises(ValueError) as stopped:
            (write_report if name == "audit.json" else load)(run)
        assert SECRET not in str(stopped.value)
        assert "is a link" in verify(run).reason


def test_a_pipe_is_not_waited_for(run: Path) -> None:
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")
    with pytest.raises(ValueError, match=r"lacks run\.json"):
        load(run)
    with pytest.raises(OSError, match="not a plain file"):
        atomic.read_plain(run / "run.json")


NAMES = ("../secret.csv", "/etc/passwd", "a/../../secret.csv", "a\0b", "a\nb", "..", "\x1b[2J.csv")


@pytest.mark.parametrize("name", NAMES)
def test_a_task_file_names_files_inside_its_folder_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.csv").write_text("x,y\n1,0\n")
    path = tmp_path / "data" / "tasks.toml"
    path.write_text(f'[[source]]\ndata = "table"\nfile = {json.dumps(name)}\n')
    with pytest.raises(ValueError, match="inside the data folder"):
        load_tasks(path)


def test_a_link_in_a_data_folder_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.csv").write_text("x,y\n1,0\n")
    (tmp_path / "data" / "rows.csv").symlink_to(tmp_path / "secret.csv")
    path = tmp_path / "data" / "tasks.toml"
    path.write_text('[[source]]\ndata = "table"\nfile = "rows.csv"\n')
    with pytest.raises(ValueError, match="is a link out of the data folder"):
        load_tasks(path)
    (tmp_path / "data" / "rows.csv").unlink()
    (tmp_path / "data" / "plain.csv").write_text("x,y\n1,0\n")
    (tmp_path / "data" / "rows.csv").symlink_to("plain.csv")
    assert load_tasks(path).sources[0].file == "rows.csv"


@pytest.mark.parametrize("name", ["../run.json", "/etc/passwd", "report.html"])
def test_a_seal_names_files_of_the_run_alone(run: Path, name: str) -> None:
    """What else a seal names is neither read nor believed."""
    seal = json.loads((run / "seal.json").read_text())
    seal["sha256"][name] = "0" * 64
    (run / "seal.json").write_text(json.dumps(seal))
    load(run)


# -- who else may read ---------------------------------------------------------------------------------------------------


@pytest.fixture
def open_umask() -> Any:
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_checkpoint_is_for_its_owner_alone(tmp_path: Path) -> None:
    from noisewise.curator import Answer

    journal = Journal(tmp_path / "checkpoint", {"run": 1})
    journal.charged("gradient", Gaussian(3.0), 0.0, 0.1)
    journal.answered(Answer(np.zeros(2, np.float32), 3.0), {"clip": 1.0, "noise_std": 3.0, "norm": None})
    journal.close()
    assert mode(tmp_path / "checkpoint") == 0o700
    files = {path.name: mode(path) for path in (tmp_path / "checkpoint").iterdir()}
    assert files == dict.fromkeys(("lock", "settings.json", "journal.jsonl", "answers.bin"), 0o600)
    again = Journal(tmp_path / "checkpoint", {"run": 1})
    again.close()
    assert [kept.question for kept in again.past] == ["gradient"]


@pytest.mark.usefixtures("open_umask")
def test_rows_on_disk_are_for_their_owner_alone(tmp_path: Path) -> None:
    with RowStore(3, tmp_path) as store:
        store.append(np.ones((5, 3), np.float32))
        assert store._file is not None
        assert stat.S_IMODE(os.fstat(store._file.fileno()).st_mode) == 0o600
        assert not list(tmp_path.iterdir()), "the file has a name"
    with _folder() as own:
        assert mode(Path(own)) == 0o700


@pytest.mark.usefixtures("open_umask")
def test_a_draft_is_private_until_it_is_whole(tmp_path: Path, monkeypatch: Any) -> None:
    seen = []
    real = os.fdopen
    monkeypatch.setattr(
        os, "fdopen", lambda handle, *how: (seen.append(os.fstat(handle).st_mode), real(handle, *how))[1]
    )
    atomic.write_atomically(tmp_path / "whole.json", b"{}")
    atomic.write_atomically(tmp_path / "private.json", b"{}", private=True)
    assert {stat.S_IMODE(one) for one in seen} == {0o600}
    assert mode(tmp_path / "whole.json") == 0o666 and mode(tmp_path / "private.json") == 0o600


@pytest.mark.usefixtures("open_umask")
def test_a_finished_run_is_for_others_to_read(run: Path) -> None:
    assert mode(run) == 0o777 and mode(run / "statement.json") == 0o666
