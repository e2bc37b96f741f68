"""All shapes of records that tools write."""

from __future__ import annotations

from shapes_of_agents import AGENTS
from shapes_of_further_tools import FURTHER
from shapes_of_harnesses import HARNESSES
from shapes_of_preferences import PREFERENCES
from shapes_of_training import TRAINING
from shapes_of_written_files import WRITTEN

SHAPES = (*TRAINING, *PREFERENCES, *HARNESSES, *AGENTS, *FURTHER, *WRITTEN)
