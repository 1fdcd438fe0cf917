"""Files in a storage are read as files on a disk are; what goes wrong is one line, and no key is ever in it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bucket_server import KEY, SECRET, serving, with_key
from desk import people

from noisewise.remote.forms import packed, unpacked
from noisewise.tables.addresses import Address, place_of, refused, steady
from noisewise.tables.encode import Encoder
from noisewise.tables.file_pieces import pieces_of, read_pieces
from noisewise.tables.files import find_files, open_source
from noisewise.tables.refusal import Refusal
from noisewise.tables.rows import Scaling, read_rows
from noisewise.tables.schema import Column, Schema

ENCODER = Encoder(
    Schema(
        (
            Column("age", "number", low=17, high=90),
            Column("hours", "number", low=0, high=99),
            Column("job", "category", categories=("clerk", "farmer", "nurse")),
            Column("income", "category", categories=("low", "high")),
        ),
        "income",
    )
)
NO_NETWORK = (  # as Arrow says it, here of a key that sounds like something else
    "When getting information for key 'ACCESS_DENIED' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation: "
    "curlCode: 7, Could not connect to server"
)


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """A bucket ``ours`` with tables of every kind, and one that is not ours."""
    with_key(monkeypatch)
    folder = tmp_path / "ours" / "people"
    folder.mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    table = people(100)
    text = table[60:80].to_csv(index=False)
    pq.write_table(pa.Table.from_pandas(table[:60], preserve_index=False), folder / "a.parquet", row_group_size=25)
    (folder / "b c.csv").write_text(text)
    (folder / "d.csv.gz").write_bytes(gzip.compress(table[80:].to_csv(index=False).encode()))
    (folder / "_SUCCESS.csv").write_text("")
    (folder / "notes.txt").write_text("nothing")
    with serving(tmp_path) as server:
        yield server


def encoding():
    return ENCODER, Scaling(ENCODER.low, ENCODER.high, True)


def test_a_folder_is_read_as_on_a_disk(storage):
    local = storage.root / "ours" / "people"
    there = find_files(storage.address("ours/people/"))
    assert (
        [file.name for file in there]
        == [file.name for file in find_files(local)]
        == ["a.parquet", "b c.csv", "d.csv.gz"]
    )
    assert [file.suffix for file in there] == [".parquet", ".csv", ".gz"]
    whole, read = (read_rows(place, *encoding()) for place in (local, storage.address("ours/people")))
    assert np.array_equal(whole.X, read.X) and np.array_equal(whole.y, read.y) and len(read.X) == 100
    shares = []
    list(open_source(storage.address("ours/people")).batches(progress=shares.append))
    assert shares == sorted(shares) and shares[-1] == 1


def test_one_file_and_what_messages_call_it(storage):
    source = open_source(storage.address("ours/people/b%20c.csv"))
    assert source.where == "s3://ours/people/b c.csv" and source.columns == ("age", "hours", "job", "income")
    assert "127.0.0.1" not in repr(source) and "region" not in repr(source)
    twice = [storage.address("ours/people"), storage.address("ours/people/a.parquet")]
    with pytest.raises(Refusal, match=r"^s3://ours/people/a\.parquet: is named twice"):
        find_files(twice)


def test_an_address_of_this_disk_is_its_path(tmp_path):
    table = tmp_path / "my people.csv"
    people(5).to_csv(table, index=False)
    address = f"file://{tmp_path}/my%20people.csv"
    assert find_files(address) == [table] and find_files(f"file://{tmp_path}") == [table]
    with pytest.raises(Refusal, match="is named twice"):
        find_files([table, address])
    with pytest.raises(Refusal, match=r"none\.csv: no such file; check the name"):
        find_files(f"file://{tmp_path}/none.csv")
    with pytest.raises(Refusal, match="names another machine"):
        find_files(f"file://elsewhere{tmp_path}")


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIA1:hunt3r@bucket/people",
        "s3://AKIA1@bucket/people",
        "s3://AKIA1:hunt/3r@bucket/people",
        "s3://AKIA1:12/hunt3r@bucket/people",
        "s3://AKIA1:hun?t3r@bucket/people",
        "s3://AKIA1:hun#t3r@bucket/people",
        "gs://AKIA1:hunt3r@bucket/people",
        "abfs://container:hunt3r@account/people",
        "abfs://container%3Ahunt3r@account/people",
        "hdfs://host:1/AKIA1@hunt3r",
        "file://AKIA1:hunt3r@/people",
        "s3://bucket/people?access_key=AKIA1&secret_key=hunt3r",
        "s3://bucket/people?endpoint_override=http://AKIA1:hunt3r@host",
        "s3://bucket/people?region=eu-west-1;secret_key=hunt3r",
        "s3://bucket/people?hunt3r",
        "s3://bucket/people?X-Amz-Credential=AKIA1&X-Amz-Signature=hunt3r",
        "abfs://container@account/people?sas_token=hunt3r",
    ],
)
def test_an_address_with_credentials_is_refused_and_not_repeated(address):
    for given in (find_files, open_source, place_of):
        with pytest.raises(Refusal) as told:
            given(address)
        assert str(told.value).startswith(
            address.partition(":")[0] + "://...: an address carries no credentials; set them in"
        )
        assert not any(word in str(told.value) for word in ("AKIA1", "hun", "3r", "bucket"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://bucket/people?region=eu-west-1&scheme=http&endpoint_override=minio.local:9000", "s3://bucket/people"),
        ("gs://anonymous@bucket/people", "gs://bucket/people"),
        (
            "abfss://container@account.dfs.core.windows.net/people",
            "abfss://container@account.dfs.core.windows.net/people",
        ),
        ("hdfs://name-node:8020/people/", "hdfs://name-node:8020/people"),
    ],
)
def test_what_is_shown_of_an_address_leaves_out_its_query(address, said):
    place = place_of(address)
    assert isinstance(place, Address) and str(place) == said and repr(place) == f"Address({said!r})"
    assert place.uri == address and place.name == "people"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("ours/none.csv", "s3://ours/none.csv: no such file; check the name"),
        ("ours/*.csv", "s3://ours/*.csv: no such file; check the name (patterns are for local files)"),
        ("nobodys/a.csv", "s3://nobodys/a.csv: no such bucket; check the name"),
        ("nobodys", "s3://nobodys: no such bucket; check the name"),
        ("ours", "s3://ours: is a folder without CSV or Parquet files; pass a file"),
        (
            "theirs/a.csv",
            "s3://theirs/a.csv: access is denied; set credentials that may read it in environment variables",
        ),
    ],
)
def test_what_is_not_there_or_not_ours_is_one_line(storage, path, said):
    with pytest.raises(Refusal) as told:
        open_source(storage.address(path))
    assert str(told.value) == said and told.value.__cause__ is told.value.__context__ is None


def test_a_wrong_key_is_one_line(storage, monkeypatch):
    with_key(monkeypatch, "AKIAWRONG", "WRONG")
    with pytest.raises(Refusal) as told:
        open_source(storage.address("ours/people/d.csv.gz"))
    assert "access is denied" in str(told.value)
    assert not any(word in str(told.value) for word in (KEY, SECRET, "WRONG"))


@pytest.mark.parametrize("name", ["a.parquet", "b%20c.csv", "d.csv.gz"])
def test_a_storage_that_breaks_while_it_is_read_is_one_line(storage, name):
    source = open_source(storage.address(f"ours/people/{name}"))
    storage.broken = 403
    with pytest.raises(Refusal, match=r"access is denied|the storage does not answer, or not as it should") as told:
        list(source.batches())
    assert KEY not in str(told.value) and SECRET not in str(told.value)


@pytest.mark.parametrize(
    "address", ["http://host/a.csv", "s3://bucket/a b.csv?region=x", "s3://bucket/[?region=x", "nofs://a/b"]
)
def test_an_address_of_no_file_system_is_one_line(address):
    with pytest.raises(Refusal, match="pyarrow has no file system for this address"):
        open_source(address)


@pytest.mark.parametrize("name", ["a.parquet", "b%20c.csv", "d.csv.gz"])
def test_a_file_that_is_replaced_while_it_is_read_is_refused(storage, name):
    stream = open_source(storage.address(f"ours/people/{name}")).batches()
    next(stream)
    path = storage.root / "ours" / "people" / name.replace("%20", " ")
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(Refusal, match=r"^s3://ours/people/\S+( c\.csv)?: has changed while it was read; try again$"):
        list(stream)


def test_what_a_reader_says_of_parts_of_two_files_is_not_told(storage):
    path, place = storage.root / "ours" / "people" / "a.parquet", place_of(storage.address("ours/people/a.parquet"))
    with pytest.raises(Refusal, match=r"^is damaged$"), steady(place):
        raise Refusal("is damaged")
    with pytest.raises(Refusal, match="has changed while it was read; try again"), steady(place):
        path.write_bytes(b"another")
        raise Refusal("is damaged")


def test_an_address_that_was_made_a_path_is_told(tmp_path):
    with pytest.raises(Refusal, match=r"^s3:/bucket/a\.csv: no such file; check the name; pass an address as text"):
        open_source(Path("s3://bucket/a.csv"))


@pytest.mark.slow  # pyarrow tries for six seconds; the words are checked below
def test_no_network_is_one_line(storage):
    with pytest.raises(Refusal, match=r"^s3://ours/people: the storage does not answer"):
        open_source(storage.address("ours/people", port=9))


def test_trouble_is_told_by_its_code_and_never_by_names_or_cells(storage):
    place = place_of("s3://b/ACCESS_DENIED?region=x")
    assert "does not answer" in str(refused(place, OSError(NO_NETWORK), "damaged"))
    assert str(refused(place, OSError("Couldn't deserialize thrift"), "damaged")) == "damaged"
    rows = storage.root / "ours" / "rows.csv"
    rows.write_text("age,job\n1,ACCESS_DENIED,NETWORK_CONNECTION\n")
    said = []
    for where in (rows, storage.address("ours/rows.csv")):
        with pytest.raises(Refusal) as told:
            list(open_source(where).batches())
        said.append(str(told.value).partition("rows.csv")[2])
    assert said[0] == said[1] and "more or fewer fields" in said[0]


def test_pieces_are_pinned_by_the_tag_of_the_storage(storage):
    pieces = pieces_of(open_source(storage.address("ours/people")))
    assert [piece.group for piece in pieces] == [0, 1, 2, None, None]
    again = unpacked(packed(pieces))  # as a rank gets them
    assert again == pieces and all(piece.pin.tag and piece.pin.modified is None for piece in again)
    rows, _ = read_pieces(again, *encoding())
    local = storage.root / "ours" / "people"
    assert np.array_equal(rows.X, read_rows(local, *encoding()).X)
    table = local / "b c.csv"
    before = table.read_bytes()
    table.write_bytes(before)  # put there once more: the same version, by its tag
    read_pieces(again, *encoding())
    table.write_bytes(before.replace(b"nurse", b"clerk"))
    with pytest.raises(Refusal) as told:
        read_pieces(again, *encoding())
    assert str(told.value) == "s3://ours/people/b c.csv: has changed since the run began; start again"
    table.unlink()
    with pytest.raises(Refusal, match="no such file"):
        read_pieces(again, *encoding())
