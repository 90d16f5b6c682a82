"""A crawler: one message of the model calls a tool 200 times, and at most 8 of the calls run at a time.

``python crawler.py`` crawls a site that is made up; give ``crawl`` a ``fetch`` of your own for a real one.
"""

import re
import sys
from collections.abc import Awaitable, Callable

import anyio

from cubepi_anyio import (
    Agent,
    FauxProvider,
    RunContext,
    RunLimits,
    RunResult,
    faux_tool_call,
    tool,
)

Fetch = Callable[[str], Awaitable[str]]
PAGES = 200


async def made_up_site(url: str) -> str:
    """A page with two links; every fiftieth is missing."""
    await anyio.sleep(0.005)
    number = int(url.rsplit("/", 1)[1])
    if number % 50 == 49:
        raise FileNotFoundError(f"404: {url}")
    return f'<a href="/{number + 1}">next</a> <a href="/{number // 2}">up</a>'


class Crawl:
    """What has been found, and how many fetches ran at a time."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.links: set[str] = set()
        self.running = self.most_running = 0

    async def visit(self, url: str) -> int:
        """Fetch one page and count its links."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            found = re.findall(r'href="([^"]+)"', await self._fetch(url))
        finally:
            self.running -= 1
        self.links.update(found)
        return len(found)


async def crawl(fetch: Fetch, *, at_a_time: int = 8, seconds: float | None = None) -> tuple[RunResult, Crawl]:
    """Let an agent visit 200 pages; ``seconds`` is the deadline of each page."""
    visits = Crawl(fetch)

    @tool(timeout=seconds)
    async def visit(url: str, context: RunContext) -> str:
        """Visit a page and note its links."""
        context.update(url)
        return f"{await visits.visit(url)} links"

    provider = FauxProvider()  # a model that wants to see every page; yours decides for itself
    calls = [faux_tool_call("visit", {"url": f"https://site.example/{number}"}) for number in range(PAGES)]
    provider.set_responses([calls, "The site is crawled."])
    agent = Agent(model=provider.model("scripted"), tools=[visit], limits=RunLimits(max_parallel_tools=at_a_time))
    return await agent.prompt("Crawl the site."), visits


async def main() -> None:
    result, visits = await crawl(made_up_site)
    results = [message for message in result.messages if message.role == "tool_result"]
    failed = [message.text for message in results if message.is_error]
    print(f"{len(results)} visits, at most {visits.most_running} at a time, {len(visits.links)} links")
    print(f"{len(failed)} failed:", ", ".join(failed))
    print(result.outcome, "|", result.text)


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1] if sys.argv[1:] else "trio")
