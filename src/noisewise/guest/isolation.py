"""Where a guest runs: by exec in a sandbox of bubblewrap, or in a plain process that is trusted not to look.

*The sandbox* has namespaces of its own for users, processes, network, mounts and IPC, an empty environment, no capabilities, and
a file system that holds, read-only, the interpreter (``sys.prefix``, ``sys.base_prefix``), the system's shared libraries, this
package and the guest's own, and nothing else but a private /tmp and /dev. There is no /proc but a copy of cpuinfo: the real one
tells how much memory and which files other processes use. For the same reason a filter (seccomp) refuses the calls that tell how
full memory and disks are and who uses a file, those that look into other processes, and those that make sockets, mounts or
namespaces.

*The plain process* has an empty environment, no descriptors of its parent's, no capabilities and no way to gain any; but it
opens every file that its user may open, and sees how large other processes are. It is refused to root.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Isolation = Literal["sandbox", "process"]
ISOLATIONS: tuple[Isolation, ...] = ("sandbox", "process")

ROOT = Path(__file__).resolve().parents[2]  # the folder in which this package lies
START = (  # the guest compiles nothing: kernels would be compiled anew in every sandbox
    "import os, sys, runpy; os.environ['NOISEWISE_KERNELS'] = 'reference'; sys.path.insert(0, sys.argv[1]); del sys.argv[1]; "
    "runpy.run_module('noisewise.guest', run_name='__main__', alter_sys=True)"
)
LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32")
INSTALL = "install bubblewrap (apt install bubblewrap), and allow user namespaces where they are switched off"
INSTEAD = "or pass isolation='process' to run it as a plain process, which can open your files: then the method is trusted not to look"

# --- what a filter of system calls refuses, by machine: AUDIT_ARCH, then numbers of calls ---

CALLS = {
    "x86_64": (0xC000003E, (
        99, 101, 103, 136, 137, 138, 155, 161, 165, 166, 179, 248, 249, 250, 272, 298, 303, 304, 308, 310, 311, 312, 321, 323,
        27, 41, 253, 294, 300, 327,
    )),
    "aarch64": (0xC00000B7, (
        39, 40, 41, 43, 44, 51, 60, 97, 116, 117, 179, 217, 218, 219, 241, 264, 265, 268, 270, 271, 272, 280, 282,
        26, 198, 232, 262, 286,
    )),
}  # fmt: skip
# sysinfo statfs fstatfs ustat quotactl syslog | ptrace process_vm_* kcmp perf_event_open | *_key keyctl bpf userfaultfd
# | mount umount2 pivot_root chroot unshare setns *_handle_at | mincore preadv2 (which pages of a file are in memory),
# inotify_* fanotify_init (who opens it), socket (vsock and others know no namespaces); and, with one number on every machine:
CALLS_EVERYWHERE = (425, 428, 429, 430, 431, 432, 433, 434, 438, 442, 443, 451, 457, 458)
# io_uring_setup open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open pidfd_getfd mount_setattr quotactl_fd cachestat
# statmount listmount
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = (
    0x20,
    0x15,
    0x35,
    0x45,
    0x06,
)  # BPF_LD|W|ABS, BPF_JMP|JEQ, JGE, JSET|K, BPF_RET|K
ALLOW, KILL, NOT_PERMITTED, NOT_THERE = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026  # errors EPERM, ENOSYS
OTHER_ABI = 0x40000000  # calls of x32 on x86_64
CLONE3 = 435  # hides its flags from a filter; libraries take clone where it is not there

# calls that are refused for some values of an argument: numbers by machine, the argument, and the values
PARTLY = (
    ({"x86_64": 56, "aarch64": 220}, 0, ((ANY_BIT, 0x7E020000),)),  # clone: new namespaces, in which it has every capability
    ({"x86_64": 157, "aarch64": 167}, 0, ((EQUAL, 1),)),  # prctl: PR_SET_PDEATHSIG, to outlive its parent
    ({"x86_64": 72, "aarch64": 25}, 1, ((EQUAL, 1024), (EQUAL, 1026))),  # fcntl: F_SETLEASE, F_NOTIFY tell who opens a file
    ({"x86_64": 16, "aarch64": 29}, 1, ((AT_LEAST, 0x5500),)),  # ioctl: those of file systems, some of which tell how full they are
)  # fmt: skip
Instruction = tuple[int, int, int, int]


def call_filter() -> bytes | None:
    """A seccomp program that refuses ``CALLS`` and ``PARTLY``; None for a machine that is not known here."""
    if platform.machine() not in CALLS:
        return None
    machine, numbers = CALLS[platform.machine()]
    program: list[Instruction] = [
        (LOAD, 0, 0, 4),  # the machine that the call is made for
        (EQUAL, 1, 0, machine),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),  # the number of the call
        *_refused(OTHER_ABI, AT_LEAST),
        *_refused(CLONE3, answer=NOT_THERE),
        *(line for number in (*numbers, *CALLS_EVERYWHERE) for line in _refused(number)),
        *(line for number, argument, tests in PARTLY for line in _partly(number[platform.machine()], argument, tests)),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in program)


def _refused(number: int, test: int = EQUAL, answer: int = NOT_PERMITTED) -> list[Instruction]:
    return [(test, 0, 1, number), (RETURN, 0, 0, answer)]


def _partly(number: int, argument: int, tests: tuple[tuple[int, int], ...]) -> list[Instruction]:
    """Refuse a call where any of the tests holds of the low 32 bits of an argument."""
    count = len(tests)
    return [
        (EQUAL, 0, count + 3, number),
        (LOAD, 0, 0, 16 + 8 * argument),
        *((test, count - at, 0, value) for at, (test, value) in enumerate(tests)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, NOT_PERMITTED),
    ]


def package_of(spec: str) -> str:
    """The package that ``package.module:Class`` lies in."""
    return spec.partition(":")[0].partition(".")[0]


def located(package: str) -> Path:
    """The folder or file of a package, found as an import would find it, without importing it."""
    try:
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin in ("built-in", "frozen"):
        raise ValueError(f"there is no package {package!r}; install it, or name its folder in PYTHONPATH")
    if spec.submodule_search_locations is None:
        return Path(spec.origin or "").resolve()
    places = [*spec.submodule_search_locations]
    if spec.origin is None or len(places) != 1:
        raise ValueError(f"{package!r} is a namespace package, which may lie in several places; give it an __init__.py")
    return Path(places[0]).resolve()


@contextmanager
def command(isolation: Isolation, package: Path) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """The command that starts a guest, and descriptors that it needs besides the three usual ones."""
    start = [sys.executable, "-I", "-c", START, str(ROOT), str(package.parent)]
    if isolation == "process":
        if os.geteuid() == 0:
            raise ValueError(
                "isolation='process' is refused to root, whose processes can read each other's memory; run as another user, "
                "or leave isolation='sandbox'"
            )
        yield start, ()
        return
    if (calls := call_filter()) is None:
        raise ValueError(f"there is no sandbox for {platform.machine()} here; {INSTEAD}")
    with _readable(calls) as filtered, _readable(_cpuinfo()) as cpuinfo:
        yield [*_bubblewrap(package, filtered, cpuinfo), *start], (filtered, cpuinfo)


def _bubblewrap(package: Path, filtered: int, cpuinfo: int) -> list[str]:
    alone = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    nobody = ["--uid", "65534", "--gid", "65534", "--cap-drop", "ALL", "--hostname", "guest"]
    ends = ["--as-pid-1", "--new-session", "--die-with-parent", "--clearenv", "--seccomp", str(filtered)]
    places = ["--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/proc", "--ro-bind-data", str(cpuinfo), "/proc/cpuinfo"]
    return ["bwrap", *alone, *nobody, *ends, *places, *_shown(package), *_environment(), "--chdir", "/", "--"]


def _environment() -> list[str]:
    given = {"HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return [word for name, value in given.items() for word in ("--setenv", name, value)]


def _shown(package: Path) -> Iterator[str]:
    """Options that show the guest what it needs to run, and nothing else."""
    for place in LIBRARIES:
        if os.path.islink(place):
            yield from ("--symlink", os.readlink(place), place)
        elif os.path.isdir(place):
            yield from ("--ro-bind", place, place)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    for folder in readable(package):
        yield from ("--ro-bind", str(folder), str(folder))


def readable(package: Path) -> list[Path]:
    """Folders and files, besides those of the system's libraries, that a guest in a sandbox can read."""
    places = [Path(sys.prefix), Path(sys.base_prefix), ROOT / "noisewise", package]
    executable = Path(sys.executable)  # a link, perhaps, outside of both
    if not any(executable.is_relative_to(place) for place in places):
        places.append(executable)
    if any(place == Path(place.anchor) or Path.home().is_relative_to(place) for place in places):
        raise ValueError("the interpreter or the method lies in a folder that holds your home; install it elsewhere")
    return [place for place in dict.fromkeys(places) if not any(place.is_relative_to(o) for o in places if o != place)]


def refuse_readable(package: Path, files: Iterable[Path]) -> None:
    """Refuse private files that a guest in a sandbox would be shown, because they lie beside its own code."""
    places = {one for place in readable(package) for one in (place, place.resolve())}  # some are reached through links
    for file in map(Path.resolve, files):
        if any(file.is_relative_to(place) for place in places):
            raise ValueError(f"{file} lies in a folder that the method can read; move it elsewhere, out of any package")


def _cpuinfo() -> bytes:
    try:
        return Path("/proc/cpuinfo").read_bytes()
    except OSError:
        return b""


@contextmanager
def _readable(content: bytes) -> Iterator[int]:
    """A descriptor from which this can be read."""
    descriptor = os.memfd_create("noisewise")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def started(isolation: Isolation, package: Path) -> subprocess.Popen[bytes]:
    """A guest's process, by exec, with pipes for its standard streams."""
    with command(isolation, package) as (words, descriptors):
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                close_fds=True,
                pass_fds=descriptors,
                cwd="/",
                env={} if isolation == "process" else {"PATH": os.environ.get("PATH", os.defpath)},
                bufsize=0,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise ValueError(no_sandbox("there is no program bwrap")) from None


def no_sandbox(why: str) -> str:
    return f"no sandbox can be made here ({why}), and a method of others runs in one; {INSTALL}, {INSTEAD}"
