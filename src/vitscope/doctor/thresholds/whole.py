"""Numbers of the examination as a whole."""

from __future__ import annotations

SURE_ENOUGH = 0.5
"""A finding from here on makes the patient unwell: more likely than not. Below, the report shows it and cannot
tell."""
NO_NEED_TO_TRAIN = 0.9
"""With a cause in the pictures, the model or its gradients that is as sure as this, training a little would show that
same cause once more, at the price of all other checks together."""
