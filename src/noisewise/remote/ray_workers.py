"""Workers of a Ray cluster, one actor each: a cluster of this machine's own, or one that is there.

Ray carries messages and finds workers their machines; it decides nothing. It starts no worker anew and asks nothing twice by
itself (:mod:`noisewise.remote.workers` does), shows no dashboard, sends no statistics of its use, prints nothing, and in a
cluster that is started here writes no message to disk. Such a cluster listens on the network, as all of Ray's do, and would run
the code of whoever asks: it answers to a token of its own alone, which only processes of this user know.
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
from typing import Any

from .holder import Holder
from .transport import RankLost
from .workers import STAYS, Gone, Worker

INSTALL = "records on Ray need the package ray: pip install 'noisewise[ray]'"
NOBODY = "no Ray cluster at {0} can be reached; check the address, and that it runs there: ray status --address {0}"
PLACE = re.compile(r"auto|[^\s/@]+:\d{1,5}")
OPEN = (
    "this Ray cannot keep strangers out of a cluster that is started here; install ray 2.52 or later, or connect to a cluster of "
    "yours first: ray.init(...), or its address"
)
MODE, TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
}


def refuse_without_ray() -> None:
    """Say how to install Ray where it is not; nothing is imported."""
    if importlib.util.find_spec("ray") is None:
        raise ValueError(INSTALL)


def refuse_address(address: str | None) -> None:
    """Refuse what Ray would start a cluster of its own habits for, or import a module by the name of."""
    if address is not None and not PLACE.fullmatch(address):
        raise ValueError(
            f"the address of a Ray cluster is {address!r}; pass HOST:PORT, or auto on one of its machines; leave it out for a new "
            "cluster on this machine"
        )


class RayCluster:
    """Actors of a cluster: each has a processor of its own, ends with this process, and keeps its rows in its memory."""

    def __init__(self, holder: Callable[[], Holder], *, workers: int | None = None, address: str | None = None) -> None:
        """``workers``: how many; one for each processor of the cluster when left out. ``address``: of a cluster that is there."""
        refuse_without_ray()
        refuse_address(address)
        if workers is not None and workers < 1:
            raise ValueError(f"workers is {workers}; pass at least 1")
        self._own, self._before = False, (os.environ.get(MODE), os.environ.get(TOKEN))
        self._ray = self._joined(workers, address)
        self._driver = self._ray.get_runtime_context().get_worker_id()
        there = int(self._ray.cluster_resources().get("CPU", 0))
        self.workers = workers or max(there, 1)
        if self.workers > there:
            self.close()
            raise ValueError(f"the Ray cluster has {there} processors for {workers} workers; ask for fewer")
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self._actor, self._holder = self._ray.remote(**options)(Worker), holder

    def _joined(self, workers: int | None, address: str | None) -> Any:
        """The module, connected: to the cluster that the program has, to the one at ``address``, or to one of our own."""
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
            _somebody_listens(address)
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
        _says_nothing(ray)
        return ray

    def _still(self) -> None:
        """Refuse to ask when this connection is over: Ray would start another cluster by itself, as it starts them usually."""
        ray = self._ray
        if not ray.is_initialized() or ray.get_runtime_context().get_worker_id() != self._driver:
            raise RankLost(f"the Ray cluster was left while it was needed{STAYS}")

    def start(self) -> Any:
        self._still()
        return self._actor.remote(self._holder)

    def ask(self, worker: Any, what: str, *said: bytes) -> Any:
        self._still()
        return getattr(worker, what).remote(*said)

    def wait(self, ticket: Any, seconds: float) -> Any:
        """What a worker says; whatever is wrong with it, it is gone: what an engine says of errors may quote a message."""
        self._still()
        try:
            return self._ray.get(ticket, timeout=seconds)
        except self._ray.exceptions.RayError:  # also when the time is up
            raise Gone("a worker is gone") from None

    def end(self, worker: Any) -> None:
        try:
            self._still()
            self._ray.kill(worker)
        except Exception:  # it is gone already, or the cluster is
            return

    def close(self) -> None:
        own, self._own = self._own, False
        if not own:
            return
        with suppress(RankLost):  # what the program is connected to by now is not ours to leave
            self._still()
            self._ray.shutdown()
        if self._before[0] == "token":
            _put_back(*self._before)


def _somebody_listens(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not host:
        return  # auto, which is Ray's to understand
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, OverflowError):
        raise ValueError(NOBODY.format(address)) from None


def keep_out() -> None:
    """Let the cluster that is started next take orders from this user's processes alone; refuse a Ray that cannot.

    A program that is connected already has chosen its cluster, and its token.
    """
    there = sys.modules.get("ray")
    if there is not None and there.is_initialized():
        return
    mode, token = os.environ.get(MODE), os.environ.get(TOKEN)
    os.environ |= {MODE: "token", TOKEN: secrets.token_hex(32)}
    try:
        core = importlib.import_module("ray._raylet")
        core.AuthenticationTokenLoader.instance().reset_cache()
        core.Config.initialize(json.dumps({"AUTH_MODE": "token"}).encode())  # also where ray was imported before this
        kept = core.get_authentication_mode() == core.AuthenticationMode.TOKEN
    except (ImportError, AttributeError):
        kept = False
    if not kept:
        _put_back(mode, token)
        raise ValueError(OPEN)


def _put_back(mode: str | None, token: str | None) -> None:
    """The program's own token, for clusters of its own."""
    for name, value in ((MODE, mode), (TOKEN, token)):
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    with suppress(ImportError, AttributeError):
        importlib.import_module("ray._raylet").AuthenticationTokenLoader.instance().reset_cache()


def _says_nothing(ray: Any) -> None:
    """Ray prints news of lost workers to standard output, between our lines: they are ours to tell."""
    if hasattr(ray._private.worker, "print_to_stdstream"):
        ray._private.worker.print_to_stdstream = lambda *_, **__: None
