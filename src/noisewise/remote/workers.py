"""Workers that may be lost, such as the actors of a Ray cluster: a lost one is replaced, reads its pieces again, and is asked again.

The driver is rank 0 and holds no rows; worker w is rank w. Each reply names the question and the pieces it answers for, and
:class:`~noisewise.remote.processes.Lead` takes no sum that is not made of every piece once. A worker that dies, or says nothing for too
long, is ended and replaced, and whatever it may still say is not read. Its successor gets the same question with the same drawn rows and
the same secret words: a question has one answer, however often it was asked. If the successor's rows are not the same, the run stops.

Messages are sealed (:class:`Sealed`), so that an engine that keeps them on disk keeps nothing readable. Ray carries them and finds
machines for workers; it decides nothing, restarts nothing and asks nothing twice by itself. It shows no dashboard, reports nothing to its
makers, prints nothing, and in a cluster that is started here writes no message to disk. Every Ray cluster listens on the network and
runs the code of whoever may connect; one that is started here accepts only processes of this user, which know its token.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import secrets
import socket
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from .._version import __version__
from .forms import packed, unpacked
from .holder import History, Holder, Reply, Request
from .transport import MAX_BYTES, STAYS, RankLost, patience

START_SECONDS = 300.0  # that a cluster has to find room for a worker
MAX_ATTEMPTS = 4  # workers that are tried for one question, one after the other


class Gone(ConnectionError):
    """A worker has died, or says nothing."""


class Cluster(Protocol):
    """An engine that keeps workers: each holds a :class:`Worker`, and is asked by name of its methods."""

    workers: int

    def start(self) -> Any: ...
    def ask(self, worker: Any, what: str, *said: bytes) -> Any: ...
    def wait(self, ticket: Any, seconds: float) -> Any: ...
    def end(self, worker: Any) -> None: ...
    def close(self) -> None: ...


class Sealed:
    """Messages under a key of one worker, by AES-GCM. ``way``: the direction, so that a question is never taken for its answer."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)

    def seal(self, message: Any, way: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._cipher.encrypt(nonce, packed(message), way)

    def open(self, sealed: bytes, way: bytes) -> Any:
        return unpacked(self._cipher.decrypt(sealed[:12], sealed[12:], way), MAX_BYTES)


class Worker:
    """One worker's side: a holder of pieces behind sealed messages. It draws no noise and keeps no account."""

    def __init__(self, holder: Callable[[], Holder]) -> None:
        self._holder = holder()
        self._sealed: Sealed | None = None

    def meet(self, key: bytes) -> str:
        """Take the key of this worker, once; the version that is installed here."""
        if self._sealed is not None:
            raise ValueError("this worker has a key already")
        self._sealed = Sealed(key)
        return __version__

    def answer(self, sealed: bytes) -> bytes:
        """A sealed reply to a sealed request."""
        assert self._sealed is not None
        request = self._sealed.open(sealed, b"asked")
        return self._sealed.seal(self._holder.reply(request), b"answered")


class _Place:
    """A rank: the worker that has it now, what its rows came from, and what it was asked last."""

    def __init__(self, rank: int) -> None:
        self.rank, self.worker, self.history = rank, None, History()
        self.sealed: Sealed | None = None  # by a key that only this worker has; its successor has another
        self.said: dict[int, Any] = {}  # by number: the answers to requests that made rows
        self.asked: Request | None = None
        self.ticket: Any = None


class WorkerLine:
    """Rank 0's end of a line to workers of a cluster."""

    rank = 0

    def __init__(self, cluster: Cluster, *, wait: float | None = None) -> None:
        self._cluster, self._wait = cluster, patience() if wait is None else wait
        self.world_size = cluster.workers + 1
        self._closed = False
        self._places = {rank: _Place(rank) for rank in range(1, self.world_size)}
        try:
            for place in self._places.values():
                place.worker = cluster.start()
            for place in self._places.values():
                self._meet(place)
        except BaseException as error:
            self.close()
            if isinstance(error, Gone):
                raise RankLost("a worker did not start; check that the cluster has room for it") from None
            raise

    def send(self, to: int, message: Request) -> None:
        """Ask one worker; :meth:`receive` takes its reply."""
        place = self._places[to]
        if self._closed or place.worker is None:
            raise RankLost(f"worker {to} is gone; this run stops")
        place.asked = message
        if message.act == "stop":
            self._end(place)
        else:
            self._ask(place, message)

    def receive(self, of: int) -> Reply:
        """The reply of a worker to what it was asked last; of another worker in its place, if it was lost."""
        place = self._places[of]
        for attempt in range(MAX_ATTEMPTS):
            try:
                if attempt:
                    self._replace(place)
                assert place.asked is not None
                reply = self._reply(place, place.asked)
            except Gone:
                continue
            self._remember(place, place.asked, reply)
            return reply
        raise RankLost(f"worker {of} was lost {MAX_ATTEMPTS} times with one question{STAYS}")

    def close(self) -> None:
        """End all workers, and with them the rows that they hold."""
        if not self._closed:
            self._closed = True
            for place in self._places.values():
                self._end(place)
            self._cluster.close()

    def _ask(self, place: _Place, request: Request) -> None:
        assert place.sealed is not None
        place.ticket = self._cluster.ask(place.worker, "answer", place.sealed.seal(request, b"asked"))

    def _reply(self, place: _Place, request: Request) -> Reply:
        """The worker's reply to this request, and nothing else that it may say."""
        sealed = self._cluster.wait(place.ticket, self._wait)
        try:
            assert place.sealed is not None
            reply = place.sealed.open(sealed, b"answered")
        except Exception:  # not sealed by this worker, or not made of what messages are made of
            reply = None
        if type(reply) is not Reply or reply.number != request.number:
            raise RankLost(f"worker {place.rank} answered another question{STAYS}")
        return reply

    def _replace(self, place: _Place) -> None:
        """Put another worker in the place of a lost one: it makes the same rows, and is asked the same."""
        self._end(place)
        place.worker = self._cluster.start()
        self._meet(place)
        for request in place.history.needed():
            self._ask(place, request)
            reply = self._reply(place, request)
            if reply.trouble is not None:
                raise RankLost(
                    f"worker {place.rank} was lost and its rows cannot be made again: {reply.trouble}{STAYS}"
                )
            if request.act != "forget" and (reply.value, reply.mark) != place.said.get(request.number):
                raise RankLost(f"worker {place.rank} was lost, and its files are no longer what they were{STAYS}")
        assert place.asked is not None
        self._ask(place, place.asked)

    def _meet(self, place: _Place) -> None:
        key = os.urandom(32)
        place.sealed = Sealed(key)
        version = self._cluster.wait(self._cluster.ask(place.worker, "meet", key), min(self._wait, START_SECONDS))
        if version != __version__:
            raise RankLost(f"worker {place.rank} has another version of noisewise; install the same everywhere")

    def _end(self, place: _Place) -> None:
        worker, place.worker, place.ticket = place.worker, None, None
        if worker is not None:
            self._cluster.end(worker)

    def _remember(self, place: _Place, request: Request, reply: Reply) -> None:
        if reply.trouble is not None:
            return
        place.history.note(request)
        if request.act in ("make", "hold", "change"):
            place.said[request.number] = reply.value, reply.mark
        place.ticket = None


# -- Ray: one actor for each worker ---------------------------------------------------------------------------------------

ADDRESS = re.compile(r"auto|[^\s/@]+:\d{1,5}")
AUTH_MODE, AUTH_TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
}


def refuse_without_ray() -> None:
    """Say how to install Ray where it is missing; nothing is imported."""
    if importlib.util.find_spec("ray") is None:
        raise ValueError("records on Ray need the package ray: pip install 'noisewise[ray]'")


def refuse_address(address: str | None) -> None:
    """Refuse an address for which Ray would start a cluster with its own settings, or import a module of that name."""
    if address is not None and not ADDRESS.fullmatch(address):
        raise ValueError(
            f"the address of a Ray cluster is {address!r}; pass HOST:PORT, or auto on one of its machines; leave it out for a new "
            "cluster on this machine"
        )


class RayCluster:
    """Actors of a cluster: each has a processor of its own, ends with this process, and keeps its rows in its memory."""

    def __init__(self, holder: Callable[[], Holder], *, workers: int | None = None, address: str | None = None) -> None:
        """``workers``: one for each processor of the cluster if None. ``address``: of a running cluster; None starts one here."""
        refuse_without_ray()
        refuse_address(address)
        if workers is not None and workers < 1:
            raise ValueError(f"workers is {workers}; pass at least 1")
        self._own, self._before = False, (os.environ.get(AUTH_MODE), os.environ.get(AUTH_TOKEN))
        self._ray = self._connected(workers, address)
        self._driver = self._ray.get_runtime_context().get_worker_id()
        there = int(self._ray.cluster_resources().get("CPU", 0))
        self.workers = workers or max(there, 1)
        if self.workers > there:
            self.close()
            raise ValueError(f"the Ray cluster has {there} processors for {workers} workers; ask for fewer")
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self._actor, self._holder = self._ray.remote(**options)(Worker), holder

    def _connected(self, workers: int | None, address: str | None) -> Any:
        """The module, connected: to the cluster that the program has, to the one at ``address``, or to a new one."""
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        import ray

        if ray.is_initialized():
            if address is not None:
                raise ValueError("this program is connected to a Ray cluster already; leave the address out")
            return ray
        how: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
        if address is None:
            how |= {"address": "local", "num_cpus": workers or len(os.sched_getaffinity(0)), "include_dashboard": False}
            how |= {"_system_config": {"automatic_object_spilling_enabled": False}}
            keep_out()
        else:
            how["address"] = address
            _refuse_silence(address)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(**how)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError, AssertionError, ray.exceptions.RayError):
            where = "on this machine" if address is None else f"at {address}"
            raise ValueError(
                f"no Ray cluster {where} can be reached or started; check the address and ray status"
            ) from None
        self._own = True
        if hasattr(
            ray._private.worker, "print_to_stdstream"
        ):  # Ray prints there that a worker was lost; we report that
            ray._private.worker.print_to_stdstream = lambda *_, **__: None
        return ray

    def _check(self) -> None:
        """Refuse to ask when this connection is over: Ray would start another cluster, with its own settings."""
        ray = self._ray
        if not ray.is_initialized() or ray.get_runtime_context().get_worker_id() != self._driver:
            raise RankLost(f"the Ray cluster was left while it was needed{STAYS}")

    def start(self) -> Any:
        self._check()
        return self._actor.remote(self._holder)

    def ask(self, worker: Any, what: str, *said: bytes) -> Any:
        self._check()
        return getattr(worker, what).remote(*said)

    def wait(self, ticket: Any, seconds: float) -> Any:
        """A worker's answer. On any error the worker counts as gone, and the error is dropped: it may quote a message."""
        self._check()
        try:
            return self._ray.get(ticket, timeout=seconds)
        except self._ray.exceptions.RayError:  # also when the time is up
            raise Gone("a worker is gone") from None

    def end(self, worker: Any) -> None:
        with suppress(Exception):  # it is gone already, or the cluster is
            self._check()
            self._ray.kill(worker)

    def close(self) -> None:
        own, self._own = self._own, False
        if not own:
            return
        with suppress(RankLost):  # the program has connected to another cluster since, which stays
            self._check()
            self._ray.shutdown()
        if self._before[0] == "token":
            _restore_token(*self._before)


def _refuse_silence(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not host:
        return  # auto, which Ray resolves
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, OverflowError):
        raise ValueError(
            f"no Ray cluster at {address} can be reached; check the address, and that it runs there: ray status --address {address}"
        ) from None


def keep_out() -> None:
    """Let the cluster that is started next obey this user's processes alone; refuse a Ray that cannot do that.

    A program that is connected already has chosen its cluster, and its token.
    """
    there = sys.modules.get("ray")
    if there is not None and there.is_initialized():
        return
    mode, token = os.environ.get(AUTH_MODE), os.environ.get(AUTH_TOKEN)
    os.environ |= {AUTH_MODE: "token", AUTH_TOKEN: secrets.token_hex(32)}
    try:
        core = importlib.import_module("ray._raylet")
        core.AuthenticationTokenLoader.instance().reset_cache()
        core.Config.initialize(json.dumps({"AUTH_MODE": "token"}).encode())  # also where ray was imported before this
        kept = core.get_authentication_mode() == core.AuthenticationMode.TOKEN
    except (ImportError, AttributeError):
        kept = False
    if not kept:
        _restore_token(mode, token)
        raise ValueError(
            "this Ray cannot keep strangers out of a cluster that is started here; install ray 2.52 or later, or connect to a cluster of "
            "yours first: ray.init(...), or its address"
        )


def _restore_token(mode: str | None, token: str | None) -> None:
    """Put back the program's own token, for clusters of its own."""
    for name, value in ((AUTH_MODE, mode), (AUTH_TOKEN, token)):
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    with suppress(ImportError, AttributeError):
        importlib.import_module("ray._raylet").AuthenticationTokenLoader.instance().reset_cache()
