"""One task runs an agent, another ends it."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool


async def main() -> None:
    both_run = anyio.Event()
    running: list[str] = []

    @tool
    async def download(url: str) -> str:
        """Download a page."""
        running.append(url)
        if len(running) == 2:
            both_run.set()
        await anyio.sleep(3600)
        return "the page"

    @tool
    async def clock() -> str:
        """Say what time it is."""
        return "five past nine"

    provider = FauxProvider()
    calls = [
        faux_tool_call("clock"),
        faux_tool_call("download", {"url": "a"}),
        faux_tool_call("download", {"url": "b"}),
    ]
    provider.set_responses([calls, "I have only the time: five past nine."])
    agent = Agent(model=provider.model("scripted"), tools=[download, clock])

    async def run_it() -> None:
        result = await agent.prompt("Get both pages, and the time.")
        print(result.outcome, "because", result.abort_reason)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_it)
        await both_run.wait()
        agent.abort("the user left")

    for message in agent.state.messages:
        print(f"{message.role}: {message.text or '(three calls)'}")
    print((await agent.prompt("What do you have?")).text)


if __name__ == "__main__":
    anyio.run(main, backend="trio")
