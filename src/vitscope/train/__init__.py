"""Training: what is minimised, and how."""
