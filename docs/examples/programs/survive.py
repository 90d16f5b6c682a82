"""A run that survives a kill: ``python survive.py`` starts a run, kills its process in the middle, and goes on.

The first tool's result was announced, so it is stored; the second was running, so its outcome is unknown. Neither runs
a second time.
"""

import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import anyio

from cubepi_anyio import Agent, FauxProvider, RunResult, faux_tool_call, tool, tool_cycle_faults
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.errors import ThreadBusy

STORE = Path("survive.sqlite")
PAID = Path("paid.txt")


@tool
def pay(what: str) -> str:
    """Pay for something."""
    with PAID.open("a") as book:
        book.write(f"{what}\n")
    return f"{what} is paid"


@tool
async def ship(what: str) -> str:
    """Ship something; it takes for ever."""
    print("shipping", flush=True)
    await anyio.sleep_forever()
    return f"{what} is shipped"


def make_agent(store: SQLiteCheckpointer, provider: FauxProvider) -> Agent:
    """An agent whose process, when it dies, holds its thread for half a second, so that we need not wait a minute."""
    return Agent(
        model=provider.model("scripted"),
        tools=[pay, ship],
        checkpointer=store,
        thread_id="order-1",
        lease_seconds=0.5,
    )


async def child() -> None:
    """The process that is killed: it says when the first result is announced and the second tool runs."""
    provider = FauxProvider()
    calls = [faux_tool_call("pay", {"what": "a boat"}), faux_tool_call("ship", {"what": "a boat"})]
    provider.set_responses([calls])
    async with SQLiteCheckpointer(STORE) as store:
        agent = make_agent(store, provider)
        agent.subscribe(
            lambda event: event.type == "tool_execution_end" and print("ended", event.tool_name, flush=True)
        )
        await agent.prompt("Buy a boat.")


def run_and_kill(backend: str) -> None:
    """Start the child and kill it when one call has ended and the other runs."""
    with Popen([sys.executable, __file__, backend, "child"], stdin=DEVNULL, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        heard = {process.stdout.readline().strip() for _ in range(2)}
        assert heard == {"ended pay", "shipping"}, heard
        process.kill()


async def prompt_when_free(agent: Agent, text: str) -> RunResult:
    """Prompt the agent as soon as the claim of the killed process has run out."""
    while True:
        try:
            return await agent.prompt(text)
        except ThreadBusy:
            await anyio.sleep(0.1)


async def go_on() -> None:
    """A new process: it finds the thread, mended, and asks the model again."""
    provider = FauxProvider()
    provider.set_responses([lambda messages: f"The boat is paid; the model sees {len(messages)} messages."])
    async with SQLiteCheckpointer(STORE) as store:
        agent = make_agent(store, provider)
        for message in await agent.load():
            print(f"{message.role}: {message.text or '(two calls)'}")
        print("faults:", tool_cycle_faults(agent.state.messages))
        result = await prompt_when_free(agent, "What is the state of my order?")
        print(result.outcome, "|", result.text)


if __name__ == "__main__":
    backend = sys.argv[1] if sys.argv[1:] else "trio"
    if "child" in sys.argv:
        anyio.run(child, backend=backend)
    else:
        STORE.unlink(missing_ok=True)
        PAID.unlink(missing_ok=True)
        run_and_kill(backend)
        anyio.run(go_on, backend=backend)
        print("paid:", PAID.read_text().splitlines())
