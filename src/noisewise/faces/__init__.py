"""What people use: estimators, PyTorch, the command line, plans and comparisons. They validate, build a fit, run it and format."""
