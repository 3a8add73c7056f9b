"""Examines a training set-up the way an expert would: in order, with evidence, and leaves no trace on it."""
