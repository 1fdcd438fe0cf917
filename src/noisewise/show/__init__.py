"""What people see while and after something runs: progress bars and the look of pictures. Needs no other room."""
