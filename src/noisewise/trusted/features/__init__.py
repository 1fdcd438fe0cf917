"""How a table's cells become rows: frozen data, the same rule for every row."""
