"""From declared columns to the rows that a model sees: frozen data, the same rule for each row, whatever its company."""

from .columns import TableColumn as TableColumn
from .features import Codes as Codes
from .features import Features as Features
from .features import Hats as Hats
from .features import Product as Product
