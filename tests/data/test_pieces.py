"""Pieces of files: whole row groups and whole CSV files, read as one process reads them."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from desk import SCHEMA, people
from ranks import DirectLine

from noisewise.accounts import Budget
from noisewise.methods import method_named
from noisewise.remote.forms import packed, unpacked
from noisewise.remote.processes import Lead
from noisewise.tables import file_pieces as pieces_module
from noisewise.tables.encode import Encoder
from noisewise.tables.file_pieces import lengths_of, pieces_of, read_pieces
from noisewise.tables.files import open_source
from noisewise.tables.fit.across_processes import _holder, spread_files
from noisewise.tables.fit.build import fit_of_files
from noisewise.tables.fit.labels import numbers_of_files
from noisewise.tables.refusal import Refusal
from noisewise.tables.rows import read_rows
from noisewise.tables.schema import read_schema
from noisewise.train import Records


@pytest.fixture
def folder(tmp_path):
    """Two Parquet files of several row groups, an empty one, and a CSV; with a schema beside."""
    table, data = people(100), tmp_path / "data"
    data.mkdir()
    for number, part in enumerate((table[:37], table[37:60])):
        pq.write_table(pa.Table.from_pandas(part, preserve_index=False), data / f"b{number}.parquet", row_group_size=10)
    pq.write_table(pa.Table.from_pandas(table[:0], preserve_index=False), data / "b2.parquet")
    table[60:].to_csv(data / "c.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return data


def fit(folder, method="descent"):
    schema = read_schema(folder.parent / "schema.toml")
    budget = Budget(2.0, 1e-6)
    return fit_of_files(schema, budget, method_named(method), loss="auto", model="linear", size_is_public=False, seed=1)


def test_pieces_are_read_as_one_process_reads_them(folder):
    asked, source = fit(folder), open_source(folder)
    pieces = pieces_of(source)
    assert [piece.group for piece in pieces if piece.path.name != "b2.parquet"] == [0, 1, 2, 3, 0, 1, 2, None]
    encoder = Encoder(asked.encoder.schema)
    whole = read_rows(folder, encoder, asked.scaling)
    rows, lengths = read_pieces(pieces, encoder, asked.scaling)
    assert np.array_equal(rows.X, whole.X) and np.array_equal(rows.y, whole.y)
    assert lengths == lengths_of(source, pieces, "age") and sum(lengths) == 100
    some = [pieces[5], pieces[1]]
    rows, lengths = read_pieces(some, encoder, asked.scaling)
    assert lengths == [10, 10] and np.array_equal(rows.X, np.concatenate([whole.X[47:57], whole.X[10:20]]))


def test_rows_that_do_not_count_are_left_out(folder):
    asked, pieces = fit(folder), pieces_of(open_source(folder))
    counted = np.random.default_rng(0).random(100) < 0.5
    ends = np.cumsum(lengths_of(open_source(folder), pieces, "age"))
    masks = np.split(counted, ends[:-1])
    rows, lengths = read_pieces(pieces, asked.encoder, asked.scaling, counted=masks)
    assert np.array_equal(rows.X, read_rows(folder, asked.encoder, asked.scaling).X[counted])
    assert sum(lengths) == counted.sum()
    masks[0] = masks[0][:-1]
    with pytest.raises(Refusal, match="has changed"):
        read_pieces(pieces, asked.encoder, asked.scaling, counted=masks)


def rewritten(path):
    """The same number of bytes, other records."""
    table = people(100, seed=1)[60:]
    size = path.stat().st_size
    text = table.to_csv(index=False).encode()[:size]
    path.write_bytes(text[: text.rindex(b"\n") + 1].ljust(size, b"\n"))
    os.utime(path, ns=(1, 1))  # a clock may stand still between two writes
    assert path.stat().st_size == size


def longer(path):
    stamp = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes() + b"40,clerk,no\n")
    os.utime(path, ns=(stamp, stamp))


def replaced(path):
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(5, 5))
    other.replace(path)


def touched(path):
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("change", [rewritten, longer, replaced, touched])
def test_a_file_that_changed_since_pieces_were_dealt_is_refused(folder, change):
    asked, pieces = fit(folder), pieces_of(open_source(folder))
    again = unpacked(packed(pieces))  # as a rank gets them
    assert again == pieces
    before, _ = read_pieces(again, asked.encoder, asked.scaling)
    assert len(before.X) == 100
    change(folder / "c.csv")
    with pytest.raises(Refusal) as refused:
        read_pieces(again, asked.encoder, asked.scaling)
    assert str(refused.value) == f"{folder / 'c.csv'}: has changed since the run began; start again"
    rest, lengths = read_pieces(again[:-1], asked.encoder, asked.scaling)
    assert sum(lengths) == 60 and np.array_equal(rest.X, before.X[:60])


@pytest.mark.parametrize("name", ["b0.parquet", "c.csv"])
def test_a_file_that_is_replaced_while_it_is_read_is_refused(folder, monkeypatch, name):
    asked, pieces, read = fit(folder), pieces_of(open_source(folder)), pieces_module.cut_batches

    def slowly(source, *rest):
        yield from read(source, *rest)
        if source.files[0].path.name == name:
            touched(folder / name)

    monkeypatch.setattr(pieces_module, "cut_batches", slowly)
    with pytest.raises(Refusal, match=f"{name}: has changed since the run began; start again"):
        read_pieces(pieces, asked.encoder, asked.scaling)


def test_what_a_reader_says_of_half_a_file_is_not_told(folder, monkeypatch):
    asked, pieces, opened = fit(folder), pieces_of(open_source(folder)), pieces_module.open_source

    def cut_short(path, **rest):
        source = opened(path, **rest)
        path.write_bytes(path.read_bytes()[:-50])
        return source

    monkeypatch.setattr(pieces_module, "open_source", cut_short)
    with pytest.raises(Refusal, match=r"b0\.parquet: has changed since the run began; start again"):
        read_pieces(pieces, asked.encoder, asked.scaling)


def test_a_file_that_is_gone_is_told_and_a_pin_never_is(folder):
    asked, pieces = fit(folder), pieces_of(open_source(folder))
    assert "Pin(...)" in repr(pieces[0]) and str(pieces[0].pin.size) not in repr(pieces[0])
    (folder / "c.csv").unlink()
    with pytest.raises(Refusal, match=r"c\.csv: cannot be read \(No such file or directory\)"):
        read_pieces(pieces, asked.encoder, asked.scaling)


def test_a_file_that_has_changed_is_not_even_opened(folder, monkeypatch):
    asked, pieces, opened = fit(folder), pieces_of(open_source(folder)), []
    touched(folder / "b0.parquet")
    monkeypatch.setattr(pieces_module, "open_source", lambda *path, **_: opened.append(path))
    with pytest.raises(Refusal, match=r"b0\.parquet: has changed since the run began; start again"):
        read_pieces(pieces, asked.encoder, asked.scaling)
    assert opened == []


def test_ranks_refuse_a_file_that_changed_after_it_was_dealt(folder, monkeypatch):
    def dealt(source):
        pieces = pieces_of(source)
        rewritten(folder / "c.csv")
        return pieces

    monkeypatch.setattr("noisewise.tables.fit.across_processes.pieces_of", dealt)
    lead = led()
    with pytest.raises(ValueError, match=r"c\.csv: has changed since the run began; start again"):
        spread_files(lead, folder, fit(folder))
    assert not lead.broken


def led(ranks=3):
    holders = [_holder() for _ in range(ranks)]
    return Lead(DirectLine(holders), holders[0])


@pytest.mark.parametrize(("method", "share"), [("descent", None), ("additive", None), ("descent", 0.5)])
def test_ranks_read_their_pieces_and_train_as_one_process(folder, method, share):
    """``share``: of rows that count, as those of persons do."""
    asked = fit(folder, method)
    counted = None if share is None else np.random.default_rng(0).random(100) < share
    private = spread_files(led(), folder, asked, counted=counted)
    whole = read_rows(folder, asked.encoder, asked.scaling, counted=counted)
    alone = asked.on(Records(whole.X, numbers_of_files(asked.labels, asked.encoder.classes, whole.y))).run()
    several = asked.on(private).run()
    assert np.array_equal(alone.theta, several.theta) and alone.trace == several.trace


def test_a_cell_that_one_rank_cannot_read_is_told_once_in_our_words(folder):
    table = people(20)
    table["job"] = table["job"].astype(object)
    table.loc[3, "job"] = "SECRET"
    table.to_csv(folder / "d.csv", index=False)
    lead = led()
    with pytest.raises(ValueError, match=r"d\.csv|job") as refused:
        spread_files(lead, folder, fit(folder))
    assert "SECRET" not in str(refused.value) and not lead.broken


def test_folders_without_rows_and_methods_without_privacy_are_refused(folder):
    for path in folder.iterdir():
        if path.name != "b2.parquet":
            path.unlink()
    with pytest.raises(Refusal, match="no rows"):
        spread_files(led(), folder, fit(folder))
    with pytest.raises(ValueError, match="one process"):
        spread_files(led(), folder, fit(folder, "nonprivate"))
