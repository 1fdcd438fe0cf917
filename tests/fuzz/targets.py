"""All targets: a module that registers some is imported here, and that is all it takes to add one."""

from . import parsers as parsers
from . import tables as tables
