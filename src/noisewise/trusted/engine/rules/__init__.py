"""What runs in place of torch functions that are given a parameter, or that need care with records; each file one kind."""

from importlib import import_module

NAMES = ("convolution", "indexing", "layers", "linear", "recurrent", "values")  # fmt: skip
for name in NAMES:  # the last one withholds what no other takes
    import_module(f".{name}", __name__)
