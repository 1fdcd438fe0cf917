"""Which kernels are in use, and that a home or package folder that cannot be written breaks nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from noisewise.trusted.fast import kernels

numba = pytest.importorskip("numba")


def add(a, b):
    return a + b


def test_the_environment_chooses(monkeypatch):
    monkeypatch.setenv("NOISEWISE_KERNELS", "reference")
    assert not kernels.compiled()
    monkeypatch.setenv("NOISEWISE_KERNELS", "compiled")
    assert kernels.compiled()
    monkeypatch.delenv("NOISEWISE_KERNELS")
    assert kernels.compiled()
    for wrong in ("", "numba", "Compiled"):
        monkeypatch.setenv("NOISEWISE_KERNELS", wrong)
        with pytest.raises(ValueError, match="'reference' or 'compiled'"):
            kernels.compiled()


def test_without_numba_the_reference_is_used_and_compiled_kernels_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delenv("NOISEWISE_KERNELS", raising=False)
    assert not kernels.compiled()
    monkeypatch.setenv("NOISEWISE_KERNELS", "compiled")
    with pytest.raises(ImportError, match="install numba"):
        kernels.compiled()


def test_where_nothing_can_be_written_kernels_are_compiled_without_a_cache(monkeypatch):
    from numba.core import caching

    def refuse(self):
        raise PermissionError("read-only")

    assert kernels.jit(add)._cache.cache_path is not None
    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    kernel = kernels.jit(add)
    assert kernel._cache.cache_path is None
    assert kernel(2, 3) == 5


def test_a_home_that_does_not_exist_is_no_obstacle():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
    code = (
        "import math\nfrom numba.core import caching\n"
        "caching.InTreeCacheLocator.from_function = classmethod(lambda *_: None)\n"
        "caching.InTreeCacheLocatorFsAgnostic.from_function = classmethod(lambda *_: None)\n"
        "from noisewise.trusted.fast.kernels import jit\n"
        "import noisewise.trusted.fast.kernels as module\n"
        "from pathlib import Path\n"
        "namespace = {}\n"
        "exec(compile('def f(x):\\n    return x + 1', module.__file__, 'exec'), namespace)\n"
        "kernel = jit(namespace['f'])\n"
        "print(kernel(1), kernel._cache.cache_path)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"HOME": "/proc/no-such-home"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["2", "None"]


def test_what_is_kept_is_dropped_when_any_kernel_changes(monkeypatch):
    kernels.jit(add)(2, 3)
    again = kernels.jit(add)
    assert again(2, 3) == 5
    assert sum(again.stats.cache_hits.values()) == 1
    monkeypatch.setattr(kernels, "_sources", lambda: b"a neighbour's constant was changed")
    changed = kernels.jit(add)
    assert changed(2, 3) == 5
    assert sum(changed.stats.cache_hits.values()) == 0


def test_all_sources_of_kernels_are_known():
    package = Path(kernels.__file__).parents[1]
    stamped = {path for pattern in kernels.SOURCES for path in package.glob(pattern)}
    compiled = {
        path for path in package.rglob("*.py") if re.search(r"@(kernels\.)?jit$", path.read_text(), re.MULTILINE)
    }
    assert len(compiled) >= 4 and compiled <= stamped


@pytest.mark.parametrize("name", ["_load_overload", "_save_overload"])
def test_a_cache_that_fails_in_use_is_done_without(monkeypatch, tmp_path, name):
    from numba.core import caching

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(caching.Cache, name, fail)
    assert kernels.jit(add)(2.5, 3) == 5.5


def test_importing_noisewise_and_asking_for_help_do_not_import_numba():
    code = (
        "import sys\nimport noisewise, noisewise.curator, noisewise.trusted.fast.kernels\nfrom noisewise.faces.cli import main\n"
        "sys.argv = ['noisewise', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
