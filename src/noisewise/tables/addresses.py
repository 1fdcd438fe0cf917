"""Which files a path, a folder, a glob or an address names; files in object storage, such as ``s3://bucket/folder``, through pyarrow.

An :class:`Address` stands where a path does. Credentials are the file systems' own business (environment variables, roles of a
machine): an address that carries any is refused, no word of a file system is passed on, and what is shown leaves the query out.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from .refusal import Refusal

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
QUERY = ("region", "scheme", "endpoint_override", "force_virtual_addressing", "tls_ca_file_path", "project_id", "retry_limit_seconds")  # fmt: skip
HARMLESS = re.compile(r"[\w.:/~-]*")
PATIENCE_SECONDS = 30
BUCKETS = ("s3", "gs", "gcs")
USERS = ("abfs", "abfss", "hdfs", "viewfs")  # where a name before @ says whose or which folder, and opens nothing
SECRETS = (
    "{}://...: an address carries no credentials; set them in environment variables (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "GOOGLE_APPLICATION_CREDENTIALS, ..). Its query may say region, scheme and endpoint_override"
)
UNKNOWN = (
    "{}: pyarrow has no file system for this address or its query; pass s3://bucket/folder, gs://bucket/folder or a local file, "
    "special characters as in %20"
)
CHANGED = "{}: has changed while it was read; try again"
TROUBLES = (
    (r"NO_SUCH_BUCKET|Bucket '' not found", "no such bucket; check the name"),
    (r"NO_SUCH_KEY|RESOURCE_NOT_FOUND|Path does not exist|HTTP status 404", "no such file; check the name"),
    (
        r"ACCESS_DENIED|FORBIDDEN|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT|INVALID_CLIENT_TOKEN_ID|"
        r"EXPIRED_TOKEN|ExpiredToken|InvalidToken|MISSING_AUTHENTICATION|PERMISSION_DENIED|UNAUTHENTICATED|HTTP status 40[13]|"
        r"AuthenticationException|AuthenticationFailed|AuthorizationFailure",
        "access is denied; set credentials that may read it in environment variables",
    ),
    (r"HTTP status 30[17]|PERMANENT_REDIRECT|AuthorizationHeaderMalformed", "is in another region; add ?region=NAME"),
    (
        r"NETWORK_CONNECTION|curlCode|TIMEOUT|[Tt]imed? ?out|UNAVAILABLE|SLOW_DOWN|THROTTLING|INTERNAL_FAILURE|HTTP status 5\d\d|"
        r"Could ?n[o']t (connect|resolve)",
        "the storage does not answer, or not as it should; check the network and the endpoint, then try again",
    ),
)
LOST = re.compile(r"(s3|gs|gcs|abfss?|hdfs|viewfs):/")
TABLES = (".csv", ".tsv", ".parquet", ".pq")


class Pin(NamedTuple):
    """Which version of a file is meant. Private: a size tells how many records there are."""

    size: int
    modified: int | None  # nanoseconds; None where a tag says more
    tag: str | None = None  # what a storage calls this version by

    def __repr__(self) -> str:
        return "Pin(...)"


@dataclass(frozen=True, repr=False)
class Address:
    """A file or a folder in a storage: what ``uri`` names or, with ``inside``, a file of that folder."""

    uri: str
    shown: str
    inside: str | None = None

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def name(self) -> str:
        """The last part of the address, like the name of a path."""
        return self.shown.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot."""
        return PurePosixPath(self.name).suffix

    def absolute(self) -> Address:
        """The address itself, which means the same in any folder."""
        return self

    def open(self, mode: Literal["rb"] = "rb") -> Any:
        """Open as a seekable file of pyarrow."""
        with self._reaching():
            system, path = self._place()
            return system.open_input_file(path)

    def read_bytes(self) -> bytes:
        """The whole content."""
        with self._reaching(), self.open() as stream:
            return bytes(stream.read())

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self._info().size or 0)

    def pin(self) -> Pin:
        """The present version: its tag in the storage, or else its time of change."""
        with self._reaching(), self.open() as stream:
            size, said = int(stream.size()), stream.metadata() or {}
        told = {str(key).lower(): value for key, value in said.items()}
        tag = told.get("generation") or told.get("etag")
        if tag is None:
            return Pin(size, self._info().mtime_ns)
        return Pin(size, None, tag.decode(errors="replace") if isinstance(tag, bytes) else str(tag))

    def files(self) -> list[Address] | None:
        """The files in this folder, sorted; None if it is a file itself."""
        from pyarrow.fs import FileSelector, FileType

        info = self._info()
        if info.type == FileType.File:
            return None
        if info.type != FileType.Directory:
            raise Refusal(f"{self}: {self._missing()}")
        with self._reaching():
            found = self._place()[0].get_file_info(FileSelector(info.path))
        names = sorted((one.base_name, one.path) for one in found if one.type == FileType.File)
        return [Address(self.uri, f"{self.shown}/{name}", path) for name, path in names]

    def _info(self) -> Any:
        with self._reaching():
            system, path = self._place()
            return system.get_file_info(path)

    def _place(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        import pyarrow as pa

        try:
            system, path = _system(self.uri)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ImportError):
            raise Refusal(UNKNOWN.format(self)) from None
        return system, path if self.inside is None else self.inside

    def _missing(self) -> str:
        from pyarrow.fs import FileType

        system, path = self._place()
        bucket = path.partition("/")[0]
        if bucket and system.type_name in ("s3", "gcs"):
            with self._reaching():
                if system.get_file_info(bucket).type == FileType.NotFound:
                    return "no such bucket; check the name"
        return "no such file; check the name" + (" (patterns are for local files)" if "*" in path else "")

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn errors of the storage into one line of our own."""
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            other = f"{self}: cannot be read; check the address and the storage"
            raise refused(self, OSError(str(error)), other) from None  # nothing of a file's content is in these


Place = Path | Address


def place_of(given: Any) -> Place:
    """A path, or an address where that is what is given: ``file://`` is a path too.

    >>> place_of("s3://bucket/people?region=eu-west-1")
    Address('s3://bucket/people')
    >>> place_of("people.csv").name
    'people.csv'
    """
    if isinstance(given, Address):
        return given
    text = str(given)
    if isinstance(given, Path) or not URI.match(text):
        return Path(text)
    try:
        parts = urlsplit(text)
    except ValueError:
        raise Refusal(UNKNOWN.format(f"{text.partition(':')[0]}://...")) from None
    if _carries_secrets(parts):
        raise Refusal(SECRETS.format(parts.scheme))
    shown = f"{parts.scheme}://{parts.netloc.removeprefix('anonymous@')}{unquote(parts.path).rstrip('/')}"
    if parts.fragment:
        raise Refusal(f"{shown}: is followed by #; write it as %23 where it belongs to the name")
    if parts.scheme == "file":
        if parts.netloc or not parts.path:
            raise Refusal(f"{shown}: names another machine or nothing; write file:///folder/file")
        return Path(unquote(parts.path))
    if parts.scheme not in (*BUCKETS, *USERS):  # of what pyarrow knows beyond, some are other names of local files
        raise Refusal(UNKNOWN.format(shown))
    return Address(text, shown)


def _carries_secrets(parts: SplitResult) -> bool:
    """Whether the text may hold a key: anything not known to be harmless counts as one."""
    user, at, host = unquote(parts.netloc).rpartition("@")
    if ":" in user or (at and user != "anonymous" and parts.scheme not in USERS):
        return True
    if ":" in host and (parts.scheme in BUCKETS or "@" in parts.path):  # a key that has a slash
        return True
    if not host and "@" in unquote(parts.path) and parts.scheme != "file":  # a slash too many before a key
        return True
    asked = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=False)
    return any(name not in QUERY or not HARMLESS.fullmatch(value) for name, value in asked)


@lru_cache(maxsize=64)
def _system(uri: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    system, path = FileSystem.from_uri(with_patience(uri))
    return system, path.rstrip("/") or path


def with_patience(uri: str) -> str:
    """The address with how long Google's storage is tried for, which would be a quarter of an hour.

    >>> with_patience("gs://bucket/people")
    'gs://bucket/people?retry_limit_seconds=30'
    """
    if not uri.startswith(("gs://", "gcs://")) or "retry_limit_seconds=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={PATIENCE_SECONDS}"


def identity(place: Place) -> Path | str:
    """The same value for any two names of one file."""
    if isinstance(place, Path):
        return place.resolve()
    kind, _, path = place.shown.replace("gcs://", "gs://").partition("://")
    return f"{kind}://{re.sub('/+', '/', path)}"


def size_of(place: Place) -> int:
    """The size of a file in bytes."""
    return place.stat().st_size if isinstance(place, Path) else place.size


def pin_of(place: Place) -> Pin:
    """The present version of a file."""
    if isinstance(place, Address):
        return place.pin()
    try:
        there = place.stat()
    except OSError as error:
        raise Refusal(f"{place}: cannot be read ({error.strerror})") from None
    return Pin(there.st_size, there.st_mtime_ns)


@contextmanager
def readable(place: Place) -> Iterator[Any]:
    """What pyarrow reads a file from: a path itself, or an open file."""
    if isinstance(place, Path):
        yield place
    else:
        with place.open() as stream:
            yield stream


@contextmanager
def steady(place: Place) -> Iterator[None]:
    """Refuse a file in a storage that is replaced while it is read in parts; an open local file cannot be."""
    if isinstance(place, Path):
        yield
        return
    pin = place.pin()
    try:
        yield
    except Exception:
        if place.pin() != pin:
            raise Refusal(CHANGED.format(place)) from None
        raise
    if place.pin() != pin:
        raise Refusal(CHANGED.format(place))


def refused(place: Place, error: BaseException, otherwise: str) -> Refusal:
    """The refusal for an error: ``otherwise``, or a line of ours about the storage, whose own messages may hold keys."""
    if isinstance(place, Path) or not isinstance(error, OSError):  # of what is in a file Arrow says ArrowInvalid
        return Refusal(otherwise)
    told = re.sub("'[^']*'", "''", str(error))  # without names
    trouble = next((said for pattern, said in TROUBLES if re.search(pattern, told)), None)
    return Refusal(otherwise if trouble is None else f"{place}: {trouble}")


Paths = str | Place | Iterable[str | Place]


def find_files(paths: Paths) -> list[Place]:
    """The files named by a path, a folder, a glob, an address or a list of these; a file that is named twice is refused."""
    several = [paths] if isinstance(paths, str | Path | Address) else list(paths)
    if not several:
        raise Refusal("no file is named; pass a CSV or Parquet file, a folder or a glob")
    files: list[Place] = []
    for place in map(place_of, several):
        files += _in_storage(place) if isinstance(place, Address) else _on_disk(place, str(place))
    seen: set[Path | str] = set()
    for file in files:
        if (real := identity(file)) in seen:
            raise Refusal(f"{file}: is named twice; its records would count twice, name it once")
        seen.add(real)
    return files


def _in_storage(address: Address) -> list[Address]:
    files = address.files()
    if files is None:
        return [address]
    if not (tables := [file for file in files if _named_as_table(file.name)]):
        raise Refusal(f"{address}: is a folder without CSV or Parquet files; pass a file")
    return tables


def _on_disk(path: Path, text: str) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _is_table(file))
        if not files:
            raise Refusal(f"{path}: is a folder without CSV or Parquet files; pass a file or a glob of files")
        return files
    if not path.exists() and any(letter in text for letter in "*?["):
        files = sorted(Path(name) for name in glob.glob(text, recursive=True) if Path(name).is_file())
        if not files:
            raise Refusal(f"{text}: no file matches; check the pattern")
        return files
    if not path.exists():
        lost = "; pass an address as text, a Path loses one of its slashes" if LOST.match(text) else ""
        raise Refusal(f"{path}: no such file; check the name{lost}")
    if not path.is_file():
        raise Refusal(f"{path}: is not a plain file; write the table to a file first")
    return [path]


def _is_table(path: Path) -> bool:
    return path.is_file() and _named_as_table(path.name)


def _named_as_table(name: str) -> bool:
    return not name.startswith((".", "_")) and name.lower().removesuffix(".gz").endswith(TABLES)
