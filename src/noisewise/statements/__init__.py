"""What a released model promises: the statement, how it is checked, and the list of code that it rests on."""
