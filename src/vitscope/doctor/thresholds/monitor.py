"""Numbers the monitor of a run warns by."""

from __future__ import annotations

LAYER_GRADIENT_HIGH = 10.0
"""The tuning guide warns of any layer whose gradient is longer."""
GRADIENT_EXPLODES = 100.0
"""The guide's: all gradients together. Of a whole run, the middle of many steps: clipping cuts single ones."""
GRADIENT_VANISHES = 1e-6
"""The guide's: all gradients together; of a run only while its loss is high, as who has learnt all has none either."""
UPDATE_HIGH = 0.1
"""One update that moves a layer by a tenth of its size: a hundred times what is usual (about 0.001)."""
MONITOR_SHARE = 0.02
"""Of the time, for looking: below the 3 % it may cost, as what a look costs is measured with noise."""
