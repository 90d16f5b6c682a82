"""Inner workings of other libraries that this package leans on: one small module for each.

Each module says why it is needed, what replaces it, and where upstream knows of it. Each has tests in
``tests/test_foreign.py`` that fail when the library changes; then the module is adapted, or goes. No other module of
the package may reach into a library past what its documentation promises.

Nothing here imports an event loop: asyncio and trio are looked up among the loaded modules, because a program on one
of them need not have the other.
"""
