"""Run the calls of one message, each in a scope of its own, and say how each ended."""
