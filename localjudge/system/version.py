"""The version of localjudge."""

__version__ = "0.1.0"
