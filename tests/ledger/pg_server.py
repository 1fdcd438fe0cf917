"""A real PostgreSQL server for tests, started on a free port in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

import psycopg
from ports import free_port

ABSENT = "PostgreSQL's server is not installed here (Debian: apt-get install postgresql)"
STARTS = 20  # tries, a second apart
OFFICER, ANALYST, WORD = "officer", "analyst", "s3cret-w0rd"


def binaries() -> Path | None:
    found = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True) + ([Path(found).parent] if found else [])
    return next((place for place in places if (place / "initdb").exists()), None)


def as_user(command: list[str]) -> list[str]:
    """A server does not run as root: it gets a user of its own where this is root."""
    return (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command] if os.getuid() == 0 else command
    )


class Server:
    """A PostgreSQL server with two users: one keeps ledgers, the other may only be let in."""

    def __init__(self, bin: Path, folder: Path) -> None:
        self.bin, self.folder, self.port, self.made = bin, folder, free_port(), 0
        data = folder / "data"
        if os.getuid() == 0:
            os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        self.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        with (data / "pg_hba.conf").open("w") as rules:
            rules.write(
                "local all postgres trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
            )
        self.start()
        for user in (OFFICER, ANALYST):
            self.sql(f"CREATE ROLE {user} LOGIN PASSWORD '{WORD}'")

    def run(self, name: str, *arguments: object) -> None:
        command = as_user([str(self.bin / name), *map(str, arguments)])
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c max_connections=150"
        begin = ("pg_ctl", "-D", self.folder / "data", "-w", "-o", options, "-l", self.folder / "log", "start")
        for _ in range(STARTS):  # after an immediate stop its processes may still hold the shared memory
            try:
                self.run(*begin)
                return
            except subprocess.CalledProcessError:
                time.sleep(1)
        raise RuntimeError(f"the server does not start: {(self.folder / 'log').read_text()[-500:]}")

    def stop(self, how: str = "fast") -> None:
        self.run("pg_ctl", "-D", self.folder / "data", "-w", "-m", how, "stop")

    def sql(self, statement: str, database: str = "postgres", user: str = "postgres") -> list:
        with psycopg.connect(self.url(database, user), autocommit=True) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def url(self, database: str, user: str = OFFICER) -> str:
        return f"postgresql://{user}:{WORD}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """A new one, which the officer owns."""
        self.made += 1
        name = f"ledger{self.made}_{int(time.time())}"
        self.sql(f"CREATE DATABASE {name} OWNER {OFFICER}")
        return name
