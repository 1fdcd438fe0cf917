"""A ledger on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from pg_server import ABSENT, Server, binaries

from noisewise.accounts.ledger import Ledger


def started():
    """A server that runs until the generator is closed."""
    if (bin := binaries()) is None:
        pytest.skip(ABSENT)
    with tempfile.TemporaryDirectory(prefix="noisewise-pg-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        made = Server(bin, Path(folder))
        try:
            yield made
        finally:
            made.stop("immediate")


@pytest.fixture(scope="session")
def server():
    yield from started()


@pytest.fixture
def own_server():
    """One for a test that stops it: whatever becomes of it, other tests have theirs."""
    yield from started()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request, tmp_path):
    """Where a new ledger may be made."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    server = request.getfixturevalue("server")
    return server.url(server.database())


@pytest.fixture
def ledger(url):
    return Ledger.create(url)
