"""Our clients against servers that others wrote, each in a process and an environment of its own."""
