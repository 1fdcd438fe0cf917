"""From what is asked for to what was fitted: :class:`~noisewise.tables.fit.fit.Fit` runs, ``Fitted`` predicts."""
