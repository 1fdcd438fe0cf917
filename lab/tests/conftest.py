"""One torch thread for each test process: two with two threads each would fight for two cores."""

import torch

torch.set_num_threads(1)
