"""What every test process starts from, whatever started it; and which modules have no doctests that can be run."""

import os
import signal
from importlib.util import find_spec

import pytest

# Doctests are looked for in all modules but those that cannot be imported: what they need is optional.
collect_ignore_glob = [] if find_spec("flwr") else ["src/noisewise/remote/clients/network/*", "tests/networks.py"]

# Variables that change what noisewise does (a rank's, as torchrun sets them, and the ledger that pays), and how wide and
# colourful its tables are.
for name in (
    *("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT"),
    *("NOISEWISE_LEDGER", "NOISEWISE_RANK_TIMEOUT", "RAY_ADDRESS"),
    *("COLUMNS", "LINES", "TERMINAL_WIDTH", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"),
):
    os.environ.pop(name, None)

# A shell starts background jobs with SIGINT ignored, which children inherit: tests of Ctrl-C would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test marked ``sample(n, *ids)``, n cases evenly spaced and those of these ids run in make test; others are marked slow."""
    cases = {}
    for item in items:
        if (mark := item.get_closest_marker("sample")) and not item.get_closest_marker("slow"):
            cases.setdefault((item.path, item.originalname), (mark.args, []))[1].append(item)
    for (most, *ids), those in cases.values():
        few = {round(at * (len(those) - 1) / max(most - 1, 1)) for at in range(most)}
        for at, item in enumerate(those):
            if len(those) > most and at not in few and item.callspec.id not in ids:
                item.add_marker(pytest.mark.slow)


# Variables that libraries set where they are used for the first time (torch's compiler, Ray, the OpenMP of torch under
# `bench speed`): they stay, as they do in every process that uses those libraries.
OF_LIBRARIES = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_", "RAY_", "PYTHONBREAKPOINT", "OMP_WAIT_POLICY", "KMP_")


@pytest.fixture(autouse=True)
def same_environment():
    """A test leaves the environment as it found it: what it sets would reach every command that a later one starts."""
    before = dict(os.environ)
    yield
    changed = {name for name, value in {*before.items()} ^ {*os.environ.items()} if not name.startswith(OF_LIBRARIES)}
    if changed:
        os.environ.clear()
        os.environ.update(before)
    assert not changed, f"this test leaves other variables behind than it found: {', '.join(sorted(changed))}"
