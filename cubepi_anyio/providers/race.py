"""Models asked at the same time; the first that says something is heard. See ``composed.race``."""

from .composed.race import RaceModel as RaceModel

__all__ = ("RaceModel",)
