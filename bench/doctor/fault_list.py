"""Every fault, in the order of an examination, and the names of causes that count."""

from __future__ import annotations

import faults_in_data
import faults_in_model
import faults_in_training
from fault import Fault

FAULTS: dict[str, Fault] = {**faults_in_data.FAULTS, **faults_in_model.FAULTS, **faults_in_training.FAULTS}
