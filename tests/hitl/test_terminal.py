"""Questions on the terminal: one at a time, typed answers, and nobody there."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from cubepi_anyio.errors import RequestTimedOut, RequestWithdrawn
from cubepi_anyio.hitl.terminal import TerminalChannel
from cubepi_anyio.types.hitl import ApproveAnswer, Option, Question

pytestmark = pytest.mark.anyio

OPTIONS = [Option(label="Red", value="r", description="warm"), Option(label="Blue")]


@dataclass
class Screen:
    """What is shown, and a person who types these lines; when there are none left, the person only thinks."""

    lines: list[str]
    shown: str = ""
    at_the_end: type[Exception] | None = None
    reading: int = 0
    most_reading: int = 0
    waiting: anyio.Event = field(default_factory=anyio.Event)

    async def read_line(self) -> str:
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        try:
            await anyio.lowlevel.checkpoint()
            if self.lines:
                self.shown += self.lines[0] + "\n"
                return self.lines.pop(0)
            if self.at_the_end is not None:
                raise self.at_the_end
            self.waiting.set()
            await anyio.sleep_forever()
        finally:
            self.reading -= 1
        raise AssertionError

    def write(self, text: str) -> None:
        self.shown += text

    @property
    def channel(self) -> TerminalChannel:
        return TerminalChannel(read_line=self.read_line, write=self.write)


@pytest.mark.parametrize(("typed", "answer"), [(["y"], True), (["No"], False), (["what?", "", "yes"], True)])
async def test_a_person_confirms(typed: list[str], answer: bool) -> None:
    screen = Screen([*typed])
    assert await screen.channel.confirm("Sure?", details={"size": 3}) is answer
    assert screen.shown.startswith("? Sure?\n    size: 3\n  yes or no [y/n]: ")
    assert screen.lines == []


async def test_a_person_sees_the_whole_call_and_approves_it() -> None:
    screen = Screen(["y"])
    answer = await screen.channel.approve(
        "delete", {"path": "/tmp/ä", "force": True}, tool_call_id="c1", prompt="Really?", details={"owner": "me"}
    )
    assert answer == ApproveAnswer(decision="approve")
    assert screen.shown == (
        '? Really?\n  delete\n    path: "/tmp/ä"\n    force: true\n  about it:\n    owner: "me"\n'
        "  yes, no or edit [y/n/e]: y\n"
    )


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["n", "too big"], ApproveAnswer(decision="deny", reason="too big")),
        (["n", ""], ApproveAnswer(decision="deny")),
        (["e", '{"n": 2}'], ApproveAnswer(decision="edit", edited_args={"n": 2})),
        (["e", "{", "[]", '{"n": 2}'], ApproveAnswer(decision="edit", edited_args={"n": 2})),
    ],
)
async def test_a_person_refuses_or_edits_a_call(typed: list[str], answer: ApproveAnswer) -> None:
    screen = Screen([*typed])
    assert await screen.channel.approve("t", {"n": 1}, tool_call_id="c1") == answer
    assert screen.lines == []


@pytest.mark.parametrize(
    ("question", "typed", "answer"),
    [
        ({}, ["blue"], "blue"),
        ({"options": OPTIONS}, ["1"], "r"),
        ({"options": OPTIONS}, ["Blue"], "Blue"),
        ({"options": OPTIONS}, ["3", "2"], "Blue"),
        ({"options": OPTIONS, "multi_select": True}, ["1, 2"], ["r", "Blue"]),
        ({}, ["", "at last"], "at last"),
    ],
)
async def test_a_person_answers_questions(question: dict[str, Any], typed: list[str], answer: Any) -> None:
    screen = Screen([*typed])
    assert await screen.channel.ask([Question(key="k", prompt="Which?", **question)]) == {"k": answer}
    assert screen.lines == []


async def test_a_person_may_pass_over_a_question() -> None:
    screen = Screen(["", ""])
    questions = [
        Question(key="a", prompt="A?", required=False),
        Question(key="b", prompt="B?", required=False, options=OPTIONS, multi_select=True),
    ]
    assert await screen.channel.ask(questions) == {}
    assert "  1. Red - warm\n  2. Blue\n" in screen.shown


async def test_many_questions_are_shown_one_at_a_time() -> None:
    screen = Screen(["y"] * 5)
    channel = screen.channel
    said: list[bool] = []

    async def ask(number: int) -> None:
        said.append(await channel.confirm(f"number {number}?"))

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(ask, number)
    assert (said, screen.most_reading) == ([True] * 5, 1)
    shown = screen.shown.splitlines()
    assert sorted(shown[0::2]) == [f"? number {number}?" for number in range(5)]
    assert shown[1::2] == ["  yes or no [y/n]: y"] * 5


async def test_what_a_model_writes_cannot_move_the_cursor() -> None:
    screen = Screen(["y"])
    await screen.channel.approve("t", {"a\x1b[2J": "b\u202ec\x9b"}, tool_call_id="c1", prompt="x\x1b[31m\ry")
    assert not {"\x1b", "\u202e", "\x9b", "\r"} & set(screen.shown)
    assert "x\\x1b[31m\\ry" in screen.shown


@pytest.mark.virtual_clock
async def test_a_question_nobody_answers_in_time_makes_room_for_the_next() -> None:
    screen = Screen([])
    channel = screen.channel
    with pytest.raises(RequestTimedOut):
        await channel.confirm("Sure?", timeout=5)
    assert screen.shown == "? Sure?\n  yes or no [y/n]: \n  (this question needs no answer any more)\n"
    screen.lines.append("y")
    assert await channel.confirm("And now?") is True


@pytest.mark.virtual_clock
async def test_a_question_may_run_out_of_time_before_it_was_shown() -> None:
    screen = Screen([])
    channel = screen.channel
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.confirm, "First?")
        await screen.waiting.wait()
        with pytest.raises(RequestTimedOut):
            await channel.confirm("Second?", timeout=5)
        assert screen.shown == "? First?\n  yes or no [y/n]: "
        tasks.cancel_scope.cancel()


async def test_cancelling_whoever_asks_makes_room_for_the_next() -> None:
    screen = Screen([])
    channel = screen.channel
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.confirm, "Sure?")
        await screen.waiting.wait()
        tasks.cancel_scope.cancel()
    screen.lines.append("n")
    assert await channel.confirm("And now?") is False


async def test_a_terminal_that_is_closed_withdraws_the_question() -> None:
    with pytest.raises(RequestWithdrawn, match="the terminal was closed"):
        await Screen([], at_the_end=EOFError).channel.confirm("Sure?")


async def test_without_a_terminal_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(RequestWithdrawn, match="there is no terminal"):
        await TerminalChannel().confirm("Sure?")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(RequestWithdrawn, match="there is no terminal"):
        await TerminalChannel().confirm("Sure?")


# --- a real terminal -------------------------------------------------------------------------

needs_terminals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")


@dataclass
class Person:
    """Sits at the other end of a pseudo-terminal."""

    end: int

    async def sees(self, text: str) -> None:
        seen = ""
        while text not in seen:
            await anyio.wait_readable(self.end)
            seen += os.read(self.end, 4096).decode()

    def types(self, text: str) -> None:
        os.write(self.end, text.encode())


@contextmanager
def somebody() -> Generator[Person]:
    """Put a person at the terminal. In the test itself, because pytest puts its own streams in place before it."""
    end, terminal = os.openpty()
    with (
        open(terminal, encoding="utf-8", closefd=False) as typed,
        open(terminal, "w", encoding="utf-8", closefd=False) as shown,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", typed)
        patch.setattr(sys, "stdout", shown)
        yield Person(end)
    os.close(end)
    os.close(terminal)


async def with_person(ask: Callable[[], Any], be: Callable[[], Any]) -> Any:
    answers: list[Any] = []

    async def asking() -> None:
        answers.append(await ask())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asking)
            await be()
    return answers[0]


@needs_terminals
async def test_a_person_types_at_a_real_terminal() -> None:
    with somebody() as person:

        async def be() -> None:
            await person.sees("Who?")
            person.types("Zoë\n")

        answer = await with_person(lambda: TerminalChannel().ask([Question(key="who", prompt="Who?")]), be)
        assert answer == {"who": "Zoë"}


@needs_terminals
async def test_what_was_typed_before_a_question_was_shown_does_not_answer_it() -> None:
    with somebody() as person:
        person.types("y\n")

        async def be() -> None:
            await person.sees("[y/n]:")
            person.types("n\n")

        assert await with_person(lambda: TerminalChannel().confirm("Sure?"), be) is False


@needs_terminals
async def test_a_line_typed_after_a_question_was_cancelled_goes_to_the_next() -> None:
    with somebody() as person:
        channel = TerminalChannel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.confirm, "First?")
            await person.sees("[y/n]:")
            tasks.cancel_scope.cancel()

        async def be() -> None:
            await person.sees("[y/n]:")
            person.types("y\n")

        assert await with_person(lambda: channel.confirm("Second?"), be) is True


@needs_terminals
async def test_the_end_of_input_at_a_real_terminal_withdraws_the_question() -> None:
    with somebody() as person:

        async def be() -> None:
            await person.sees("[y/n]:")
            person.types("\x04")

        async def ask() -> str:
            with pytest.raises(RequestWithdrawn) as caught:
                await TerminalChannel().confirm("Sure?")
            return caught.value.reason

        assert "the terminal was closed" in await with_person(ask, be)
