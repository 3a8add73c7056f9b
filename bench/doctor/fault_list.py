"""Every fault, in the order of an examination, and the names of causes that count."""

from __future__ import annotations

import faults_in_data
import faults_in_model
import faults_in_training
from fault import Fault

FAULTS: dict[str, Fault] = {**faults_in_data.FAULTS, **faults_in_model.FAULTS, **faults_in_training.FAULTS}
RIGHT_CAUSES: frozenset[str] = frozenset(cause for fault in FAULTS.values() for cause in fault.right)
EXPECTED_SOON: frozenset[str] = RIGHT_CAUSES
"""Causes that may be missing from the doctor's own list: their checks are still being built. Empty when they are not."""
