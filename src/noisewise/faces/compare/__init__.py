"""Every method on public rows at a budget and a private size of your choice: an estimate before any record is touched."""
