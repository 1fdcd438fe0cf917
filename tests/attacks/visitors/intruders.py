"""Methods that look for gaps in their sandbox, and for ways to remember what they should not know."""

import ctypes
import fcntl
import os
import platform
import signal
import socket
import threading
from dataclasses import dataclass

import noisewise

from .honest import Descent, State
from .spies import attempt, learned

CLONE = {"x86_64": 56, "aarch64": 220}
NEW_USER, F_SETLEASE, F_NOTIFY, VSOCK, PR_SET_PDEATHSIG, FS_IOC_GETFLAGS = 0x10000000, 1024, 1026, 40, 1, 0x80086601
library = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Intruder(Descent):
    """Tries calls that tell who uses a file, or that lead out of its namespaces, and says which ones worked."""

    def terms(self, facts):
        learned("watched", library.inotify_init1(0) >= 0)
        learned("leased", attempt(lambda: fcntl.fcntl(opened(), F_SETLEASE, fcntl.F_WRLCK) == 0))
        learned("notified", attempt(lambda: fcntl.fcntl(opened(os.path.dirname), F_NOTIFY, 1) == 0))
        learned("in memory", pages_in_memory())
        learned("flags", attempt(lambda: fcntl.ioctl(opened(), FS_IOC_GETFLAGS, bytes(8))))
        for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK, VSOCK):
            learned(f"socket {int(family)}", attempt(lambda family=family: socket.socket(family).fileno()))
        learned("namespace", cloned(NEW_USER))
        learned("unmounted", library.chroot(b"/tmp") == 0 or library.umount2(b"/tmp", 2) == 0)
        learned("orphaned", library.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) == 0)
        return super().terms(facts)


def opened(of=str):
    return os.open(of(noisewise.__file__), os.O_RDONLY)


def pages_in_memory():
    library.mmap.restype = ctypes.c_void_p
    start, pages = library.mmap(None, 4096, 1, 2, opened(), 0), ctypes.create_string_buffer(1)
    return library.mincore(ctypes.c_void_p(start), 4096, pages) == 0


def cloned(flags):
    child = library.syscall(CLONE[platform.machine()], flags | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child > 0


@dataclass(frozen=True)
class Survivor(Descent):
    """Wants to live on when its parent has ended."""

    def total_steps(self):
        library.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
        threading.Thread(target=threading.Event().wait).start()  # when its pipes are closed, it waits for this
        return super().total_steps()


@dataclass(frozen=True)
class Endless(Descent):
    """Asks for the end of a walk that takes years; says whether it was refused."""

    def step(self, state, private, public):
        from noisewise.curator import Descent as Walk

        noise = private.meter.noise_for(1.0)
        try:
            private.last_iterate(Walk(state.theta, steps=10**12, step_size=0.5, noise_multiplier=noise, l2=0.1))
        except ValueError:
            learned("walk", "refused")
        return State(self.steps, state.theta)
