"""A storage that speaks as much of S3 as reading takes, on this machine: buckets are the folders of a folder."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

KEY, SECRET = "AKIAVISITOR", "open/sesame+SECRET"
DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


@dataclass
class Storage:
    """What is served, and what was asked of it. ``broken``: a status that every read of an object's bytes gets."""

    root: Path
    port: int = 0
    broken: int = 0
    asked: list[str] = field(default_factory=list)

    def address(self, path: str, *, port: int | None = None) -> str:
        return f"s3://{path}?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{port or self.port}"


@contextmanager
def serving(root: Path) -> Iterator[Storage]:
    """A server of the folders in ``root``, for those who have the key."""
    storage = Storage(root)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (_Asked,), {"storage": storage}))
    server.daemon_threads = True
    storage.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield storage
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Asked(BaseHTTPRequestHandler):
    storage: Storage
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits for 40 ms

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        self.storage.asked.append(f"{self.command} {bucket}/{key}")
        place = self.storage.root / bucket
        if f"Credential={KEY}/" not in self.headers.get("Authorization", "") or bucket == "theirs":
            self._error(403, "AccessDenied")
        elif not place.is_dir():
            self._error(404, "NoSuchBucket")
        elif not key:
            query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            self._answer(200, _listing(bucket, place, query.get("prefix", "")))
        elif not (place / key).is_file() or key.endswith("/"):
            self._error(404, "NoSuchKey")
        else:
            self._send((place / key).read_bytes())

    def _send(self, content: bytes) -> None:
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        asked = self.headers.get("Range")
        if asked is None or self.command == "HEAD":
            self._answer(200, content, ETag=tag)
            return
        if self.storage.broken:
            self._error(self.storage.broken, "InternalError")
            return
        first, last = (int(end) for end in asked.removeprefix("bytes=").split("-"))
        part = content[first : last + 1]
        where = {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}"}
        self._answer(206, part, ETag=tag, **where)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{KEY} {SECRET}</Message></Error>".encode())

    def _answer(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "Last-Modified": DATE, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _listing(bucket: str, place: Path, prefix: str) -> bytes:
    """What lies in a folder, itself left out: files with their sizes, and folders."""
    folder, items = place / prefix, []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        name = escape(str(path.relative_to(place)))
        if path.is_dir():
            items.append(f"<CommonPrefixes><Prefix>{name}/</Prefix></CommonPrefixes>")
        else:
            when = "<LastModified>2015-10-21T07:28:00.000Z</LastModified>"
            items.append(f"<Contents><Key>{name}</Key><Size>{path.stat().st_size}</Size>{when}</Contents>")
    head = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(items)}</KeyCount>"
    whole = f"<ListBucketResult>{head}<IsTruncated>false</IsTruncated>{''.join(items)}</ListBucketResult>"
    return f'<?xml version="1.0" encoding="UTF-8"?>{whole}'.encode()


def with_key(monkeypatch, key: str = KEY, secret: str = SECRET) -> None:
    """Credentials where pyarrow looks for them, and nowhere else."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    for name in (
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
