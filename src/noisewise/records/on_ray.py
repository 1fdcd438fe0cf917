"""Workers of a Ray cluster, one actor each: a cluster of this machine's own, or one that is there.

Ray carries messages and finds workers their machines; it decides nothing. It starts no worker anew and asks nothing twice by
itself (:mod:`noisewise.records.workers` does), shows no dashboard, sends no statistics of its use, prints nothing, and in a
cluster that is started here writes no message to disk.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

from .holder import Holder
from .workers import Gone, Worker

INSTALL = "records on Ray need the package ray: pip install 'noisewise[ray]'"
NOBODY = "no Ray cluster at {0} can be reached; check the address, and that it runs there: ray status --address {0}"
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


def keep_out() -> None:
    """Let nobody into the cluster that this process starts: Ray listens on all addresses of a machine, and whoever reaches it runs
    code there. A word of our own is asked of them; a process whose Ray runs already, or has such a word, keeps to its own.
    """
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


class RayCluster:
    """Actors of a cluster: each has a processor of its own, ends with this process, and keeps its rows in its memory."""

    def __init__(self, holder: Callable[[], Holder], *, workers: int | None = None, address: str | None = None) -> None:
        """``workers``: how many; one for each processor of the cluster when left out. ``address``: of a cluster that is there."""
        refuse_without_ray()
        if workers is not None and workers < 1:
            raise ValueError(f"workers is {workers}; pass at least 1")
        self._own = False
        self._ray = self._joined(workers, address)
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
        if address is None:
            keep_out()
        import ray

        if ray.is_initialized():
            if address is not None:
                raise ValueError("this program is connected to a Ray cluster already; leave the address out")
            return ray
        how: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
        if address is None:
            how |= {"address": "local", "num_cpus": workers or len(os.sched_getaffinity(0)), "include_dashboard": False}
            how |= {"_system_config": {"automatic_object_spilling_enabled": False}}
        else:
            how["address"] = address
            _somebody_listens(address)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(**how)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError, AssertionError):
            where = "on this machine" if address is None else f"at {address}"
            raise ValueError(
                f"no Ray cluster {where} can be reached or started; check the address and ray status"
            ) from None
        self._own = True
        _says_nothing(ray)
        return ray

    def start(self) -> Any:
        return self._actor.remote(self._holder)

    def ask(self, worker: Any, what: str, *said: bytes) -> Any:
        return getattr(worker, what).remote(*said)

    def wait(self, ticket: Any, seconds: float) -> Any:
        """What a worker says; whatever is wrong with it, it is gone: what an engine says of errors may quote a message."""
        try:
            return self._ray.get(ticket, timeout=seconds)
        except self._ray.exceptions.RayError:  # also when the time is up
            raise Gone("a worker is gone") from None

    def end(self, worker: Any) -> None:
        try:
            self._ray.kill(worker)
        except Exception:  # it is gone already, or the cluster is
            return

    def close(self) -> None:
        if self._own:
            self._own = False
            self._ray.shutdown()


def _somebody_listens(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # a word such as auto, which is Ray's to understand
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, OverflowError):
        raise ValueError(NOBODY.format(address)) from None


def _says_nothing(ray: Any) -> None:
    """Ray prints news of lost workers to standard output, between our lines: they are ours to tell."""
    if hasattr(ray._private.worker, "print_to_stdstream"):
        ray._private.worker.print_to_stdstream = lambda *_, **__: None
