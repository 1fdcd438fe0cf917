"""``python -m noisewise``: the command line, also for ``torchrun -m noisewise train ...``."""

from .cli import main

if __name__ == "__main__":
    main()
