"""Doctests are looked for in all modules but those that cannot be imported: what they need is optional."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["src/noisewise/federated/network/*", "tests/networks.py"]
