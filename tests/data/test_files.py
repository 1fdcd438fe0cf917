"""Files as batches: CSV as text, Parquet as it is; everything else is one line without a value."""

from __future__ import annotations

import gzip
import os
import resource
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisewise.tables import files
from noisewise.tables.encode import Encoder
from noisewise.tables.files import find_files, open_source, unusable
from noisewise.tables.schema import Column, Schema


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def everything(paths, columns=None, **options):
    table = pa.Table.from_batches(open_source(paths, **options).batches(columns))
    return table.to_pydict()


SECRET = b"Eve-4711"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b\n", "no rows"),
        (b"a,b", "no rows"),
        (b"a,b\nEve-4711\n", "more or fewer fields than the 2 columns"),
        (b"a,b\n1,2,Eve-4711\n", "more or fewer fields"),
        (b'a,b\n"Empty CSV file",Eve-4711,3\n', "more or fewer fields"),
        (b'a,b\n"Eve-4711,2\n3,4\n', "more or fewer fields"),
        (b'"a,b\nEve-4711,2\n3,4\n', "several lines"),
        (b"a,b\nEve-4711,\xe9\n", "is not UTF-8 text; convert it, e.g. iconv -f WINDOWS-1252"),
        (b"a,\xe9\nEve-4711,2\n", "is not UTF-8 text"),
        ("a,b\nEve-4711,2\n".encode("utf-16"), "iconv -f UTF-16"),
        ("a,b\nEve-4711,2\n".encode("utf-16-le"), "iconv -f UTF-16"),
        (b"a,a\nEve-4711,2\n", "column 'a' is there twice"),
        (b"a, a\nEve-4711,2\n", "column 'a' is there twice"),
        (b",a\n0,Eve-4711\n", "index=False"),
        (b"a,b,\n0,Eve-4711,\n", r"without a name \(column 3\)"),
        (b"a;b\nEve-4711;2\n", "pass --separator ';'"),
        (b"a\tb\nEve-4711\t2\n", "pass --separator tab"),
        (b"39,Eve-4711,77516,13\n50,x,83311,13\n", "looks like a record"),
        (b"Eve-4711,-1.5\nx,2\n", "looks like a record"),
        (b"Eve-4711,?\nx,2\n", "looks like a record"),
        (b"PAR1" + SECRET, "is not a Parquet file, or is cut short"),
        (b"PK\x03\x04" + SECRET, "save the table as CSV"),
        (b"\x1f\x8b" + SECRET, "is not a gzip file, or is cut short"),
    ],
)
def test_a_bad_csv_is_one_line_that_shows_no_value(tmp_path, content, told):
    path = written(tmp_path, "data.csv", content)
    with pytest.raises(ValueError, match=told) as refused:
        everything(path)
    message = str(refused.value)
    assert message.startswith(str(path)) and "\n" not in message and SECRET.decode() not in message


LONG = {  # start, what is repeated 64 times, end
    "header": (b"", b"x" * (1 << 20), b",b\n1,2\n"),
    "row": (b"a,b\n1,2\n", b"x" * (1 << 20), b",2\n3,4\n"),
    "open quote": (b'a,b\n1,2\n"', b"1,2\n" * (1 << 18), b""),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("where", LONG)
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_of_64_mb_neither_hangs_nor_eats_memory(tmp_path, where, packed):
    path = tmp_path / ("data.csv.gz" if packed else "data.csv")
    start, piece, end = LONG[where]
    with gzip.open(path, "wb", 1) if packed else path.open("wb") as stream:  # never whole in memory here
        stream.write(start)
        for _ in range(64):
            stream.write(piece)
        stream.write(end)
    everything(written(tmp_path, "small.csv", b"a,b\n" + b"1,2\n" * (1 << 21)))  # threads and pools are made now
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ValueError, match="longer than 2 MB"):
        everything(path)
    assert time.process_time() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10  # kilobytes


def test_csv_is_text_as_it_was_written(tmp_path):
    path = written(tmp_path, "d.csv", b'\xef\xbb\xbfa , b\r\n01,"x\ny"\r\n,NA\r\n\r\n1e3,"a ""b"", c"\r\n')
    assert everything(path) == {"a": ["01", "", "1e3"], "b": ["x\ny", "NA", 'a "b", c']}
    assert everything(path, ["b"]) == {"b": ["x\ny", "NA", 'a "b", c']}


@pytest.mark.parametrize(("separator", "sign"), [(";", ";"), ("tab", "\t"), ("\t", "\t"), ("\\t", "\t"), ("|", "|")])
def test_other_separators(tmp_path, separator, sign):
    path = written(tmp_path, "d.csv", f"a{sign}b\n1,5{sign}2\n".encode())
    assert everything(path, separator=separator) == {"a": ["1,5"], "b": ["2"]}


def test_a_tsv_needs_no_separator(tmp_path):
    assert everything(written(tmp_path, "d.tsv", b"a\tb\n1\t2\n")) == {"a": ["1"], "b": ["2"]}
    with pytest.raises(ValueError, match="one character"):
        open_source(tmp_path / "d.tsv", separator="ab")


@pytest.mark.parametrize("header", [b"y,0,1,2", b"country,2019,2020", b"id,1", b"y,101,102,205", b"inf,infinity"])
def test_numbers_may_be_names(tmp_path, header):
    path = written(tmp_path, "d.csv", header + b"\n" + b",".join([b"7"] * (header.count(b",") + 1)) + b"\n")
    assert open_source(path).columns == tuple(header.decode().split(","))


def test_many_files_in_any_order_of_columns(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    written(folder, "1.csv", b"a,b\n1,x\n")
    written(folder, "2.csv.gz", gzip.compress(b"b,a\ny,2\n"))
    written(folder, "3.csv", b"a,b\n")  # an empty part beside others
    pq.write_table(pa.table({"b": ["z"], "a": ["3"]}), folder / "4.parquet")
    written(folder, "_SUCCESS", b"")
    written(folder, ".hidden.csv", b"c\n")
    expected = {"a": ["1", "2", "3"], "b": ["x", "y", "z"]}
    assert (
        everything(folder)
        == everything(str(folder / "[0-9].*"))
        == everything(sorted(folder.glob("[1-4]*")))
        == expected
    )
    shares: list[float] = []
    list(open_source(folder).batches(progress=shares.append))
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_files_must_have_the_same_columns(tmp_path):
    one, two = written(tmp_path, "1.csv", b"a,b\n1,2\n"), written(tmp_path, "2.csv", b"a,c\n1,2\n")
    with pytest.raises(ValueError, match=r"2.csv: lacks the column 'b'"):
        open_source([one, two])
    three = written(tmp_path, "3.csv", b"a,b,d\n1,2,3\n")
    with pytest.raises(ValueError, match=r"1.csv: lacks the column 'd'"):
        open_source([one, three])


def test_paths_that_name_nothing(tmp_path):
    for path, told in [
        (tmp_path / "no.csv", "no such file"), (tmp_path, "folder without CSV"), (str(tmp_path / "*.csv"), "no file matches"),
        ([], "no file is named"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=told):
            find_files(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a plain file"):
        find_files(tmp_path / "pipe")
    path = written(tmp_path, "d.csv", b"a\n1\n")
    with pytest.raises(ValueError, match="named twice"):
        find_files([path, tmp_path])


def test_parquet(tmp_path):
    table = pa.table({"a": [1, 2], "a.b": ["x", None], " z ": [True, None], "born": pa.array([1, 2], pa.date32())})
    pq.write_table(table, tmp_path / "d.parquet")
    source = open_source(tmp_path / "d.parquet")
    assert source.columns == ("a", "a.b", "z", "born")
    assert everything(tmp_path / "d.parquet", ["z", "a", "a.b"]) == {"z": [True, None], "a": [1, 2], "a.b": ["x", None]}
    born = Schema((Column("born", "number", 0, 9),))
    with pytest.raises(ValueError, match="column 'born' is a date; turn it into a number in the schema"):
        Encoder(born)(next(source.batches(["born"])))


def test_bad_parquet(tmp_path):
    pq.write_table(pa.table({"a": [f"Eve-{i}" for i in range(1000)]}), tmp_path / "d.parquet")
    whole = (tmp_path / "d.parquet").read_bytes()
    for content in (whole[:-20], whole[: len(whole) // 2], b"a,b\n1,2\n", whole[:4] + bytes(200) + whole[204:]):
        with pytest.raises(ValueError, match=r"write it anew$") as refused:
            everything(written(tmp_path, "bad.parquet", content))
        assert "Eve" not in str(refused.value)
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="no rows"):
        everything(tmp_path / "none.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match="there twice"):
        open_source(tmp_path / "twice.parquet")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (pa.timestamp("s"), "is a date"), (pa.dictionary(pa.int8(), pa.date32()), "is a date"),
        (pa.time32("s"), "is a time"), (pa.duration("s"), "is a time"), (pa.list_(pa.int8()), "lists or records"),
        (pa.struct([("a", pa.int8())]), "lists or records"), (pa.binary(), "neither number, text nor boolean"),
        (pa.int8(), None), (pa.float16(), None), (pa.decimal128(5, 2), None), (pa.large_string(), None), (pa.null(), None),
        (pa.bool_(), None), (pa.string_view(), None), (pa.dictionary(pa.int8(), pa.string()), None),
    ],
)  # fmt: skip
def test_types(kind, told):
    trouble = unusable(kind)
    assert (trouble is None) if told is None else told in trouble


def test_reading_is_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BYTES_PER_BLOCK", 1 << 10)
    path = written(tmp_path, "d.csv", b"a,b\n" + b'1,"x\ny"\n' * 2000)
    batches = list(open_source(path).batches())
    assert len(batches) > 5 and sum(batch.num_rows for batch in batches) == 2000
