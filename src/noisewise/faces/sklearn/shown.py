"""What a fitted estimator shows of itself: coefficients with their noise, effects of columns and of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ...tables.fit.effects import Effects
from ...tables.fit.fitted import Fitted

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]


class Shown:
    """Attributes that are made of what was fitted."""

    fitted_: Fitted

    @property
    def coef_(self) -> Array:
        """Coefficients of what :meth:`get_feature_names_out` names (see the guide), one row per output for several classes."""
        check_is_fitted(self, "fitted_")
        return self._shaped(self.fitted_.weights())[..., :-1]

    @property
    def intercept_(self) -> Any:
        check_is_fitted(self, "fitted_")
        return self._shaped(self.fitted_.weights())[..., -1]

    @property
    def coef_std_(self) -> Array | None:
        """Standard deviation of the privacy noise on each coefficient; None where it is not known (docs/standard-errors.md)."""
        return None if (errors := self._errors()) is None else errors[..., :-1]

    @property
    def intercept_std_(self) -> Any:
        """The same for the intercept."""
        return None if (errors := self._errors()) is None else errors[..., -1]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of what the coefficients belong to: scaled columns, or knots, categories and pairs of a table."""
        check_is_fitted(self, "fitted_")
        return np.array(self.fitted_.features()[:-1], dtype=object)

    @property
    def effects_(self) -> pd.DataFrame:
        """The shape of each column's effect: feature, value, effect, noise_low, noise_high, and output if there are several.

        In units of the score, or of a regression's target; the band is 95 % of the privacy noise. See the guide.
        """
        return self._frame(lambda effects: list(effects.rows()))

    @property
    def pairs_(self) -> pd.DataFrame:
        """What pairs of columns do beyond their effects: first, second, strength, noise, the strongest first."""
        return self._frame(Effects.pair_rows, ("first", "second", "strength", "noise"))

    def _frame(self, rows: Callable[[Effects], list[dict[str, Any]]], heads: Sequence[str] = ()) -> pd.DataFrame:
        import pandas as pd

        check_is_fitted(self, "fitted_")
        return pd.DataFrame(rows(self.fitted_.effects()), columns=list(heads) or None)

    def _errors(self) -> Array | None:
        check_is_fitted(self, "fitted_")
        self.fitted_.weights()
        errors = self.fitted_.errors()
        return None if errors is None else self._shaped(errors)

    def _shaped(self, weights: Array) -> Array:
        return weights[0] if isinstance(self, RegressorMixin) else weights
