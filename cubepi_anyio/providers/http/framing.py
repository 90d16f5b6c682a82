"""How the body of an answer is cut into frames. A wire format chooses one ``Framing``. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ("Decoder", "Framing")

_FrameT = TypeVar("_FrameT")


class Decoder(Protocol[_FrameT]):
    """Decodes one body: feed it the chunks in order, then call ``finish()``.

    What it gives must not depend on where the chunks were cut. So a decoder that finds a broken frame behind whole ones
    gives those, and raises when it is called next.
    """

    def feed(self, chunk: bytes, /) -> list[_FrameT]:
        """Take the next bytes and return the frames they complete, in order.

        Raises ``MalformedResponse`` for bytes that are no frame, and for a frame that grows beyond all measure.
        """
        ...

    def finish(self) -> list[_FrameT]:
        """Hear that no more bytes come, and return a last frame whose end may be left out.

        Raises ``MalformedResponse`` for a frame that was begun and cannot be complete.
        """
        ...


@dataclass(frozen=True, slots=True)
class Framing(Generic[_FrameT]):
    """One way to cut an answer into frames."""

    name: str
    """In the plural, for the error of a body that is something else."""
    frame: str
    """One of them, with its article."""
    media_types: tuple[str, ...]
    """What the request accepts, and what the content type of such an answer is."""
    decoder: Callable[[], Decoder[_FrameT]]
    """Makes the decoder of one body."""
