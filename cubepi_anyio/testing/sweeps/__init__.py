"""End a run at every step of the event loop, by every means, and check what is left."""
