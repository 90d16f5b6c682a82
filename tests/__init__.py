"""The suite. Helpers that several files share live in ``tests.support``."""
