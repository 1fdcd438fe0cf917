"""What a question costs when records lie with two workers: gloo, Ray, Dask and Spark; and a large table on Ray against one process.

Every engine is measured in a process of its own, with the same made-up rows and the same question (a clipped gradient sum of a
linear model); engines that are not installed have no figures. gloo and Ray are noisewise's own ways, with all their checks;
Dask's futures and Spark's partitions carry the same sums in the plainest way that they have.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from .large import Job, Peak, one_thread, roomy_folder, write_table
from .threads import use_threads

Ask = Callable[[Any], Any]
Report = Callable[[str, float], None]
WORKERS, SMALL_BATCH_RECORDS, MAX_RATIO, MAX_OVERHEAD = 2, 64, 1.3, 15.0
PACKAGES = {"gloo": "torch", "Ray": "ray", "Dask": "distributed", "Spark": "pyspark"}


def engine_rows(
    rows: int, columns: int, *, questions: int = 200, only: tuple[str, ...] = (), report: Report
) -> list[dict[str, Any]]:
    """Milliseconds of a question of each engine: of a few rows, which is its overhead, and of many."""
    found = []
    names = [name for name in ENGINES if not only or name in only]
    for number, name in enumerate(names):
        report(name, number / len(names))
        if importlib.util.find_spec(PACKAGES.get(name, "numpy")) is None:
            found.append({"engine": name, "overhead_ms": None, "ms": None, "why": "not installed"})
            continue
        try:
            with one_thread():
                few, many = _apart(_measured, name, rows, columns, questions)
        except ValueError as error:  # of one engine, the others are worth telling
            found.append({"engine": name, "overhead_ms": None, "ms": None, "why": str(error)[:60].split("\n")[0]})
            continue
        found.append({"engine": name, "overhead_ms": 1000 * few, "ms": 1000 * many, "why": None})
    return found


def large_on_ray(rows: int, columns: int, *, passes: int, folder: Path | None = None, report: Report) -> dict[str, Any]:
    """Processor seconds and the driver's memory of one training: one process with the mapped file, and two workers on Ray.

    The training on Ray is done with a tenth of the rows, too: what the driver takes may not depend on them.
    """
    with (
        one_thread(),
        tempfile.TemporaryDirectory(dir=roomy_folder(folder, rows, columns, "parquet"), prefix="noisewise-") as place,
    ):
        figures = {}
        for number, (name, work, many) in enumerate(
            (("ray, a tenth", _on_ray, rows // 10), ("one process", _alone, rows), ("ray", _on_ray, rows))
        ):
            table = Path(place) / f"{many}.parquet"
            if not table.exists():
                report("writing the table", 0.0)
                write_table(table, many, columns, partial(report, "writing the table"))
            report(f"training, {name}", number / 3)
            figures[name] = _apart(work, Job(table, columns, Path(place), passes))
        same = figures["ray"].pop("theta") == figures["one process"].pop("theta")
        figures["ray, a tenth"].pop("theta")
    ratio = figures["ray"]["cpu_seconds"] / figures["one process"]["cpu_seconds"]
    return {
        "rows": rows, "columns": columns, "passes": passes, "workers": WORKERS, "figures": figures, "same_bits": same,
        "ratio": ratio, "goal": MAX_RATIO, "met": ratio <= MAX_RATIO,
    }  # fmt: skip


def _apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a fresh process finds."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_told, args=(there, work, arguments))
    process.start()
    there.close()
    try:
        found = here.recv()
    except EOFError:
        raise ValueError("a measuring process ended before its time; is there enough memory?") from None
    finally:
        process.join()
    if isinstance(found, Exception):
        raise found
    return found


def _told(pipe: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with suppress(KeyboardInterrupt):
        try:
            pipe.send(work(*arguments))
        except Exception as error:
            pipe.send(ValueError(f"{type(error).__name__}: {error}"))


# A question, engine by engine. Heavy imports stay inside.


def made(part: int, parts: int, rows: int, columns: int) -> Any:
    """A holder of one part of made-up rows, laid out."""
    from noisewise.remote.holder import Holder, Holding, Request
    from noisewise.trusted.losses import Logistic
    from noisewise.trusted.models import Linear

    use_threads(1)
    many = rows // parts
    X = np.random.default_rng(part).standard_normal((many, columns), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    holder = Holder(holding=Holding((part,), (many,), X, np.sign(X[:, 0])))
    assert holder.reply(Request(0, "hold", (1, Linear(columns, Logistic())))).trouble is None
    return holder


def total(holder: Any, theta: Any) -> Any:
    """The clipped gradient sum of a holder's rows."""
    from noisewise.remote.holder import Request
    from noisewise.trusted.stores.totals import Drawn

    return holder.reply(Request(1, "total", (1, "gradients", Drawn(), (theta, 1.0), {}))).value.values


@contextmanager
def _one_process(rows: int, columns: int) -> Iterator[Ask]:
    yield partial(total, made(0, 1, rows, columns))


@contextmanager
def _gloo(rows: int, columns: int) -> Iterator[Ask]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORKERS)}
    others = [
        multiprocessing.get_context("spawn").Process(target=_rank, args=(rank, meeting, rows, columns))
        for rank in range(1, WORKERS)
    ]
    for other in others:
        other.start()
    from noisewise.remote.gloo import GlooLine
    from noisewise.remote.processes import Lead

    with mock.patch.dict(os.environ, {**meeting, "RANK": "0"}):  # later commands of this process wait for no rank
        line = GlooLine()
    lead = Lead(line, made(0, WORKERS, rows, columns))
    yield partial(_added, lead)
    lead.close()
    for other in others:
        other.join()


def _rank(rank: int, meeting: dict[str, str], rows: int, columns: int) -> None:
    from noisewise.remote.gloo import GlooLine
    from noisewise.remote.holder import serve

    os.environ |= {**meeting, "RANK": str(rank)}  # of a process of its own
    line = GlooLine()
    serve(line, made(rank, WORKERS, rows, columns))
    line.close()


def _added(lead: Any, theta: Any) -> Any:
    from noisewise.trusted.stores.totals import Drawn

    parts = lead.everyone("total", 1, "gradients", Drawn(), (theta, 1.0), {})
    return reduce(lambda one, other: one + other, parts).values


def _holder() -> Any:
    from noisewise.remote.holder import Holder

    return Holder({"made": _holding})


def _holding(part: int, rows: int, columns: int) -> Any:
    return made(part, WORKERS, rows, columns)._holding if part >= 0 else made(0, 1, 0, columns)._holding


@contextmanager
def _ray(rows: int, columns: int) -> Iterator[Ask]:
    from noisewise.remote.processes import Lead
    from noisewise.remote.workers import RayCluster, WorkerLine
    from noisewise.trusted.losses import Logistic
    from noisewise.trusted.models import Linear

    lead = Lead(WorkerLine(RayCluster(_holder, workers=WORKERS)), _holder(), holds=False)
    lead.each("make", [("made", part, rows, columns) for part in range(-1, WORKERS)])
    lead.everyone("hold", 1, Linear(columns, Logistic()))
    yield partial(_added, lead)
    lead.close()


@contextmanager
def _dask(rows: int, columns: int) -> Iterator[Ask]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        held = [client.submit(made, part, WORKERS, rows, columns, pure=False) for part in range(WORKERS)]

        def ask(theta: Any) -> Any:
            return sum(client.gather([client.submit(total, one, theta, pure=False) for one in held]))

        yield ask


@contextmanager
def _spark(rows: int, columns: int) -> Iterator[Ask]:
    from pyspark import SparkConf, SparkContext

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "6g",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    context = SparkContext(master=f"local[{WORKERS}]", conf=SparkConf().setAll(list(settings.items())))
    context.setLogLevel("OFF")
    held = context.parallelize(range(WORKERS), WORKERS).map(lambda part: made(part, WORKERS, rows, columns)).cache()
    yield lambda theta: held.map(lambda one: total(one, theta)).reduce(lambda one, other: one + other)
    context.stop()


ENGINES: dict[str, Callable[[int, int], Any]] = {
    "one process": _one_process,
    "gloo": _gloo,
    "Ray": _ray,
    "Dask": _dask,
    "Spark": _spark,
}


def _measured(name: str, rows: int, columns: int, questions: int) -> tuple[float, float]:
    """Seconds of a question of few rows and of many, medians."""
    use_threads(1)
    theta, found = np.linspace(-1.0, 1.0, columns), []
    slow = 5 if name == "Spark" else 1  # its questions take a second each
    for many, count in ((SMALL_BATCH_RECORDS, questions // slow), (rows, max(questions // 10 // slow, 3))):
        with ENGINES[name](many, columns) as ask:
            for _ in range(3):
                ask(theta)
            times = []
            for _ in range(count):
                began = time.perf_counter()
                ask(theta)
                times.append(time.perf_counter() - began)
        found.append(statistics.median(times))
        if name == "gloo":
            import torch

            torch.distributed.destroy_process_group() if torch.distributed.is_initialized() else None
    return found[0], found[1]


# A large table.


def _estimator(job: Job) -> Any:
    from noisewise import PrivateClassifier
    from noisewise.methods import method_named

    steps = {} if job.steps is None else {"steps": job.steps}
    method = method_named("dpsgd").with_settings(**steps)
    return PrivateClassifier(epsilon=1.0, delta=1e-9, method=method, schema=job.schema, random_state=0)


def _alone(job: Job) -> dict[str, Any]:
    return _trained(job, {"cache": job.folder})


def _on_ray(job: Job) -> dict[str, Any]:
    from noisewise.tables.fit.across_processes import elsewhere

    with elsewhere("ray", WORKERS) as lead:
        return _trained(job, {"lead": lead})


def _trained(job: Job, how: dict[str, Any]) -> dict[str, Any]:
    use_threads(1)
    with Peak() as peak:
        began = time.perf_counter()
        fitted = _estimator(job).fit_files(job.table, **how)
        seconds = time.perf_counter() - began
    return {
        "cpu_seconds": cpu_of(os.getpid()), "seconds": seconds, **peak.figures(),
        "theta": fitted.fitted_.theta.tolist(),
    }  # fmt: skip


def cpu_of(root: int) -> float:
    """Processor seconds of a process and all that it started, by themselves or by others of them, so far."""
    parents, ticks = {}, {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with suppress(OSError):
            fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(place.name)] = int(fields[1])
            ticks[int(place.name)] = sum(map(int, fields[11:15]))
    family = {root}
    while more := {process for process, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")
