"""From declared columns to the rows that a model sees: frozen data that apply the same rule to each row."""
