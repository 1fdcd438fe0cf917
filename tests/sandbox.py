"""Whether there is a sandbox for guests here, and programs run by a user who is not root."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VISITORS = Path(__file__).parent / "attacks"  # the folder of their package


def sandbox_works() -> bool:
    if shutil.which("bwrap") is None:
        return False
    tried = subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True)
    return tried.returncode == 0


needs_sandbox = pytest.mark.skipif(
    not sandbox_works(), reason="no sandbox here: bubblewrap is missing or user namespaces are off"
)


def as_another_user(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A Python program run by a user who is not root, which a user namespace makes of root, too."""
    command = [sys.executable, "-c", code, *words]
    if os.geteuid() == 0:
        command = ["bwrap", "--unshare-user", "--uid", "1234", "--gid", "1234", "--dev-bind", "/", "/", *command]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(VISITORS), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
