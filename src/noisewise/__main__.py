"""``python -m noisewise``: the command line, also for ``torchrun -m noisewise train ...``."""

from .faces.cli import main

if __name__ == "__main__":
    main()
