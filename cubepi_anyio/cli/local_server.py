"""The program that serves a small model: llama.cpp behind OpenAI's wire format, for as long as its parent lives.

Run as a script with the file of weights and the size of the context; prints its address when it is ready, and ends when
its standard input does, which is when whoever started it has closed it or is no more.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

__all__ = ("serve",)


def serve(weights: str, context_tokens: int) -> None:
    """Serve until standard input ends. Needs xllamacpp."""
    engine: Any = import_module("xllamacpp")
    parameters = engine.CommonParams()
    parameters.model.path = weights
    parameters.n_ctx = context_tokens
    # More threads than one wait for each other by spinning, which on a busy machine is many times slower.
    parameters.cpuparams.n_threads = 1
    parameters.n_parallel = 1
    parameters.port = 0
    parameters.use_jinja = True
    server = engine.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    # The server's own clean-up waits for an answer that may still be written, and nobody reads it any more.
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
