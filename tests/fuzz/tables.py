"""Files of private rows: CSV in every dialect and Parquet, damaged in every way. No message may show a cell."""

from __future__ import annotations

import datetime
import gzip
import io
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from noisewise.tables.encode import Encoder
from noisewise.tables.files import Dialect
from noisewise.tables.fill import fill_from_public, skeleton
from noisewise.tables.rows import Scaling, read_rows
from noisewise.tables.schema import Schema

from .core import NUMBER, WORD, target
from .mutate import INTERESTING, flipped
from .places import laid

SCHEMA = Schema(
    age=(17, 90), job=["clerk", "nurse"], hours=(0, 99), name="ignore", income=["low", "high"], target="income"
)
HEAD = b"age,job,hours,name,income"
ROWS = (b"30,clerk,40,Ann,low", b'41.5,nurse,39,"Bo, B",high', b"58,clerk,12,,low")
PLANTED = (  # what a private file holds where it should not
    b"S3CRET-417,clerk,40,Ann,low", b"30,S3CRET-417,40,Ann,low", b"30,clerk,40,Ann,S3CRET-417", b"8675309.25,clerk,40,S3CRET-417,low",
    b"30,clerk,40,Ann,low,S3CRET-417", b"30,S3CRET-417", b"30,clerk,\"S3CRET-417,Ann,low", b"30,clerk,40,S3CRET-417\xff,low",
    b"S3CRET-417\0,clerk,40,Ann,low", b"30,clerk,8675309e999,Ann,low", b"30,clerk,40,\"S3CRET-417\n8675309\",low", b"8675309+1j,clerk,40,Ann,low",
)  # fmt: skip
DIALECTS = ((None, None), (",", "."), (";", ","), ("\t", "."), ("tab", ","), ("|", "."), (" ", "."), (",", ","))


@cache
def reading() -> tuple[Encoder, Scaling]:
    encoder = Encoder(SCHEMA)
    return encoder, Scaling(encoder.low, encoder.high, unit_rows=True)


def csv_of(rng: Random) -> tuple[str, bytes, tuple[str | None, str | None]]:
    """Rows, some of them planted ones, in a dialect, with damage behind the header; sometimes packed."""
    sign, decimal = rng.choice(DIALECTS)
    lines = [rng.choice(PLANTED) if rng.random() < 0.4 else rng.choice(ROWS) for _ in range(rng.randrange(5))]
    end = rng.choice((b"\n", b"\n", b"\r\n", b"\r"))
    body = end.join(lines) + (end if rng.random() < 0.8 else b"")
    if rng.random() < 0.6:
        body = flipped(body, rng)
    head = HEAD if rng.random() < 0.8 else flipped(HEAD, rng)
    if rng.random() < 0.3 and sign not in (None, ","):
        mark = {"tab": b"\t"}.get(sign) or sign.encode()
        head, body = head.replace(b",", mark), body.replace(b",", mark)
    content = rng.choice((b"", b"", b"", b"\xef\xbb\xbf", b"\n")) + head + end + body
    name = rng.choice(("private.csv", "private.csv", "private.tsv", "private.txt"))
    if rng.random() < 0.05:
        content, name = gzip.compress(content, 1, mtime=0), f"{name}.gz"
        content = flipped(content, rng) if rng.random() < 0.7 else content
    return name, content, (sign, decimal)


def first_line(content: bytes) -> str:
    """Column names may be quoted: everything up to the first end of a line that the reader sees."""
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except Exception:
            return ""
    text = content.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    return (
        text[: max(text.find(b"\n"), text.find(b"\r"), 0) or len(text)].decode("utf-8", "replace")
        if _unended(text)
        else ""
    )


def _unended(text: bytes) -> bool:
    """Whether damage to the header let a record into the first line."""
    first = text.replace(b"\r", b"\n").split(b"\n", 1)[0]
    return b"S3CRET" in first or b"8675309" in first


def read(name: str, content: bytes, dialect: tuple[str | None, str | None]) -> None:
    encoder, scaling = reading()
    read_rows(laid(name, content), encoder, scaling, separator=Dialect(*dialect))


@target("CSV, private", csv_of, weight=4, shown=lambda file: first_line(file[1]))
def private_csv(file: tuple[str, bytes, tuple[str | None, str | None]]) -> None:
    read(*file)


@target(
    "CSV, separators", lambda rng: (rng.choice(INTERESTING).decode("latin-1"), rng.choice((None, ".", ",", "x", "")))
)
def separators(given: tuple[str, str | None]) -> None:
    Dialect(*given)


@target(
    "CSV, public: schema init", csv_of, weight=2, shown=lambda file: WORD + str(NUMBER)
)  # public rows may be quoted
def public_csv(file: tuple[str, bytes, tuple[str | None, str | None]]) -> None:
    name, content, dialect = file
    made = fill_from_public(None, laid(name, content), separator=Dialect(*dialect))
    made.to_toml()


@target("CSV, names alone", csv_of, weight=1, shown=lambda file: first_line(file[1]))
def names_alone(file: tuple[str, bytes, tuple[str | None, str | None]]) -> None:
    from noisewise.tables.files import open_source

    name, content, dialect = file
    text = skeleton(open_source(laid(name, content), separator=Dialect(*dialect))).to_toml()
    assert first_line(content) or not any(secret in text for secret in ("S3CRET", "8675309")), "a cell in a schema"


# -- Parquet ---------------------------------------------------------------------------------------------------------


def _columns(rng: Random, rows: int) -> dict[str, Any]:
    odd = (
        [NUMBER] * rows, [WORD] * rows, [[NUMBER]] * rows, [{"a": WORD}] * rows, [WORD.encode()] * rows, [None] * rows,
        pa.array([WORD] * rows).dictionary_encode(), [datetime.date(2001, 2, 3)] * rows, [datetime.datetime(7316, 5, 29)] * rows,
        [float("nan")] * rows, [2**63 - 1] * rows, pa.array([NUMBER] * rows, pa.float32()), [True] * rows, [datetime.time(3)] * rows,
    )  # fmt: skip
    good: dict[str, Any] = {
        "age": np.linspace(17, 90, rows), "job": ["clerk", "nurse"] * (rows // 2) + ["clerk"] * (rows % 2),
        "hours": np.arange(rows) % 99, "name": [WORD] * rows, "income": ["low", "high"] * (rows // 2) + ["low"] * (rows % 2),
    }  # fmt: skip
    if rng.random() < 0.6:
        good[rng.choice(list(good))] = rng.choice(odd)
    return good


@cache
def parquet_seed(number: int) -> bytes:
    """A small Parquet file; the number says which columns, which codec and which pages."""
    rng, out = Random(number), io.BytesIO()
    table = pa.table(_columns(rng, rng.choice((1, 3, 50, 400))))
    pq.write_table(
        table, out, compression=rng.choice(("none", "snappy", "gzip", "zstd")), use_dictionary=rng.random() < 0.5,
        row_group_size=rng.choice((1, 7, 1000)) if len(table) < 100 else 100, data_page_version=rng.choice(("1.0", "2.0")),
        write_statistics=rng.random() < 0.5,
    )  # fmt: skip
    return out.getvalue()


def parquet_of(rng: Random) -> bytes:
    """A seed as it is, cut short, or with flipped bytes: anywhere, in its footer, or in the length of that."""
    content = parquet_seed(rng.randrange(60))
    kind = rng.random()
    if kind < 0.1:
        return content
    if kind < 0.25:
        return content[: rng.randrange(len(content))]
    if kind < 0.5:
        return flipped(content, rng)
    made, footer = bytearray(content), int.from_bytes(content[-8:-4], "little")
    for _ in range(rng.choice((1, 1, 2, 5))):
        low = len(made) - 8 - footer if kind < 0.9 else len(made) - 8
        at = rng.randrange(max(low, 0), len(made))
        made[at] = rng.choice((made[at] ^ (1 << rng.randrange(8)), rng.randrange(256), 0x7F, 0xFF))
    return bytes(made)


@target("Parquet, private", parquet_of, weight=1)
def private_parquet(content: bytes) -> None:
    encoder, scaling = reading()
    read_rows(laid("private.parquet", content), encoder, scaling)


@target("Parquet, names and types", parquet_of, weight=0.5)
def parquet_names(content: bytes) -> None:
    from noisewise.tables.files import open_source

    skeleton(open_source(laid("private.parquet", content)))
