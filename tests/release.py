"""``make release``: wheel and sdist of the last commit, built twice, the same bytes both times, complete, and run without torch.

Builds happen in temporary copies of the commit (``git archive``), so nothing that lies about gets in. Times inside the archives
are those of the commit (SOURCE_DATE_EPOCH); setuptools gives the sdist the time of the build, so it is packed anew, sorted.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
META = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "LICENSE"}


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()


def built(into: Path) -> list[Path]:
    """Both archives of the last commit."""
    epoch = git("log", "-1", "--format=%ct")
    with tempfile.TemporaryDirectory() as place:
        packed = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
        environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0", "TZ": "UTC"}
        os.umask(0o022)
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), place]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    wheel, sdist = next(into.glob("*.whl")), next(into.glob("*.tar.gz"))
    repacked(sdist, int(epoch))
    return [wheel, sdist]


def repacked(path: Path, epoch: int) -> None:
    """The same files in order, with one time, one owner and plain modes."""
    out = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with path.open("wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=epoch) as packed:
        packed.write(out.getvalue())


def expected() -> set[str]:
    """What a wheel has to hold: every module of the package, and what pyproject.toml names beside them."""
    home = ROOT / "src" / "noisewise"
    tracked = set(git("ls-files", "src/noisewise").splitlines())
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["noisewise"]
    beside = {pattern: list(home.glob(pattern)) for pattern in named}
    if empty := [pattern for pattern, found in beside.items() if not found]:
        raise SystemExit(f"pyproject.toml ships {empty[0]}, which is not there")
    found = {*home.rglob("*.py"), *(path for paths in beside.values() for path in paths)}
    names = {str(path.relative_to(ROOT)) for path in found} & tracked
    return {name.removeprefix("src/") for name in names}


def check_wheel(path: Path) -> None:
    """All that it should hold, and nothing else: no tests, no data."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    meta = {name for name in names if ".dist-info/" in name}
    if lacking := expected() - names:
        raise SystemExit(f"{path.name} lacks {sorted(lacking)[0]}")
    if more := names - expected() - meta:
        raise SystemExit(f"{path.name} holds {sorted(more)[0]}, which is no part of the package")
    if strange := {name.rsplit("/", 1)[-1] for name in meta} - META:
        raise SystemExit(f"{path.name} holds {sorted(strange)[0]} beside its package")


def check_sdist(path: Path) -> None:
    """The package and its papers; every file is one of the commit, but for what setuptools adds."""
    tracked = set(git("ls-files").splitlines())
    with tarfile.open(path) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    own = {name for name in names if name not in ("PKG-INFO", "setup.cfg") and ".egg-info/" not in name}
    if strange := own - tracked:
        raise SystemExit(f"{path.name} holds {sorted(strange)[0]}, which is not in the commit")
    if lacking := {f"src/{name}" for name in expected()} - own:
        raise SystemExit(f"{path.name} lacks {sorted(lacking)[0]}")


def check_plain_install(wheel: Path) -> None:
    """In an environment with nothing else the wheel brings no extra, and a table trains there; prints what it takes on disk."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place, "venv")
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

        def run(command: str, *words: object, **more: str) -> str:
            called = [str(home / "bin" / command), *map(str, words)]
            how = {"cwd": place, "env": {**environment, **more}}
            return subprocess.run(called, check=True, text=True, stdout=subprocess.PIPE, **how).stdout

        run("python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
        brought = {line.partition("==")[0].lower() for line in run("pip", "list", "--format=freeze").splitlines()}
        if extras := brought & {"torch", "sqlalchemy", "flwr", "ray", "onnx", "optuna"}:
            raise SystemExit(f"{wheel.name} brings {sorted(extras)[0]}, which is for an extra to bring")
        run("python", "-c", "import desk, pathlib; desk.laid_out(pathlib.Path())", PYTHONPATH=str(ROOT / "tests"))
        budget = ("--schema", "schema.toml", "--epsilon", 2, "--delta", 1e-6)
        run("noisewise", "train", "private.csv", *budget, "--out", "run")
        run("noisewise", "verify", "run")
        files = [file for file in next(home.glob("lib/python*/site-packages")).rglob("*") if file.is_file()]
        taken = sum(file.stat().st_size for file in files) >> 20
        print(f"a plain install trains and verifies without torch; its site-packages take {taken} MB")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(out: str) -> None:
    if git("status", "--porcelain", "--untracked-files=no"):
        print("note: changes that are not committed are not part of the release", file=sys.stderr)
    place = ROOT / out
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    with tempfile.TemporaryDirectory() as second:
        first, again = built(place), built(Path(second))
        for one, other in zip(first, again, strict=True):
            if digest(one) != digest(other):
                raise SystemExit(f"{one.name} is not reproducible: {digest(one)} and {digest(other)}")
    check_wheel(first[0])
    check_sdist(first[1])
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, first)], check=True)
    check_plain_install(first[0])
    for one in first:
        print(f"{digest(one)}  {one.name}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "dist")
