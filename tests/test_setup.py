"""The installation: small, without CUDA, and of one version."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import torch

import noisewise

ROOT = Path(__file__).parent.parent


def test_no_cuda_packages():
    assert torch.version.cuda is None
    names = [(package.metadata["Name"] or "").lower() for package in metadata.distributions()]
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == noisewise.__version__ == metadata.version("noisewise")
