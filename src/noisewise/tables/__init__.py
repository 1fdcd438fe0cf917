"""From a table to bounded rows, using declared facts only."""
