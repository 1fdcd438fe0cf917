"""From what is asked for to what was fitted: :class:`~noisewise.fitting.fit.Fit` runs, ``Fitted`` predicts."""
