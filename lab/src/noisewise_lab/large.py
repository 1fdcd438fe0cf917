"""A table larger than memory should be: decoded once into a mapped file, then trained on in full passes.

Every figure comes from a process of its own, so that nothing before it counts as its memory. The training from the
mapped file and the one from memory take their passes in turns, so that whatever else the machine does slows both.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from noisewise.tables.schema import Column, Schema

Report = Callable[[str, float], None]  # (what is done now, the share of it that is done)
BUDGET = (1.0, 1e-9)
ROWS_PER_BLOCK = 1 << 16  # generated and written at once
EDGE = 4.0  # declared bounds of a standard normal column
RATE = 0.001  # of a Poisson batch
QUESTIONS = 100  # about such batches
LABELS = ("no", "yes")
MEGABYTE = 1_000_000
MAX_ANONYMOUS_MB = 700
MIN_SPEED_RATIO = 0.5
IN_MEMORY = ("tmpfs", "ramfs")
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Job:
    """What a process is to measure; plain data, sent to it."""

    table: Path
    columns: int
    folder: Path
    steps: int | None

    @property
    def schema(self) -> Schema:
        numbers = tuple(Column(name, "number", -EDGE, EDGE) for name in names(self.columns))
        return Schema((*numbers, Column("label", "category", categories=LABELS)), "label")


def large_rows(
    rows: int,
    columns: int,
    *,
    folder: Path | None = None,
    kind: str = "parquet",
    steps: int | None = 40,
    report: Report,
) -> dict[str, Any]:
    """Measure decoding, and training by ``descent`` from a mapped file and from memory; the goals beside the figures.

    ``folder``: on a disk; what is written there is removed. ``steps``: full passes, None for the method's own number.
    """
    if not STATUS.is_file():
        raise ValueError("the memory of a process is read from /proc/self/status, which this system does not have")
    if kind not in ("parquet", "csv"):
        raise ValueError(f"format is {kind!r}; pass parquet or csv")
    with (
        one_thread(),
        tempfile.TemporaryDirectory(dir=roomy_folder(folder, rows, columns, kind), prefix="noisewise-") as place,
    ):
        table = Path(place) / f"table.{kind}"
        write_table(table, rows, columns, lambda share: report("writing the table", share))
        job = Job(table, columns, Path(place), steps)
        decoded, poisson = _decoding(job, report)
        mapped, plain, ratio = _in_turns(job, report)
        size = table.stat().st_size
    results = [decoded, mapped, plain]
    anonymous = max(decoded["anonymous_mb"], mapped["anonymous_mb"])
    for figures in results:
        figures["rows_per_second"] = round(rows / figures["seconds"])
    return {
        "rows": rows, "columns": columns, "format": kind, "file_mb": round(size / MEGABYTE), "passes": mapped.pop("passes"),
        "results": results, "ratio": ratio, "poisson": poisson,
        "goals": {
            "anonymous_mb": {"below": MAX_ANONYMOUS_MB, "measured": anonymous, "met": anonymous < MAX_ANONYMOUS_MB},
            "ratio": {"least": MIN_SPEED_RATIO, "measured": ratio, "met": ratio >= MIN_SPEED_RATIO},
        },
    }  # fmt: skip


def names(columns: int) -> list[str]:
    return [f"x{place}" for place in range(columns)]


def write_table(path: Path, rows: int, columns: int, progress: Callable[[float], None]) -> None:
    """A generated table of standard normal columns and a label, written in groups: memory does not grow with ``rows``."""
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(columns, dtype=np.float32) / math.sqrt(columns)
    fields = [*((name, pa.float32()) for name in names(columns)), ("label", pa.string())]
    schema = pa.schema(fields)
    with (
        pq.ParquetWriter(path, schema, use_dictionary=["label"], compression="none")
        if path.suffix == ".parquet"
        else pacsv.CSVWriter(path, schema)
    ) as writer:
        for start in range(0, rows, ROWS_PER_BLOCK):
            X = rng.standard_normal((columns, min(ROWS_PER_BLOCK, rows - start)), dtype=np.float32)
            noise = rng.logistic(0, 0.5, X.shape[1])
            labels = np.array(LABELS)[(direction @ X + noise > 0).astype(int)]
            writer.write_batch(pa.record_batch([*X, labels], schema=schema))
            progress(min(1.0, (start + ROWS_PER_BLOCK) / rows))


def roomy_folder(folder: Path | None, rows: int, columns: int, kind: str) -> Path:
    """The folder, or the first usual one, that is on a disk and has room: five times the rows, and the table."""
    usual = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]
    chosen = folder or next(
        (place for place in usual if place.is_dir() and filesystem(place) not in IN_MEMORY), usual[0]
    )
    if not chosen.is_dir():
        raise ValueError(f"folder is {str(chosen)!r}; pass an existing folder")
    if filesystem(chosen) in IN_MEMORY:
        raise ValueError(f"folder is {str(chosen)!r}, which is kept in memory; pass a folder on a disk")
    cells = rows * (columns + 1)
    needed = cells * (5 * 4 + (4 if kind == "parquet" else 14))
    if shutil.disk_usage(chosen).free < needed:
        raise ValueError(f"{chosen}: less than {needed / 1e9:.1f} GB are free; pass another folder or fewer rows")
    return chosen


def filesystem(folder: Path) -> str:
    """The type of the file system that a folder is on, by the longest mount point above it; empty if unknown."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = [(len(point), kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(above)[1] if above else ""


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes started inside of this compute with one thread each."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


class Peak:
    """The largest anonymous and file-backed memory of this process, looked at every 5 ms while inside."""

    def __init__(self) -> None:
        self.anonymous = self.file = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _look(self) -> None:
        fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        self.anonymous = max(self.anonymous, 1024 * int(fields["RssAnon"].split()[0]))
        self.file = max(self.file, 1024 * int(fields["RssFile"].split()[0]))

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self._look()

    def figures(self) -> dict[str, int]:
        """So far, in MB."""
        self._look()
        return {"anonymous_mb": round(self.anonymous / MEGABYTE), "mapped_mb": round(self.file / MEGABYTE)}

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


Work = Callable[[Job, Connection], dict[str, Any]]


class Helper:
    """A fresh process at work on a job. It sends shares of what it reads, seconds of passes, and in the end figures."""

    def __init__(self, work: Work, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(work, job, other), daemon=True)
        self._process.start()
        other.close()

    def hear(self, progress: Callable[[float], None]) -> float | dict[str, Any]:
        """The seconds of the next pass, or the figures when there is none."""
        while True:
            try:
                kind, news = self._pipe.recv()
            except EOFError:
                raise ValueError("a measuring process ended before its time; is there enough memory?") from None
            if kind == "error":
                raise ValueError(f"measuring failed: {news}")
            if kind != "share":
                return news
            progress(news)

    def go_on(self) -> None:
        self._pipe.send("go on")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.terminate()
        self._process.join()
        self._pipe.close()


def _serve(work: Work, job: Job, pipe: Connection) -> None:
    """What a fresh process does."""
    from .threads import use_threads

    use_threads(1)
    with suppress(KeyboardInterrupt, BrokenPipeError):  # the process that waits for it says so
        try:
            pipe.send(("figures", work(job, pipe)))
        except Exception as error:
            pipe.send(("error", f"{type(error).__name__}: {error}"))


def _decoding(job: Job, report: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    with Helper(decode, job) as helper:
        figures = helper.hear(lambda share: report("decoding", share))
    assert isinstance(figures, dict)
    return figures["decoding"], figures["poisson"]


def _in_turns(job: Job, report: Report) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Figures of both trainings, pass by pass in turns, and the median of in-memory over mapped seconds."""
    with Helper(train_mapped, job) as first, Helper(train_in_memory, job) as second:
        helpers = {"mapped": first, "memory": second}
        seconds: dict[str, list[float]] = {name: [] for name in helpers}
        figures: dict[str, dict[str, Any]] = {}
        while len(figures) < len(helpers):
            for name, helper in helpers.items():
                if name in figures:
                    continue
                helper.go_on()
                news = helper.hear(lambda share, name=name: report(f"reading for the {name} training", share))  # type: ignore[misc]
                if isinstance(news, dict):
                    figures[name] = news
                else:
                    seconds[name].append(news)
            done = len(seconds["memory"])
            report(f"pass {done}", min(1.0, done / (job.steps or 300)))
    later = {name: times[1:] for name, times in seconds.items()}
    pairs = list(zip(later["memory"], later["mapped"], strict=False))
    ratio = statistics.median(memory / mapped for memory, mapped in pairs)
    for name, row in figures.items():
        row["seconds"] = statistics.median(later[name])
    figures["mapped"]["passes"] = len(seconds["mapped"])
    return figures["mapped"], figures["memory"], ratio


# What each process does. Heavy imports stay inside.


def decode(job: Job, pipe: Connection) -> dict[str, Any]:
    """Read, encode and scale into a mapped file; then Poisson batches from there and from memory, as a remark."""
    from noisewise.tables.encode import Encoder
    from noisewise.tables.rows import Scaling, read_rows
    from noisewise.trusted.stores.grid import Mapped, in_memory

    encoder = Encoder(job.schema)
    scaling = Scaling(encoder.low, encoder.high, unit_rows=True)
    with Peak() as peak:
        started = time.perf_counter()
        rows = read_rows(
            job.table, encoder, scaling, cache=job.folder, progress=lambda share: pipe.send(("share", share))
        )
        seconds = time.perf_counter() - started
        figures = {"what": "decoding", "seconds": seconds, **peak.figures()}
    assert rows.y is not None
    poisson = {"rate": RATE}
    for name, store in (("mapped_seconds", Mapped(job.folder)), ("memory_seconds", in_memory)):
        poisson[name] = _poisson_seconds(rows.X, rows.y, store)
    return {"decoding": figures, "poisson": poisson}


def _poisson_seconds(X: Any, y: Any, store: Any) -> float:
    """Seconds of one question about a small Poisson batch, the median of many."""
    from noisewise.accounts import Budget, PlanMeter
    from noisewise.asking import Curator
    from noisewise.trusted.events import Gaussian, Repeated, Sampling, sampled

    batch: Sampling = ("poisson", RATE)
    meter = PlanMeter(Budget(1e6, 1e-5), [Repeated(sampled(batch, Gaussian(5.0)), QUESTIONS)], accountant="gdp")
    curator = Curator(X, _signs(y), model=_model(X), meter=meter, size=len(X), store=store)
    theta, marks = _model(X).start(), [time.perf_counter()]
    for _ in range(QUESTIONS):
        curator.gradient(theta, clip=1.0, noise_multiplier=5.0, sampling=batch)
        marks.append(time.perf_counter())
    return statistics.median(np.diff(marks))


def train_mapped(job: Job, pipe: Connection) -> dict[str, Any]:
    """The whole way of ``noisewise train --cache``: files in, a model out, in passes over a mapped file."""
    from noisewise.faces.sklearn import PrivateClassifier
    from noisewise.methods.descent import DeflatedDescent

    pipe.recv()
    with Peak() as peak:
        estimator = PrivateClassifier(*BUDGET, method=DeflatedDescent(steps=job.steps), schema=job.schema)
        estimator.watch(_taking_turns(pipe))
        estimator.fit_files(job.table, cache=job.folder, reading=lambda share: pipe.send(("share", share)))
        return {"what": "training, mapped file", **peak.figures()}


def train_in_memory(job: Job, pipe: Connection) -> dict[str, Any]:
    """The same training on the same rows, all of them in memory."""
    from noisewise.methods.descent import DeflatedDescent
    from noisewise.tables.encode import Encoder
    from noisewise.tables.rows import Scaling, read_rows
    from noisewise.trusted.stores.grid import in_memory

    pipe.recv()
    with Peak() as peak:
        encoder = Encoder(job.schema)
        scaling = Scaling(encoder.low, encoder.high, unit_rows=True)
        rows = read_rows(
            job.table, encoder, scaling, cache=job.folder, progress=lambda share: pipe.send(("share", share))
        )
        X, y = rows.X.copy(), rows.y
        del rows
        _train(DeflatedDescent(steps=job.steps), X, y, in_memory, _taking_turns(pipe))
        return {"what": "training, in memory", **peak.figures()}


def _train(method: Any, X: Any, y: Any, store: Any, progress: Any) -> None:
    """A run as the estimators do it, on rows that are there already."""
    from noisewise.accounts import Budget
    from noisewise.train import Records, train

    records = Records(X, _signs(y), None, row_bound=1.0, store=store)
    train(method, records, model=_model(X), budget=Budget(*BUDGET), progress=progress)


def _model(X: Any) -> Any:
    from noisewise.trusted.losses import Logistic
    from noisewise.trusted.models import Linear

    return Linear(X.shape[1], Logistic())


def _signs(y: Any) -> Any:
    return (2 * y - 1).astype(np.float32)


def _taking_turns(pipe: Connection) -> Callable[[int, int | None, float], None]:
    """Called after every pass: says how long it took and waits for its turn."""
    started = time.perf_counter()

    def after(step: int, steps: int | None, spent: float) -> None:
        nonlocal started
        pipe.send(("pass", time.perf_counter() - started))
        pipe.recv()
        started = time.perf_counter()

    return after
