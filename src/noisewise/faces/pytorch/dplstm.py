"""Recurrent layers under the names that private training knows them by. torch's own do as well: the engine takes both."""

from __future__ import annotations

from torch import nn


class DPLSTM(nn.LSTM):
    """torch's ``nn.LSTM``, with its arguments and the names in its ``state_dict``."""


class DPGRU(nn.GRU):
    """torch's ``nn.GRU``, with its arguments and the names in its ``state_dict``."""


class DPRNN(nn.RNN):
    """torch's ``nn.RNN``, with its arguments and the names in its ``state_dict``."""
