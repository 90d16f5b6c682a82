"""The examples that are real programs, from end to end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from cubepi_anyio import Agent, RunLimits, tool, tool_cycle_faults
from tests.conftest import needs_trio

from .pages import PROGRAMS
from .test_examples import load

BACKENDS = ["asyncio", pytest.param("trio", marks=needs_trio)]


def run_program(name: str, *arguments: str, folder: Path) -> str:
    """Run a program to its end and return what it printed."""
    done = subprocess.run(
        [sys.executable, PROGRAMS / name, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown_output(name: str) -> str:
    return (PROGRAMS / name).with_suffix(".out").read_text(encoding="utf-8")


# --- programs that need nobody ---------------------------------------------------------------


@needs_trio
@pytest.mark.slow
def test_agents_in_the_nursery_of_a_trio_application_end_with_it(tmp_path: Path) -> None:
    assert run_program("nursery.py", folder=tmp_path) == shown_output("nursery.py")


@pytest.mark.slow
def test_an_asyncio_program_ends_a_run_with_its_own_timeout(tmp_path: Path) -> None:
    assert run_program("with_asyncio.py", folder=tmp_path) == shown_output("with_asyncio.py")


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["crawler.py", "duel.py", "survive.py"])
def test_a_program_prints_what_its_page_shows(name: str, backend: str, tmp_path: Path) -> None:
    assert run_program(name, backend, folder=tmp_path) == shown_output(name)


@pytest.mark.anyio
async def test_a_crawl_that_is_cancelled_leaves_no_fetch_running_and_answers_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crawler = load(PROGRAMS / "crawler.py")
    enough, running = anyio.Event(), 0

    async def site(url: str) -> str:
        nonlocal running
        running += 1
        try:
            if url.endswith("/20"):
                enough.set()
                await anyio.sleep_forever()
            return "a page"
        finally:
            running -= 1

    seen: list[Any] = []
    original = crawler.Agent

    def remembered(**arguments: Any) -> Agent:
        seen.append(original(**arguments))
        return seen[-1]

    monkeypatch.setattr(crawler, "Agent", remembered)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crawler.crawl, site)
        await enough.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    [agent] = seen
    results = agent.state.messages[2:]
    assert running == 0
    assert tool_cycle_faults(agent.state.messages) == []
    assert len(results) == 200
    assert [message.text for message in results if not message.is_error] == ["0 links"] * 199


@pytest.mark.anyio
async def test_a_page_of_the_crawl_that_takes_too_long_fails_alone() -> None:
    crawler = load(PROGRAMS / "crawler.py")

    async def site(url: str) -> str:
        if url.endswith("/7"):
            await anyio.sleep_forever()
        return "a page"

    result, visits = await crawler.crawl(site, seconds=0.5)
    failed = [message.text for message in result.messages if message.role == "tool_result" and message.is_error]
    assert failed == ["The call timed out: it was cancelled after 0.5 seconds."]
    assert visits.running == 0
    assert result.outcome == "completed"


# --- the gateway -----------------------------------------------------------------------------


class Lines(httpx.AsyncByteStream):
    """The body of an answer, line by line; notes when it is closed."""

    def __init__(self, lines: Sequence[str], *, then: Callable[[], Any] | None = None) -> None:
        self._lines, self._then = lines, then
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self._lines:
            yield f"{line}\n".encode()
        if self._then is not None:
            await self._then()

    async def aclose(self) -> None:
        self.closed = True


class Gateway:
    """A gateway that answers what it is told to."""

    def __init__(self, *answers: Lines | int) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.client = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            return httpx.Response(answer, text="no such team")
        return httpx.Response(200, stream=answer)

    def agent(self, **options: Any) -> Agent:
        provider = load(PROGRAMS / "gateway.py").GatewayProvider(self.client, team="search")
        return Agent(model=provider.model("house-7b"), **options)


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.anyio
async def test_the_gateways_lines_become_a_run_with_a_tool_call() -> None:
    gateway = Gateway(
        Lines(
            [
                '{"think": "sum"}',
                '{"call": {"id": "1", "name": "add", "arguments": {"a": 2, "b": 3}}}',
                '{"end": "tool_use", "tokens": {"read": 7, "written": 2}}',
            ]
        ),
        Lines(['{"say": "It "}', '{"mood": "glad"}', '{"say": "is 5."}', '{"end": "stop"}']),
    )
    async with gateway.client:
        result = await gateway.agent(tools=[add], system_prompt="Add.").prompt("2 + 3?")
    assert (result.outcome, result.text, result.usage.total_tokens) == ("completed", "It is 5.", 9)
    second = httpx.Response(200, content=gateway.requests[1].content).json()
    assert [line["by"] for line in second["said"]] == ["system", "user", "assistant", "tool_result"]
    assert second["said"][3] == {"by": "tool_result", "text": "5", "call": "1", "failed": False}
    assert gateway.requests[1].headers["x-team"] == "search"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (Lines(['{"say": "Hm"}', '{"error": "quota", "wait": 30}']), "RateLimited", "Hm"),
        (Lines(['{"error": "no model"}']), "ProviderUnavailable", ""),
        (Lines(['{"say": "I am"}']), "IncompleteStream", "I am"),
        (Lines(['{"say": "I am"}', "<html>"]), "MalformedResponse", "I am"),
        (403, "ProviderBadRequest", ""),
    ],
)
async def test_what_the_gateway_cannot_do_is_a_typed_error(answer: Lines | int, error: str, text: str) -> None:
    gateway = Gateway(answer)
    async with gateway.client:
        result = await gateway.agent().prompt("Hello")
    assert (result.outcome, type(result.error).__name__, result.text) == ("error", error, text)
    assert not isinstance(answer, Lines) or answer.closed


@pytest.mark.anyio
async def test_a_limit_closes_the_connection_to_a_silent_gateway() -> None:
    body = Lines(['{"say": "One moment"}'], then=anyio.sleep_forever)
    gateway = Gateway(body)
    async with gateway.client:
        result = await gateway.agent(limits=RunLimits(idle_timeout=0.1)).prompt("Hello")
    assert (result.outcome, result.limit, result.text) == ("limit", "idle_timeout", "One moment")
    assert body.closed


# --- the terminal ----------------------------------------------------------------------------


class Terminal:
    """A program at a terminal of its own, and what it has written there."""

    def __init__(self, *command: str | Path) -> None:
        self._pty, child = os.openpty()
        self.process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, close_fds=True)
        os.close(child)
        self._timer = threading.Timer(30, self.process.kill)
        self._timer.start()
        self._seen = ""

    def until(self, text: str) -> str:
        """What it writes up to ``text``."""
        while text not in self._seen:
            try:
                part = os.read(self._pty, 4096).decode()
            except OSError:
                part = ""
            assert part, f"it ended before it wrote {text!r}: {self._seen!r}"
            self._seen += part
        before, _, self._seen = self._seen.partition(text)
        return before

    def type(self, line: str) -> None:
        os.write(self._pty, f"{line}\n".encode())

    def close(self) -> None:
        self._timer.cancel()
        self.process.kill()
        self.process.wait()
        os.close(self._pty)


@contextmanager
def at_a_terminal(*command: str | Path) -> Generator[Terminal]:
    terminal = Terminal(*command)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to open here")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_person_at_the_terminal_allows_one_call_and_refuses_another(backend: str) -> None:
    with at_a_terminal(sys.executable, PROGRAMS / "terminal.py", backend) as terminal:
        for _ in range(2):
            asked = terminal.until("[y/n/e]:")
            if "notes.txt" in asked:
                terminal.type("y")
            else:
                terminal.type("n")
                terminal.until("empty):")
                terminal.type("I still need it")
        terminal.until("read: notes.txt: three lines")
        terminal.until("delete: notes.txt is deleted (not really)")
        terminal.until("delete: The user refused this call: I still need it")
        terminal.until("I did what I may.")
        assert terminal.process.wait(timeout=10) == 0
