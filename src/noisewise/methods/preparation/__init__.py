"""From declared columns to the rows that a model sees: frozen data, the same rule for each row, whatever its company."""

from ...trusted.features import Codes as Codes
from ...trusted.features import Features as Features
from ...trusted.features import Hats as Hats
from ...trusted.features import Product as Product
from ...trusted.features import TableColumn as TableColumn
