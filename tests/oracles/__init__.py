"""The vendors' own SDKs, in a process and an environment of their own, as judges of what we send and read."""
