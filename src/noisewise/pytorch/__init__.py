"""Faces for PyTorch: train any module privately, by handing a data set over or in a loop of one's own."""
