"""Run folders: what was fitted, written whole, sealed, read back, and checked against itself."""

from .agreement import verify as verify
from .folder import append as append
from .folder import document_of as document_of
from .folder import fitted_in as fitted_in
from .folder import load as load
from .folder import new_folder as new_folder
from .folder import readable as readable
from .folder import save as save
from .folder import vacant as vacant
from .folder import writable as writable
from .folder import write as write
from .seal import check_seal as check_seal
from .seal import checked_contents as checked_contents
from .seal import put_json as put_json
from .seal import reseal as reseal
