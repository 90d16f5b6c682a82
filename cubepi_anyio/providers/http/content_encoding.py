"""Undoes the ``content-encoding`` of a body, chunk by chunk. Pure.

The HTTP library could do it, in one more generator around those it has; when the data is broken, that one ends and the
others are left open inside it. So bodies are read raw and decoded here, and only what is decoded here is asked for.
"""

from __future__ import annotations

import zlib

from ...errors import MalformedResponse

__all__ = ("ACCEPTED_ENCODINGS", "ContentDecoder")

ACCEPTED_ENCODINGS = "gzip, deflate"
"""The value of ``accept-encoding``."""

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # told apart by the first bytes
_DEFLATE_ALONE = -zlib.MAX_WBITS


class ContentDecoder:
    """Decodes one body. Raises ``MalformedResponse`` for an encoding that was not asked for or broken data."""

    def __init__(self, encoding: str) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise MalformedResponse(f"the answer has the content-encoding {encoding!r}, which was not asked for")
        self._encoding = encoding
        self._inflater = None if encoding in ("", "identity") else zlib.decompressobj(_GZIP_OR_ZLIB)
        self._at_start = True

    def decode(self, chunk: bytes) -> bytes:
        """Decode the next bytes; what they do not complete is kept for the next call."""
        if self._inflater is None:
            return chunk
        try:
            return self._inflate(chunk)
        except zlib.error as error:
            raise MalformedResponse(f"the answer's content-encoding {self._encoding} is broken: {error}") from error

    def _inflate(self, chunk: bytes) -> bytes:
        assert self._inflater is not None
        if self._at_start and chunk:
            self._at_start = False
            # Some servers call deflate what has not the zlib frame the name means (RFC 9110, 8.4.1.2).
            if self._encoding == "deflate" and chunk[0] & 0x0F != 8:
                self._inflater = zlib.decompressobj(_DEFLATE_ALONE)
        decoded = self._inflater.decompress(chunk)
        while self._inflater.eof and self._inflater.unused_data:
            rest = self._inflater.unused_data  # a gzip body may have several members
            self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
            decoded += self._inflater.decompress(rest)
        return decoded
