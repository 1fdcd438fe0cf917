"""Methods that try to see records, as those did that ran beside them: each prints what it has learned."""

import ctypes
import os
import re
import resource
import signal
import socket
import sys
import threading
import warnings
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .honest import Descent

SEEN: list[object] = []


def learned(what, value):
    print(f"learned {what}: {value}")


@dataclass(frozen=True)
class Observer(Descent):
    """Watches its process while an answer is computed, and says which lengths above 4000 it has seen: there are 4,321 records."""

    steps: int = 40
    how: str = "trace"

    def terms(self, facts):
        SEEN.clear()
        if self.how not in HELD:  # terms are asked for more than once
            HELD[self.how] = True
            getattr(self, self.how)()
        return super().terms(facts)

    def trace(self):
        from torch.profiler import ExecutionTraceObserver

        self._keep(ExecutionTraceObserver(), "observer")
        HELD["observer"].register_callback("/tmp/noisewise-trace.json")
        HELD["observer"].start()

    def kernel(self):
        self._keep(torch.library.Library("aten", "IMPL"), "library")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in ("mm.out", "addmm.out"):
                HELD["library"].impl(name, watched, "CPU", allow_override=True)

    def signalled(self):
        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                SEEN.extend(len(one) for one in args if isinstance(one, torch.Tensor) and one.ndim)
                return func(*args, **(kwargs or {}))

        def entered(_, frame):
            if "mode" not in HELD and answering(frame):
                HELD["mode"] = Mode()
                HELD["mode"].__enter__()

        signal.signal(signal.SIGALRM, entered)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)

    def thread(self):
        def hook(module, inputs, _=None):
            SEEN.extend(one.numel() for one in inputs if isinstance(one, torch.Tensor))

        def late():
            while "stop" not in HELD and not SEEN:
                if answering(sys._current_frames()[threading.main_thread().ident]):
                    handle = torch.nn.modules.module.register_module_forward_pre_hook(hook)
                    threading.Event().wait(0.005)
                    handle.remove()

        HELD.pop("stop", None)
        self._keep(threading.Thread(target=late, daemon=True), "thread")
        HELD["thread"].start()

    def hook(self):
        def heard(event, args):
            if event in ("mmap.__new__", "os.truncate", "os.ftruncate"):
                SEEN.extend(one for one in args if isinstance(one, int))

        sys.addaudithook(heard)

    def step(self, state, private, public):
        state = super().step(state, private, public)
        leave()
        return state

    def _keep(self, what, name):
        HELD[name] = what

    def finish(self, state, public):
        signal.setitimer(signal.ITIMER_REAL, 0)
        HELD["stop"] = True
        leave()
        if observer := HELD.pop("observer", None):
            observer.stop()
            observer.unregister_callback()
            SEEN.extend(map(int, re.findall(r"\[(4321)\b", content("/tmp/noisewise-trace.json"))))
        learned("lengths", sorted({one for one in SEEN if isinstance(one, int) and one > 4000}))
        return super().finish(state, public)


HELD: dict[str, object] = {}


def answering(frame):
    """Whether this is a moment at which gradients of records are summed."""
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return "gradients" in names


def leave():
    """Leave the dispatch mode that a signal entered while an answer was computed."""
    if mode := HELD.pop("mode", None):
        mode.__exit__(None, None, None)


def watched(*parts, out, **_):
    """A product of matrices, perhaps plus a bias before them, that notes what it is given."""
    *bias, a, b = (part.detach().numpy() for part in parts)
    SEEN.extend((a.size, b.size))
    return out.copy_(torch.from_numpy(sum(bias, a @ b)))


@dataclass(frozen=True)
class Burglar(Descent):
    """Looks for files, memory, environment and network of the host; ``file`` is where the records are."""

    file: str = ""
    port: int = 0
    parent: int = 0

    def step(self, state, private, public):
        if state.step == 0:
            learned("file", attempt(lambda: content(self.file)))
            learned("folders", sorted({*os.listdir("/")} & {"etc", "home", "root", "var", "work", "sys", "run", "mnt"}))
            learned("etc", attempt(lambda: content("/etc/passwd")))
            learned(
                "environment",
                sorted(
                    {*os.environ} - {"HOME", "LANG", "PYTHONDONTWRITEBYTECODE", "NOISEWISE_KERNELS", "PWD", "LC_CTYPE"}
                ),
            )
            learned("network", attempt(lambda: socket.create_connection(("127.0.0.1", self.port), 2).getsockname()))
            learned("processes", attempt(lambda: [name for name in os.listdir("/proc") if name.isdigit()]))
            learned("memory", attempt(lambda: content("/proc/meminfo")))
            learned("parent", attempt(lambda: content(f"/proc/{self.parent}/mem", "rb", 1)))
            learned("status", attempt(lambda: content(f"/proc/{self.parent}/statm")))
            learned("signal", attempt(lambda: os.kill(self.parent, 0)))
            learned("disk", attempt(lambda: os.statvfs("/").f_bavail))
            learned("free", attempt(lambda: called("sysinfo", ctypes.create_string_buffer(256))))
            learned("traced", attempt(lambda: called("ptrace", 16, self.parent, 0, 0)))
            learned("mounted", attempt(lambda: called("mount", b"proc", b"/tmp", b"proc", 0, None)))
            learned("user", attempt(lambda: called("unshare", 0x10000000)))
            learned("written", attempt(lambda: content(sys.prefix + "/there", "w+") == ""))
            learned("descriptors", [fd for fd in range(3, 256) if open_descriptor(fd) and fd not in own(private)])
            learned("root", os.getuid() == 0)
            learned("shared", attempt(lambda: os.listdir("/dev/shm")))
        return super().step(state, private, public)


def own(private):
    return {private._wire._reading, private._wire._writing}


def open_descriptor(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def content(path, mode="r", most=-1):
    with open(path, mode) as file:
        return file.read(most)


def attempt(look):
    try:
        return look() or None
    except OSError:
        return None


def called(name, *arguments):
    library = ctypes.CDLL(None, use_errno=True)
    return getattr(library, name)(*arguments) == 0 or None


@dataclass(frozen=True)
class Forker(Descent):
    """Leaves processes behind, and asks for rights that it has given up."""

    def step(self, state, private, public):
        if state.step == 0:
            if os.fork() == 0:
                threading.Event().wait(600)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        return super().step(state, private, public)
