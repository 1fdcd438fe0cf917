"""The installation: small, without CUDA, and of one version."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import torch

import noisewise

ROOT = Path(__file__).parent.parent
IMPORTS_THE_LAB = r"\s*(from|import) noisewise_lab\b|.*import_module\(.noisewise_lab"


def test_no_cuda_packages():
    assert torch.version.cuda is None
    names = [(package.metadata["Name"] or "").lower() for package in metadata.distributions()]
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == noisewise.__version__ == metadata.version("noisewise")


def test_the_laboratory_is_a_package_of_its_own():
    """Nothing of it ships with noisewise, nothing in noisewise imports it, and both are of one version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["setuptools"]["packages"]["find"] == {"where": ["src"]}
    assert {path.parent.name for path in (ROOT / "src").glob("*/__init__.py")} == {"noisewise"}
    data = project["tool"]["setuptools"]["package-data"]["noisewise"]
    assert not [pattern for pattern in data if not list((ROOT / "src/noisewise").glob(pattern))], "files that are gone"
    for path in (ROOT / "src").rglob("*.py"):
        imported = [line for line in path.read_text(encoding="utf-8").splitlines() if re.match(IMPORTS_THE_LAB, line)]
        assert imported == [], path
    lab = tomllib.loads((ROOT / "lab/pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert lab["version"] == project["project"]["version"]
    assert lab["entry-points"]["noisewise.commands"] == {"bench": "noisewise_lab.commands:bench"}
