"""Sparse training: which units and weights go, how they go while a network trains, and the smaller network then."""
