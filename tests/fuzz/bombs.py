"""Files that claim or unpack to far more than they are, read in a process of its own with little memory and time."""

from __future__ import annotations

import io
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HEAD = ("age", "job", "hours", "name", "income")
MEMORY, SECONDS = 3 << 30, 30


def _parquet(table: pa.Table, **how: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **how)
    return out.getvalue()


def _good(rows: int) -> dict[str, pa.Array]:
    """Columns that fit the schema, all rows alike."""
    number = pa.array(np.full(rows, 30, np.int32))

    def text(value: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([value]))

    return {"age": number, "job": text("clerk"), "hours": number, "name": text("S3CRET-417"), "income": text("low")}


def compressed() -> bytes:
    """Three million rows, all in one group, in a few kilobytes: read batch by batch."""
    return _parquet(pa.table(_good(3_000_000)), compression="zstd", row_group_size=3_000_000)


def long_text() -> bytes:
    """One page of a dictionary that unpacks to a hundred megabytes."""
    return _parquet(pa.table({**_good(1), "job": pa.array(["S3CRET-417" * 10_000_000])}), compression="zstd")


def declared_rows() -> bytes:
    """A footer that speaks of 2^62 rows (a zigzag number of Thrift), where there are three."""
    made = _parquet(pa.table(_good(3)), compression="none")
    footer = int.from_bytes(made[-8:-4], "little")
    body, meta = made[: -8 - footer], made[-8 - footer : -8]
    huge = b"\xfe" + b"\xff" * 8 + b"\x01"
    meta = meta.replace(b"\x16\x06", b"\x16" + huge)  # field of 64 bits: 3 in zigzag
    return body + meta + len(meta).to_bytes(4, "little") + b"PAR1"


def declared_footer() -> bytes:
    """A footer that says it is four gigabytes long."""
    return _parquet(pa.table({"age": [1]}))[:-8] + b"\xff\xff\xff\xff" + b"PAR1"


def nested() -> bytes:
    """A column of lists in lists, three hundred deep."""
    kind: pa.DataType = pa.int32()
    for _ in range(300):
        kind = pa.list_(kind)
    return _parquet(pa.table({**_good(1), "age": pa.array([None], kind)}))


def many_columns() -> bytes:
    """Twenty thousand columns more than there should be."""
    more = {f"c{i}": pa.array([1], pa.int8()) for i in range(20_000)}
    return _parquet(pa.table(_good(1) | more), compression="none", write_statistics=False)


def gzipped() -> bytes:
    """One row of 640 megabytes in a CSV of one."""
    import gzip

    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:
        packed.write(",".join(HEAD).encode() + b"\n")
        for _ in range(64):
            packed.write(b"S3CRET-417" * (1 << 20))
    return out.getvalue()


def quoted() -> bytes:
    """A quote that is never closed, over sixty megabytes."""
    return ",".join(HEAD).encode() + b'\n1,"' + b"S3CRET-417\n" * 6_000_000


def wide() -> bytes:
    """A header of a million names."""
    return ",".join(f"c{i}" for i in range(1_000_000)).encode() + b"\n" + b"1," * 999_999 + b"1\n"


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "compressed": ("private.parquet", compressed), "long text": ("private.parquet", long_text), "declared rows": ("private.parquet", declared_rows),
    "declared footer": ("private.parquet", declared_footer), "nested": ("private.parquet", nested), "many columns": ("private.parquet", many_columns),
    "gzipped": ("private.csv.gz", gzipped), "quoted": ("private.csv", quoted), "wide": ("private.csv", wide),
}  # fmt: skip


def main(path: str) -> None:
    """Read a file as private rows: one line about how that ended, and the memory that it took."""
    from .tables import reading

    encoder, scaling = reading()
    from noisewise.tables.rows import read_rows

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        read_rows(Path(path), encoder, scaling)
        print("accepted")
    except ValueError as refusal:
        print(f"refused: {refusal}")


if __name__ == "__main__":
    main(sys.argv[1])
