"""Families that can lose units, a file each: which units, which prunable tensors, the smaller settings."""
