"""From declared columns to the rows that a model sees: frozen data, the same rule for each row, whatever its company."""

from ...trusted.features.features import Codes as Codes
from ...trusted.features.features import Features as Features
from ...trusted.features.features import Hats as Hats
from ...trusted.features.features import Product as Product
from ...trusted.features.features import TableColumn as TableColumn
