"""The server of the examples: a browser that leaves ends its run, on asyncio and on trio."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import needs_trio

from .pages import PROGRAMS

pytest.importorskip("starlette", reason="the web server of the examples is not installed")

pytestmark = pytest.mark.slow

SERVERS = ["uvicorn", pytest.param("hypercorn", marks=needs_trio)]
CHROMIUM = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@contextmanager
def started(*command: str | Path) -> Generator[subprocess.Popen[str]]:
    """A process that is ended with the block, or after a minute."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def until(found: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Ask again and again until there is something; another process has no event to wait for."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.02)
    return value


@pytest.fixture(params=SERVERS)
def address(request: pytest.FixtureRequest) -> Generator[str]:
    """The address of a running server."""
    with started(sys.executable, PROGRAMS / "server.py", request.param) as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line.startswith("http://"), process.stderr.read() if process.stderr else line
        until(lambda: answers(line))
        yield line


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/runs", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def runs(address: str) -> list[str]:
    """How the runs ended so far."""
    return httpx.get(f"{address}/runs", timeout=5).json()


def test_a_client_that_reads_to_the_end_gets_the_whole_story_and_its_outcome(address: str) -> None:
    text, outcome, name = "", "", ""
    with httpx.stream("GET", f"{address}/run", params={"prompt": "A short story."}, timeout=60) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        for line in answer.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data" and name == "text":
                text += json.loads(value)
            elif field == "data" and name == "end":
                outcome = json.loads(value)
    assert text == "Once upon a time there was a run, and it had an end. " * 2
    assert outcome == "completed"
    assert until(lambda: runs(address)) == ["completed"]


def test_a_client_that_leaves_ends_its_run_long_before_the_story_is_over(address: str) -> None:
    with httpx.stream("GET", f"{address}/run", params={"prompt": "A long story."}, timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: text"
        assert runs(address) == []
    assert until(lambda: runs(address), seconds=5.0) == ["aborted"]


def test_a_prompt_that_says_nothing_is_refused(address: str) -> None:
    answer = httpx.get(f"{address}/run", timeout=5)
    assert (answer.status_code, answer.json()) == (400, {"error": "say something: /run?prompt=..."})


# --- a real browser --------------------------------------------------------------------------


class Browser:
    """A Chromium, driven through chromedriver (W3C WebDriver)."""

    def __init__(self, driver: str, folder: Path) -> None:
        self._http = httpx.Client(base_url=driver, timeout=60)
        options = {"args": [*CHROMIUM, f"--user-data-dir={folder}"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self._session = f"/session/{self._ask('POST', '/session', wanted)['sessionId']}"

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self._http.request(method, path, json=body if method == "POST" else None)
        assert answer.status_code == 200, answer.text
        return answer.json()["value"]

    def open(self, address: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": address})

    def run(self, script: str) -> Any:
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def text(self, id: str) -> str:
        return self.run(f"return document.getElementById({id!r}).textContent")

    def close(self) -> None:
        self._ask("DELETE", self._session)
        self._http.close()


@pytest.fixture
def browser(tmp_path: Path) -> Generator[Browser]:
    """A fresh Chromium."""
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        pytest.skip("chromium and chromedriver are not installed")
    with started(driver, "--port=0") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "on port " in line and "success" in line:
                port = line.rpartition("port ")[2].strip(". \n")
                break
        else:
            pytest.fail("chromedriver did not start")
        browser = Browser(f"http://127.0.0.1:{port}", tmp_path / "profile")
        try:
            yield browser
        finally:
            browser.close()


def test_a_page_shows_the_answer_as_it_comes_and_leaving_it_ends_the_run(address: str, browser: Browser) -> None:
    browser.open(address)
    browser.run("document.querySelector('#form button').click()")
    until(lambda: browser.text("answer").startswith("Once upon"))
    assert browser.text("outcome") == "running"
    assert runs(address) == []
    browser.open("about:blank")
    assert until(lambda: runs(address), seconds=10.0) == ["aborted"]


def test_the_stop_button_ends_the_run_and_another_one_completes(address: str, browser: Browser) -> None:
    browser.open(address)
    browser.run("document.querySelector('#form button').click()")
    until(lambda: browser.text("answer"))
    browser.run("document.getElementById('stop').click()")
    assert until(lambda: runs(address), seconds=10.0) == ["aborted"]
    assert browser.text("outcome") == "stopped"
    browser.run("document.getElementById('prompt').value = 'A short story.'")
    browser.run("document.querySelector('#form button').click()")
    until(lambda: browser.text("outcome") == "completed")
    assert browser.text("answer").strip().endswith("had an end.")
    assert until(lambda: len(runs(address)) == 2 and runs(address)) == ["aborted", "completed"]
