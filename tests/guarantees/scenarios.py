"""The runs that the guarantees are swept over: one for each thing a run can be in the middle of.

A scenario is a function that makes a fresh one. To add a model over real HTTP or a store, write an
``@asynccontextmanager`` that yields the scenario and takes its surroundings away again, and add it to ``SCENARIOS``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from pydantic import BaseModel

from cubepi_anyio import (
    Agent,
    AgentEvent,
    AgentTool,
    AssistantMessage,
    BaseProvider,
    FauxProvider,
    FauxResponse,
    Message,
    MessageStream,
    Model,
    ProviderUnavailable,
    RunLimits,
    RunResult,
    StreamEvent,
    TextContent,
    ToolResultMessage,
    faux_assistant_message,
    faux_text,
    faux_thinking,
    faux_tool_call,
    tool_cycle_faults,
)
from cubepi_anyio.checkpointers import repaired
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.testing import EndedRun, Scenario

THOROUGH = bool(os.environ.get("CUBEPI_ANYIO_THOROUGH_SWEEPS"))
"""Every step with many scheduler seeds, which takes minutes; otherwise a part that takes seconds."""

SEEDS = range(12) if THOROUGH else range(2)


def sniffed_trio() -> bool:
    """Whether the test runs on trio."""
    return anyio.get_cancelled_exc_class().__module__.startswith("trio")


class Nothing(BaseModel):
    """No arguments."""


class Count(BaseModel):
    """How often."""

    times: int


class Tools:
    """Tools that note what becomes of them."""

    def __init__(self) -> None:
        self.returned: dict[str, str] = {}
        self.running: set[str] = set()
        self.started: list[str] = []
        self.cleaned: list[str] = []

    def leftovers(self) -> list[str]:
        """The calls whose functions have not been left."""
        return [f"the function of call {call_id!r}" for call_id in sorted(self.running)]

    def tool(
        self, name: str, function: Callable[..., Any], parameters: type[BaseModel] = Nothing, **fields: Any
    ) -> AgentTool:
        """A tool around ``function(id, params, on_update)``, watched from its start to its end."""

        async def execute(tool_call_id: str, params: Any, *, on_update: Any) -> Any:
            self.started.append(tool_call_id)
            self.running.add(tool_call_id)
            try:
                answer = await function(tool_call_id, params, on_update)
                self.returned[tool_call_id] = answer
                return answer
            finally:
                self.running.discard(tool_call_id)

        return AgentTool(name, f"The tool {name}.", parameters, execute, **fields)

    def echo(self, **fields: Any) -> AgentTool:
        """Reports progress ``times`` times, alternately without waiting and with."""

        async def echo(id: str, params: Count, on_update: Any) -> str:
            for number in range(params.times):
                sent = on_update(number)
                if number % 2:
                    await sent
                await checkpoint()
            return f"echoed {params.times}"

        return self.tool("echo", echo, Count, **fields)

    def fail(self) -> AgentTool:
        """Raises after a step."""

        async def fail(id: str, params: Nothing, on_update: Any) -> str:
            await checkpoint()
            raise ValueError("this tool always fails")

        return self.tool("fail", fail)

    def careful(self) -> AgentTool:
        """Cleans up in a shield, which takes steps and has to be let finish."""

        async def careful(id: str, params: Nothing, on_update: Any) -> str:
            try:
                await checkpoint()
                await checkpoint()
            finally:
                with anyio.CancelScope(shield=True):
                    for _ in range(3):
                        await checkpoint()
                    self.cleaned.append(id)
            return "careful"

        return self.tool("careful", careful)

    def scoped(self) -> AgentTool:
        """Has tasks of its own, a deadline of its own, and cancels them itself."""

        async def scoped(id: str, params: Nothing, on_update: Any) -> str:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)
                tasks.start_soon(checkpoint)
                with anyio.move_on_after(0):
                    await anyio.sleep_forever()
                await checkpoint()
                tasks.cancel_scope.cancel()
            return "scoped"

        return self.tool("scoped", scoped)

    def self_cancelling(self) -> AgentTool:
        """Raises a cancellation that nobody asked for."""

        async def cancel_itself(id: str, params: Nothing, on_update: Any) -> str:
            raise await an_old_cancellation()

        return self.tool("cancel_itself", cancel_itself)


def _scenario(provider: FauxProvider, agent: Agent, tools: Tools | None = None, **fields: Any) -> Scenario:
    if tools is not None:
        fields = {"returned": tools.returned, "leftovers": tools.leftovers, **fields}
    return Scenario(agent=agent, provider=provider, **fields)


def _provider(*responses: Any) -> FauxProvider:
    provider = FauxProvider()
    provider.set_responses(responses)
    return provider


async def an_old_cancellation() -> BaseException:
    """A cancellation that was meant for a scope which has been left since; trio lets nobody make one."""
    caught: BaseException = AssertionError("not cancelled")
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await checkpoint()
        except anyio.get_cancelled_exc_class() as cancelled:
            caught = cancelled
            raise
    return caught


def agent_with(tools: Sequence[AgentTool], *responses: Any) -> Agent:
    """An agent with these tools, whose model gives these responses."""
    return Agent(model=_provider(*responses).model("m"), tools=tools)


# --- what a run can be in the middle of ------------------------------------------------------


def text_only() -> Scenario:
    provider = _provider("A short answer in a few deltas.")
    return _scenario(provider, Agent(model=provider.model("m")))


def long_text() -> Scenario:
    """More deltas than are buffered, so that the producer is held back."""
    provider = _provider("many words " * 26)
    return _scenario(provider, Agent(model=provider.model("m")))


def parallel_tools() -> Scenario:
    """Thinking, text and three calls at once, with updates; one fails; then a second batch with one call."""
    tools = Tools()
    provider = _provider(
        [
            faux_thinking("Let me think.", signature="signed"),
            faux_text("I do three things."),
            faux_tool_call("echo", {"times": 3}, id="first"),
            faux_tool_call("fail", {}, id="second"),
            faux_tool_call("echo", {"times": 1}, id="third"),
        ],
        faux_tool_call("echo", {"times": 0}, id="fourth"),
        "All done.",
    )
    return _scenario(provider, Agent(model=provider.model("m"), tools=[tools.echo(), tools.fail()]), tools)


def sequential_tools() -> Scenario:
    tools = Tools()
    provider = _provider(
        [
            faux_tool_call("echo", {"times": 2}, id="first"),
            faux_tool_call("fail", {}, id="second"),
            faux_tool_call("echo", {"times": 1}, id="third"),
        ],
        "All done.",
    )
    agent = Agent(model=provider.model("m"), tools=[tools.echo(), tools.fail()], tool_execution="sequential")
    return _scenario(provider, agent, tools)


def refused_calls() -> Scenario:
    """An unknown tool, arguments that do not validate, arguments that are no JSON, and more calls than run at once."""
    tools = Tools()
    provider = _provider(
        [
            faux_tool_call("unknown", {}, id="unknown"),
            faux_tool_call("echo", {"times": "many"}, id="invalid"),
            faux_tool_call("echo", '{"times": 3', id="garbled"),
            *(faux_tool_call("echo", {"times": 1}, id=f"good-{n}") for n in range(4)),
        ],
        "All done.",
    )
    agent = Agent(model=provider.model("m"), tools=[tools.echo()], limits=RunLimits(max_parallel_tools=2))
    return _scenario(provider, agent, tools)


def shielded_cleanup() -> Scenario:
    """Tools that clean up in a shield, and one with tasks and deadlines of its own."""
    tools = Tools()
    provider = _provider(
        [
            faux_tool_call("careful", {}, id="first"),
            faux_tool_call("scoped", {}, id="second"),
            faux_tool_call("careful", {}, id="third"),
            faux_tool_call("cancel_itself", {}, id="fourth"),
        ],
        faux_tool_call("careful", {}, id="alone"),
        faux_tool_call("scoped", {}, id="scoped-alone"),
        "All done.",
    )
    names = [tools.careful(), tools.scoped(), tools.self_cancelling()]

    def cleaned_up(ended: EndedRun) -> Sequence[str]:
        careful = {"first", "third", "alone"}
        missing = [call_id for call_id in tools.started if call_id in careful and call_id not in tools.cleaned]
        return [f"the shielded cleanup of call {call_id!r} was cut" for call_id in missing]

    return _scenario(provider, Agent(model=provider.model("m"), tools=names), tools, checks=[cleaned_up])


def cooperative_tools() -> Scenario:
    """Tools that are told of the end and have time to come to theirs."""
    tools = Tools()

    async def work(tool_call_id: str, params: Nothing, *, signal: Any) -> str:
        tools.started.append(tool_call_id)
        for _ in range(4):
            if signal.is_set():
                break
            await checkpoint()
        await checkpoint()
        tools.returned[tool_call_id] = "worked as long as it was let"
        return tools.returned[tool_call_id]

    def came_to_its_end(ended: EndedRun) -> Sequence[str]:
        return [f"call {call_id!r} was cut" for call_id in tools.started if call_id not in tools.returned]

    provider = _provider(
        [faux_tool_call("work", {}, id="first"), faux_tool_call("work", {}, id="second")],
        faux_tool_call("work", {}, id="alone"),
        "All done.",
    )
    tool = AgentTool("work", "Works.", Nothing, work, cancellation="cooperative")
    return _scenario(provider, Agent(model=provider.model("m"), tools=[tool]), tools, checks=[came_to_its_end])


def steered() -> Scenario:
    """Messages arrive before the run, while the model is asked, while it answers, while tools run, and at the end."""
    tools = Tools()
    provider = _provider(
        [faux_text("First."), faux_tool_call("echo", {"times": 2}, id="first")],
        "Second.",
        "Third.",
        *["More."] * 8,
    )
    agent = Agent(model=provider.model("m"), tools=[tools.echo()])
    said: set[str] = set()

    def speak(event: AgentEvent) -> None:
        if event.type in said:
            return
        said.add(event.type)
        if event.type in ("turn_start", "message_update", "tool_execution_update"):
            agent.steer(f"steered at {event.type}")
        if event.type in ("turn_end", "tool_execution_start"):
            agent.follow_up(f"followed at {event.type}")

    agent.steer("queued before")
    agent.subscribe(speak)
    agent.follow_up("in the end")
    return _scenario(provider, agent, tools)


def nested_agents() -> Scenario:
    """A tool that runs an agent with tools of its own, beside a plain tool."""
    tools = Tools()
    inner_provider = _provider(
        [faux_text("Inner."), *(faux_tool_call("echo", {"times": 1}, id=f"inner-{n}") for n in range(2))], "Inner done."
    )
    inner = Agent(model=inner_provider.model("inner"), tools=[tools.echo()])

    async def delegate(id: str, params: Nothing, on_update: Any) -> str:
        return (await inner.prompt("Do a part of it.")).text

    provider = _provider(
        [faux_tool_call("delegate", {}, id="delegated"), faux_tool_call("echo", {"times": 1}, id="plain")],
        "Outer done.",
    )
    agent = Agent(model=provider.model("outer"), tools=[tools.tool("delegate", delegate), tools.echo()])

    def inner_is_settled(ended: EndedRun) -> Sequence[str]:
        busy = ["the inner agent is still running"] if inner.state.is_running else []
        return [*busy, *(f"inner transcript: {fault}" for fault in tool_cycle_faults(inner.state.messages))]

    def inner_results_are_kept(ended: EndedRun) -> Sequence[str]:
        kept = {m.tool_call_id: m.text for m in inner.state.messages if isinstance(m, ToolResultMessage)}
        done = {call_id: text for call_id, text in returned.items() if call_id.startswith("inner")}
        lost = [call_id for call_id, text in done.items() if kept.get(call_id) != text]
        return [f"inner call {call_id!r} had returned, and its result is not kept" for call_id in lost]

    returned = tools.returned
    outer_returned = _Only(returned, ("delegated", "plain"))
    return Scenario(
        agent=agent,
        provider=provider,
        returned=outer_returned,
        leftovers=tools.leftovers,
        checks=[inner_is_settled, inner_results_are_kept],
    )


class _Only(dict[str, str]):
    """The items of another dictionary with some keys, as they are when asked for."""

    def __init__(self, whole: dict[str, str], keys: Sequence[str]) -> None:
        super().__init__()
        self._whole, self._keys = whole, keys

    def items(self) -> Any:
        return [(key, self._whole[key]) for key in self._keys if key in self._whole]


def thread_tools() -> Scenario:
    """Plain functions, which run in worker threads."""
    returned: dict[str, str] = {}

    def count(tool_call_id: str, params: Count, *, on_update: Any) -> str:
        for number in range(params.times):
            on_update(number)
        return f"counted {params.times}"

    provider = _provider(
        [faux_tool_call("count", {"times": 2}, id="first"), faux_tool_call("count", {"times": 1}, id="second")],
        faux_tool_call("count", {"times": 1}, id="alone"),
        "All done.",
    )
    agent = Agent(model=provider.model("m"), tools=[AgentTool("count", "Counts.", Count, count)])
    return _scenario(provider, agent, returned=returned)


def streamed() -> Scenario:
    """``agent.stream()``, read to its end by a consumer in the caller's task."""

    async def consume(agent: Agent) -> RunResult:
        async with agent.stream("Go.") as run:
            async for _ in run:
                await checkpoint()
            return await run.result()

    scenario = parallel_tools()
    scenario.run = consume
    return scenario


def resumed() -> Scenario:
    """``resume()`` from a transcript that ends with a result."""
    scenario = parallel_tools()
    scenario.agent.steer("Go on, please.")
    scenario.run = lambda agent: agent.resume()
    return scenario


def failing_model() -> Scenario:
    """The model breaks off in its second answer, in the middle of a call."""
    tools = Tools()
    broken = FauxResponse(
        [faux_text("Now again."), faux_tool_call("echo", {"times": 100}, id="never")],
        fail_with=ProviderUnavailable("the line is dead"),
        fail_after_deltas=5,
    )
    provider = _provider(faux_tool_call("echo", {"times": 1}, id="first"), broken)
    return _scenario(provider, Agent(model=provider.model("m"), tools=[tools.echo()]), tools, outcome="error")


def cut_answer() -> Scenario:
    """The answer is as long as it may be, and its calls do not run."""
    tools = Tools()
    cut = faux_assistant_message(
        [
            faux_text("Much."),
            faux_tool_call("echo", {"times": 1}, id="whole"),
            faux_tool_call("echo", '{"tim', id="cut"),
        ],
        stop_reason="length",
    )
    provider = _provider(cut, "Shorter.")
    return _scenario(provider, Agent(model=provider.model("m"), tools=[tools.echo()]), tools)


class HandWritten(BaseProvider):
    """The smallest provider there can be: it pushes events with whole messages and sets the result."""

    def __init__(self) -> None:
        super().__init__(provider_id="hand")
        self.requests: list[list[Message]] = []

    async def stream(self, model: Model, messages: list[Message], **_: Any) -> MessageStream:
        self.requests.append(list(messages))
        stream = MessageStream()

        async def produce() -> None:
            text = ""
            for word in ("Written ", "by ", "hand."):
                await checkpoint()
                text += word
                stream.push(StreamEvent("text_delta", delta=word, partial=_said(text)))
            stream.push(StreamEvent("done", partial=_said(text)))
            await checkpoint()
            stream.set_result(_said(text))

        stream.attach_task(produce)
        return stream


def _said(text: str) -> AssistantMessage:
    return AssistantMessage(content=[TextContent(text=text)])


def stored_thread(kept_in: MemoryCheckpointer | None = None) -> Scenario:
    """Three calls at once, kept in a store that takes a step for each of its own."""
    scenario = parallel_tools()
    store = kept_in if kept_in is not None else MemoryCheckpointer()
    assert scenario.provider is not None
    scenario.agent = Agent(
        model=scenario.provider.model("m"),
        tools=scenario.agent.state.tools,
        checkpointer=store,
        thread_id="thread",
    )

    async def stored() -> Sequence[Message]:
        record = await store.load("thread")
        return repaired(record.messages)[0] if record is not None else ()  # results are stored as calls end

    scenario.stored = stored
    return scenario


def hand_written_provider() -> Scenario:
    provider = HandWritten()
    agent = Agent(model=provider.model("m"))
    return Scenario(agent=agent, again=lambda agent: agent.prompt("Again?"), requests=lambda: provider.requests)


SCENARIOS = (
    text_only,
    long_text,
    parallel_tools,
    sequential_tools,
    refused_calls,
    shielded_cleanup,
    cooperative_tools,
    steered,
    nested_agents,
    streamed,
    resumed,
    failing_model,
    cut_answer,
    hand_written_provider,
    stored_thread,
)
"""Every scenario whose steps are the same in each run."""
