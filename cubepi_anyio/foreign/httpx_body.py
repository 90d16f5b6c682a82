"""httpx: the body of a request is an async generator, which a cancellation leaves open.

Why: a request that is cancelled while its body is sent leaves ``ByteStream.__aiter__`` suspended, to be closed by the
garbage collector; trio warns of it. A body that is iterated by a plain object leaves nothing.

What replaces it: an httpx whose ``ByteStream`` is an iterator (encode/httpx#3686, fixed by the open pull request
encode/httpx#3777; pydantic/httpx2#1036 for httpx2). Not documented is that ``request.stream`` may be set after the
request was built, and that a client asks only for an instance of the library's own class, whatever it yields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Self

__all__ = ("send_as_one_piece",)


def send_as_one_piece(request: Any, content: bytes) -> None:
    """Let ``request`` read its body, which is ``content``, from a plain object. Nothing if it has no ``stream``."""
    stream: object = getattr(request, "stream", None)
    if stream is not None:
        request.stream = _one_piece_class(type(stream))(content)


@lru_cache(maxsize=8)
def _one_piece_class(base: type) -> Callable[[bytes], object]:
    """``base``, a library's own class of body, with another iterator; two libraries may be at work in one program."""

    def keep(self: Any, content: bytes) -> None:
        self.content = content

    def pieces(self: Any) -> _OnePiece:
        return _OnePiece(self.content)

    made: Any = type(base.__name__, (base,), {"__init__": keep, "__aiter__": pieces})
    return made


class _OnePiece:
    """Iterates once over one piece of a body."""

    def __init__(self, piece: bytes) -> None:
        self._piece: bytes | None = piece

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece, self._piece = self._piece, None
        if piece is None:
            raise StopAsyncIteration
        return piece
