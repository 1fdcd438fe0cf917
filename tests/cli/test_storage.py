"""Commands on files of a storage: the same bits as from a disk, and nothing of keys or endpoints in what they write."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from bucket_server import KEY, SECRET, serving, with_key
from desk import people

import noisewise as nw
from noisewise.faces.cli import train as command
from noisewise.tables.schema import read_schema

BUDGET = ("--epsilon", 2, "--delta", 1e-6)
SEEDED = ("--schema", "schema.toml", *BUDGET, "--method", "dpsgd", "--seed", 1)


@pytest.fixture
def bucket(desk, monkeypatch):
    """The desk's files as a storage has them, in the bucket ``ours``; those of the disk stay where they are."""
    with_key(monkeypatch)
    folder = desk / "buckets" / "ours"
    (folder / "people").mkdir(parents=True)
    table = people(400, 1)
    table[:150].to_csv(folder / "people" / "a.csv", index=False)
    table[150:].to_parquet(folder / "people" / "b.parquet", index=False, row_group_size=100)
    shutil.copy("public.csv", folder)
    with serving(desk / "buckets") as storage:
        yield storage


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def secrets(storage) -> list[bytes]:
    return [word.encode() for word in (KEY, SECRET, "endpoint_override", f"127.0.0.1:{storage.port}")]


def test_a_run_from_a_storage_has_the_bits_of_one_from_a_disk(bucket, shell):
    there, here = bucket.address("ours/people"), "buckets/ours/people"
    public = bucket.address("ours/public.csv")
    for data, known, out in (
        (there, public, "there"),
        (here, "public.csv", "here"),
        (f"file://{Path(here).absolute()}", "public.csv", "by-uri"),
    ):
        told = shell("train", data, *SEEDED, "--public", known, "--out", out)
        assert told.code == 0, told.err
    names = sorted(path.name for path in Path("here").iterdir())
    for other in ("there", "by-uri"):
        assert sorted(path.name for path in Path(other).iterdir()) == names
        for name in ("model.safetensors", "statement.json", "statement.txt", "trace.json"):
            assert Path("here", name).read_bytes() == Path(other, name).read_bytes()
    told = [shell("predict", "there", data).out for data in (there, here)]
    assert told[0] == told[1] and told[0].count("\n") == 401
    told = shell("evaluate", "there", public, "--public-test", "--json")
    assert json.loads(told.out)["file"] == "public.csv" and told.code == 0
    assert not [word for word in secrets(bucket) if word in everything(Path("there"))]


def test_a_schema_is_written_and_checked_by_files_of_a_storage(bucket, shell):
    for address, out in ((bucket.address("ours/public.csv"), "there.toml"), ("public.csv", "here.toml")):
        assert shell("schema", "init", address, "--public", "--target", "income", "--out", out).code == 0
    assert Path("there.toml").read_bytes() == Path("here.toml").read_bytes()
    assert shell("schema", "check", "schema.toml", bucket.address("ours/people")).code == 0


def test_an_estimator_takes_addresses(bucket):
    made = [
        nw.PrivateClassifier(2.0, 1e-6, schema=read_schema("schema.toml"), method="dpsgd", random_state=1).fit_files(
            place
        )
        for place in (bucket.address("ours/people"), Path("buckets/ours/people"))
    ]
    assert (made[0].coef_ == made[1].coef_).all()


def test_a_stopped_run_goes_on_from_the_storage(bucket, shell, monkeypatch):
    """The journal keeps the address whole, which has no credentials; the finished run does not."""

    def stop(_, step, *rest):
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(command, "_stepped", stop)
    data = bucket.address("ours/people")
    how = ("--schema", "schema.toml", *BUDGET, "--public", bucket.address("ours/public.csv"))
    assert shell("train", data, *how, "--out", "run").code == 130
    asked = json.loads(Path("run.journal/settings.json").read_text())
    assert asked["asked"]["data"] == [data] and "s3://ours/public.csv" in asked["declared"]
    assert not [word for word in secrets(bucket)[:2] if word in everything(Path("run.journal"))]
    monkeypatch.setattr(command, "_stepped", lambda *_: None)
    public = Path("buckets/ours/public.csv")
    before = public.read_bytes()
    public.write_bytes(before + b"20,30,clerk,low\n")
    told = shell("train", "--resume", "run")
    assert told.code == 2 and "s3://ours/public.csv: has changed since the run began" in told.err
    public.write_bytes(before)
    told = shell("train", "--resume", "run")
    assert told.code == 0 and shell("verify", "run").code == 0, told.err
    assert not [word for word in secrets(bucket) if word in everything(Path("run"))]


def test_private_rows_are_not_public_by_another_name(bucket, shell):
    told = shell(
        "train", bucket.address("ours/people"), *SEEDED, "--public", bucket.address("ours/people/a.csv"), "--out", "run"
    )
    assert told.code == 2 and "s3://ours/people/a.csv: is private data and --public at once" in told.err
    told = shell(
        "train", "private.csv", *SEEDED, "--public", f"file://{Path('private.csv').absolute()}", "--out", "run"
    )
    assert told.code == 2 and "is private data and --public at once" in told.err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("s3://AKIA1:hunt3r@ours/people", "s3://...: an address carries no credentials"),
        ("s3://ours/people?secret_key=hunt3r", "s3://...: an address carries no credentials"),
        ("{ours/none}", "s3://ours/none: no such file; check the name"),
        ("{none/people}", "s3://none/people: no such bucket; check the name"),
        ("{theirs/people}", "s3://theirs/people: access is denied"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_leaves_nothing(bucket, shell, data, said):
    (bucket.root / "theirs").mkdir()
    before = {*os.listdir()}
    address = bucket.address(data.strip("{}")) if data.startswith("{") else data
    run = ("train", address, "--schema", "schema.toml", *BUDGET, "--out", "run")
    public = ("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "run", "--public", address)
    for asked in (run, public, ("schema", "init", address, "--out", "new.toml")):
        told = shell(*asked)
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1) and told.err.startswith(f"noisewise: {said}")
        assert not any(word in told.err for word in ("AKIA1", "hunt3r", KEY, SECRET))
        assert {*os.listdir()} == before


def test_a_key_in_an_address_where_a_path_belongs_is_not_shown(desk, shell):
    told = shell("train", "private.csv", "--schema", "s3://AKIA1:hunt3r@ours/schema.toml", *BUDGET, "--out", "run")
    assert told.code == 2 and "hunt3r" not in told.err


@pytest.mark.slow  # the same as above, against a server that others wrote
def test_a_run_from_a_server_of_others_has_the_same_bits(bucket, shell, monkeypatch):
    moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'noisewise[storage-test]'")
    from pyarrow.fs import FileSystem, LocalFileSystem, copy_files

    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        system, _ = FileSystem.from_uri(f"{bucket.address('ours', port=port)}&allow_bucket_creation=true")
        system.create_dir("ours")
        copy_files("buckets/ours", "ours", source_filesystem=LocalFileSystem(), destination_filesystem=system)
        for data, out in ((bucket.address("ours/people", port=port), "there"), ("buckets/ours/people", "here")):
            told = shell("train", data, *SEEDED, "--out", out)
            assert told.code == 0, told.err
        for name in ("model.safetensors", "statement.json", "trace.json"):
            assert Path("here", name).read_bytes() == Path("there", name).read_bytes()
        for path, said in (("ours/none.csv", "no such file"), ("none/a.csv", "no such bucket")):
            told = shell("train", bucket.address(path, port=port), *SEEDED, "--out", "run")
            assert told.code == 2 and told.err == f"noisewise: s3://{path}: {said}; check the name\n"
    finally:
        server.stop()
