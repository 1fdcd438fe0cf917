"""All targets: a module that registers some is imported here, and that is all it takes to add one."""

from . import arguments as arguments
from . import commands as commands
from . import fits as fits
from . import folders as folders
from . import ledgers as ledgers
from . import parsers as parsers
from . import purses as purses
from . import tables as tables
from . import wires as wires
