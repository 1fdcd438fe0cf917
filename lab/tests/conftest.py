"""One torch thread for each test process (two with two threads each would fight for two cores), and the same numbers."""

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """What torch and numpy draw without a seed of their own is the same in every run, whatever ran before."""
    torch.manual_seed(0)
    np.random.seed(0)
