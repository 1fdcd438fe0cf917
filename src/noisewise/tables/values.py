"""What a cell means, whether it came from CSV, Parquet or a DataFrame: one rule for texts, numbers and booleans.

A category is compared by its *key*: surrounding space is dropped, numbers are written in their shortest form and
booleans in lower case. So 1, 1.0, "1" and "1.00" are one category, True and "TRUE" another; "01" stays a text of its
own, because leading zeros are part of a code.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np

MISSING_WORDS = frozenset({"", "?", ".", "na", "n/a", "#n/a", "<na>", "nan", "null"})  # in any case, space dropped
FORMULA = (*"=+-@\t\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are wide = + - @
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity|nan(\([a-z0-9_]*\))?)")
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_PLAIN = re.compile(r"[+-]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-9:.,]*(Z|[+-][0-9:]{2,6})?)?")


def key(value: Any) -> str:
    """The text by which a value is compared with the declared categories.

    >>> [key(value) for value in (1, 1.0, "1", " 1.00 ", True, "TRUE", "01", 0.5, "5e-1", "clerk ")]
    ['1', '1', '1', '1', 'true', 'true', '01', '0.5', '0.5', 'clerk']
    """
    if isinstance(value, str):
        return _key_of_text(value.strip())
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, np.floating) and value.dtype != np.float64:
        value = float(str(value))  # 0.1 in single precision means 0.1
    if isinstance(value, float | np.floating | Decimal):
        return _key_of_number(value)
    return str(value).strip()


def _key_of_text(text: str) -> str:
    if text.lower() in ("true", "false"):
        return text.lower()
    if _WHOLE.fullmatch(text):
        return "0" if text.lstrip("+-") == "0" else text.removeprefix("+")
    if any(digit in text for digit in "0123456789") and _PLAIN.fullmatch(text):
        try:
            return _key_of_number(float(text)) if math.isfinite(float(text)) else text
        except ValueError:  # an exponent alone
            return text
    return text


def _key_of_number(value: Any) -> str:
    if math.isfinite(value) and value == int(value):
        return str(int(value))
    return repr(float(value))


def is_missing_word(text: str) -> bool:
    """Whether a text stands for a missing value.

    >>> is_missing_word(" NaN"), is_missing_word("none")
    (True, False)
    """
    return text.strip().lower() in MISSING_WORDS


def number_of(text: str) -> float | None:
    """The number that a text writes, true and false being 1 and 0; None if it writes none.

    >>> number_of("+1.5e3"), number_of("true"), number_of("1,5"), number_of("many")
    (1500.0, 1.0, None, None)
    """
    text = text.strip()
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    if not _NUMBER.fullmatch(text):
        return None
    return math.nan if text.lower().lstrip("+-").startswith("nan") else float(text)


def looks_like_a_date(text: str) -> bool:
    """Whether a text is an ISO date, with or without a time.

    >>> looks_like_a_date("2024-02-29"), looks_like_a_date("2024-02-29T12:00:00Z"), looks_like_a_date("20240229")
    (True, True, False)
    """
    return _DATE.fullmatch(text.strip()) is not None


def inert(value: Any) -> Any:
    """A text for a CSV that no spreadsheet takes for a formula: a ' in front of = + - @, tab or line end, unless it
    writes a number. Anything but a text stays as it is. OWASP, CSV injection.

    >>> [inert(value) for value in ("=1+1", "@SUM(A1)", "-1", "+1e3", "-x", "yes", -1)]
    ["'=1+1", "'@SUM(A1)", '-1', '+1e3', "'-x", 'yes', -1]
    """
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    number = number_of(value)
    return f"'{value}" if number is None or not math.isfinite(number) else value
