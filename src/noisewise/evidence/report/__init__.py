"""What a released model promises, and how to check it."""
