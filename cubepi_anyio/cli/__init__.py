"""The command line: ``cubepi-anyio``, and ``python -m cubepi_anyio``."""
