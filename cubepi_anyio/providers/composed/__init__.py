"""Models that ask other models: again, one after the other, or several at once."""
