"""Where a processor has wide registers, the kernels for narrower ones are compiled too, and add up to the same bits."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("numba")
# Kernels as a processor with fewer features would have them, beside the reference; numba keeps them apart by these.
SUMS = """
import sys
from llvmlite import binding
has = binding.get_host_cpu_features()
has.update(dict.fromkeys(sys.argv[1].split(), False))
binding.get_host_cpu_features = lambda: has

import numpy as np
from noisewise.losses import Logistic, Softmax
from noisewise.models import Linear
from noisewise.trusted.fast import rows_compiled
from noisewise.trusted.stores import linear, records_of, reference
from noisewise.trusted.stores.protocol import Drawn

rng = np.random.default_rng(0)
for model, columns in ((Linear(45, Logistic()), 45), (Linear(45, Softmax(), 3), 45)):
    X = rng.normal(size=(101, columns))
    y = rng.integers(0, 3, 101) if model.outputs > 1 else np.sign(rng.normal(size=101))
    records, theta = records_of(model, X.astype(np.float32), y), rng.normal(size=model.dimension)
    for drawn in (Drawn(), Drawn(np.array([3, 5, 70, 99]))):
        compiled = records.gradients(drawn, theta, 1.0).values
        kernel, linear.arithmetic = linear.arithmetic, lambda: reference
        assert np.abs(compiled).max() > 0 and np.array_equal(compiled, records.gradients(drawn, theta, 1.0).values)
        linear.arithmetic = kernel
print(rows_compiled.PAIRS, rows_compiled.scores.__name__)
"""


@pytest.mark.parametrize("without", ["avx512bw", "avx512bw avx2"])
def test_narrower_registers_give_the_bits_of_the_reference(without):
    done = subprocess.run([sys.executable, "-c", SUMS, without], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pairs, name = done.stdout.split()
    assert pairs == "8" and ("plainly" in name) >= ("avx2" in without)
