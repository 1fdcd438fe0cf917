"""PyTorch modules made private: a training loop of the user's own under the names that Opacus has."""
