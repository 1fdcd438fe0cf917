"""A run of clients over a network: Flower's SuperLink in the server's process, its SuperNode in each client's."""

from ..flower import silence

silence()  # before anything here imports Flower
