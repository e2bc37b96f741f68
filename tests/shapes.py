"""All shapes of records that tools write."""

from __future__ import annotations

from shapes_of_training import TRAINING

SHAPES = (*TRAINING,)
