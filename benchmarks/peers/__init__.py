"""Adapters of the libraries we are compared with, each for an environment of its own."""
