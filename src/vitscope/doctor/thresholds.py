"""Every number the doctor judges by, each with its reason. Checks have none of their own."""

from __future__ import annotations

# The examination as a whole

SURE_ENOUGH = 0.5
"""A finding from here on makes the patient unwell: more likely than not. Below, the report shows it and cannot tell."""

# Pictures and labels

# Settings

# The forward pass

# Gradients and updates

# Training for a while

# The monitor of a run

LAYER_GRADIENT_HIGH = 10.0
"""The tuning guide warns of any layer whose gradient is longer."""
GRADIENT_EXPLODES = 100.0
"""The guide's: all gradients together."""
GRADIENT_VANISHES = 1e-6
"""The guide's: all gradients together."""
UPDATE_HIGH = 0.1
"""One update that moves a layer by a tenth of its size: a hundred times what is usual (about 0.001)."""
MONITOR_SHARE = 0.02
"""Of the time, for looking: below the 3 % it may cost, as what a look costs is measured with noise."""
