"""All mutants, in the order in which they run."""

import of_engine
import of_files
import of_others
import of_paying
import of_prices
import of_questions
import of_records
import of_ring_1
from mutant import Mutant

PARTS = (of_questions, of_ring_1, of_records, of_prices, of_engine, of_files, of_paying, of_others)
MUTANTS: tuple[Mutant, ...] = tuple(one for part in PARTS for one in part.MUTANTS)
