"""Training for a moment to see what happens: numbers only, judged by the checks."""
