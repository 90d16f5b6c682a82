"""The channel that asks on the terminal: one question at a time, however many wait."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from ..errors import InvalidAnswer, RequestWithdrawn
from ..types.hitl import (
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    Option,
    PersonAnswer,
    PersonRequest,
    Question,
)
from ..types.json import JsonObject
from ..types.person_answers import check_answer
from .channel import Channel, answered_in_time

try:
    import termios
except ImportError:  # Windows has none
    termios = None

__all__ = ("TerminalChannel",)

_ReadLine = Callable[[], Awaitable[str]]
_Write = Callable[[str], object]


class TerminalChannel(Channel):
    """Asks whoever sits at the terminal, question by question; a question waits for its turn on its own time.

    ``read_line`` returns the next line without its end and raises ``EOFError`` where there is none; ``write`` shows
    text. Left out they are standard input and output. Without a terminal, and when it is closed, nobody can be asked:
    ``RequestWithdrawn`` says so. What was typed before a question was shown does not answer it.
    """

    def __init__(
        self, default_timeout: float | None = None, *, read_line: _ReadLine | None = None, write: _Write | None = None
    ) -> None:
        super().__init__(default_timeout)
        self._read_line = read_line
        self._write: _Write = write or _write_to_terminal
        self._turn: anyio.Lock | None = None
        self._askers = 0

    async def _answer_to(self, request: PersonRequest) -> PersonAnswer:
        streams = (sys.stdin, sys.stdout)
        is_terminal = all(stream is not None and not stream.closed and stream.isatty() for stream in streams)
        if self._read_line is None and not is_terminal:
            await checkpoint()
            raise RequestWithdrawn(request.id, "nobody can be asked, because there is no terminal")
        if self._turn is None:  # one for as long as somebody asks, so that the channel is bound to no event loop
            self._turn = anyio.Lock()
        self._askers += 1
        try:
            with answered_in_time(request):
                async with self._turn:
                    return await self._talk(request)
        finally:
            self._askers -= 1
            if not self._askers:
                self._turn = None

    async def _talk(self, request: PersonRequest) -> PersonAnswer:
        if self._read_line is None and termios is not None:  # what was typed ahead is no answer
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        talk = _Talk(self._read_line or _read_from_terminal, self._write)
        try:
            while True:
                try:
                    return check_answer(request, await talk.answer_to(request))
                except InvalidAnswer as error:
                    talk.say(f"  {error.problem}")
        except EOFError:
            raise RequestWithdrawn(request.id, "nobody can be asked, because the terminal was closed") from None
        except anyio.get_cancelled_exc_class():
            with suppress(Exception):  # a terminal that has gone must not take the place of the cancellation
                self._write("\n  (this question needs no answer any more)\n")
            raise


class _Talk:
    """One question: what is shown and what is typed."""

    def __init__(self, read_line: _ReadLine, write: _Write) -> None:
        self._read_line, self._write = read_line, write

    def say(self, text: str) -> None:
        self._write(_visible(text) + "\n")

    async def read(self, prompt: str) -> str:
        self._write(_visible(prompt) + " ")
        return (await self._read_line()).strip()

    async def answer_to(self, request: PersonRequest) -> object:
        match request.payload:
            case ConfirmRequest() as asked:
                self.say(f"? {asked.prompt}")
                self._show(asked.details)
                return await self._choose("yes or no [y/n]:", {"y": True, "n": False})
            case ApproveRequest() as asked:
                return await self._approve(asked)
            case AskRequest(questions=questions):
                return {question.key: await self._ask(question) for question in questions}

    def _show(self, details: JsonObject) -> None:
        for key, value in details.items():
            self.say(f"    {key}: {json.dumps(value, ensure_ascii=False, default=str)}")

    async def _choose(self, prompt: str, choices: dict[str, Any]) -> Any:
        """Read until what is typed begins like one of the choices."""
        while True:
            typed = (await self.read(f"  {prompt}")).lower()
            if typed[:1] in choices:
                return choices[typed[:1]]

    async def _approve(self, asked: ApproveRequest) -> ApproveAnswer:
        self.say(f"? {asked.prompt or 'May this call run?'}")
        self.say(f"  {asked.tool_name}")
        self._show(asked.args)
        if asked.details:
            self.say("  about it:")
            self._show(asked.details)
        decision = await self._choose("yes, no or edit [y/n/e]:", {"y": "approve", "n": "deny", "e": "edit"})
        if decision == "deny":
            return ApproveAnswer(decision="deny", reason=await self.read("  why (may be left empty):"))
        if decision == "edit":
            return ApproveAnswer(decision="edit", edited_args=await self._arguments())
        return ApproveAnswer(decision="approve")

    async def _arguments(self) -> JsonObject:
        while True:
            try:
                arguments = json.loads(await self.read("  the arguments as a JSON object:"))
            except ValueError as error:
                self.say(f"  this is no JSON: {error}")
                continue
            if isinstance(arguments, dict):
                return cast("JsonObject", arguments)
            self.say("  this is no JSON object")

    async def _ask(self, question: Question) -> str | list[str]:
        self.say(f"? {question.prompt}")
        for number, option in enumerate(question.options, 1):
            self.say(f"  {number}. {option.label}{f' - {option.description}' if option.description else ''}")
        optional = "" if question.required else " (may be left empty)"
        if not question.options:
            return await self.read(f"  answer{optional}:")
        if not question.multi_select:
            return _chosen(question.options, await self.read(f"  number{optional}:"))
        typed = await self.read(f"  numbers, with commas between{optional}:")
        return [_chosen(question.options, part.strip()) for part in typed.split(",") if part.strip()]


def _chosen(options: Sequence[Option], typed: str) -> str:
    """The value of the option whose number was typed, or what was typed, which may be a label."""
    if typed.isdecimal() and 0 < int(typed) <= len(options):
        option = options[int(typed) - 1]
        return option.value or option.label
    return typed


def _visible(text: str) -> str:
    """The text with nothing in it that could move the cursor or hide something: a model may have written it."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )


# --- the terminal itself ---------------------------------------------------------------------


def _write_to_terminal(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _read_from_terminal() -> str:
    """The next line of standard input, past Python's buffers; cancelled, it leaves the line to the next reader.

    A terminal gives whole lines, so that reading one that is ready does not block. On Windows, where a console cannot
    be waited for, a thread reads, and is abandoned when the question is over.
    """
    if termios is None:
        line = await to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        if not line:
            raise EOFError
        return line.rstrip("\n")
    file_number, line = sys.stdin.fileno(), b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(file_number)
        part = os.read(file_number, 4096)
        if not part:
            raise EOFError
        line += part
    return line.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\n")
