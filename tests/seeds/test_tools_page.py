"""The page "tools and parallel execution": its examples run, on every backend."""

# pyright: basic, reportAttributeAccessIssue=false, reportOptionalCall=false
# The examples keep the page's own text, which has few annotations.

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field

from cubepi_anyio import (
    Agent,
    AgentTool,
    AgentToolResult,
    FauxProvider,
    TextContent,
    faux_assistant_message,
    faux_tool_call,
)
from tests.support.agents import NoParams, balance_faults, label, saying, tool_of, transcript_faults

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]


def agent_of(*responses: Any, **options: Any) -> tuple[FauxProvider, Agent, list[Any]]:
    provider = FauxProvider()
    provider.set_responses(responses)
    agent = Agent(provider=provider, model=provider.model("test").spec, **options)
    events: list[Any] = []
    agent.subscribe(lambda e, signal=None: events.append(e))
    return provider, agent, events


def calls_of(*calls: tuple[str, dict[str, Any]]) -> Any:
    return faux_assistant_message(
        [faux_tool_call(name, arguments, id=f"c{number}") for number, (name, arguments) in enumerate(calls, 1)]
    )


def results_of(agent: Agent) -> list[Any]:
    return [message for message in agent.state.messages if message.role == "tool_result"]


# --- the make of a tool ----------------------------------------------------------------------


class SearchParams(BaseModel):
    query: str = Field(..., description="自然语言查询")
    limit: int = Field(10, ge=1, le=100)


async def my_search_backend(query: str, limit: int) -> list[str]:
    await anyio.lowlevel.checkpoint()
    return [f"{query} {number}" for number in range(1, min(limit, 2) + 1)]


async def search(tool_call_id, params: SearchParams, *, signal=None, on_update=None):
    results = await my_search_backend(params.query, params.limit)
    return AgentToolResult(
        content=[TextContent(text="\n".join(results))],
        details={"raw_results": results},  # 透传到 ToolResultMessage.details
    )


search_tool = AgentTool(
    name="search",
    description="在内部知识库里搜索。",
    parameters=SearchParams,
    execute=search,
)


async def test_a_tool_is_described_to_the_model_validated_and_executed() -> None:
    provider, agent, _ = agent_of(calls_of(("search", {"query": "python"})), "done", tools=[search_tool])
    await agent.prompt("hi")
    [definition] = provider.calls[0].tools
    assert (definition.name, definition.description) == ("search", "在内部知识库里搜索。")
    properties = definition.parameters["properties"]
    assert properties["query"]["description"] == "自然语言查询"
    assert (properties["limit"]["minimum"], properties["limit"]["maximum"]) == (1, 100)
    assert definition.parameters["required"] == ["query"]
    [result] = results_of(agent)
    assert (result.text, result.is_error) == ("python 1\npython 2", False)
    assert result.details == {"raw_results": ["python 1", "python 2"]}


async def test_arguments_that_break_a_rule_are_an_error_result_the_model_can_read() -> None:
    _, agent, _ = agent_of(calls_of(("search", {"query": "python", "limit": 1000})), "sorry", tools=[search_tool])
    result = await agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "sorry")
    [refused] = results_of(agent)
    assert refused.is_error
    assert refused.text.startswith("limit: ")
    assert "100" in refused.text


# --- parallel by default ---------------------------------------------------------------------


async def test_starts_come_at_once_updates_in_between_and_ends_in_order_of_completion() -> None:
    done = {name: anyio.Event() for name in ("search", "fetch_url", "summarise")}
    after = {"search": "fetch_url", "fetch_url": "summarise"}

    def working(name: str) -> AgentTool:
        async def work(tool_call_id, params, *, signal=None, on_update=None):
            on_update({"tool": name})
            await anyio.wait_all_tasks_blocked()
            if name in after:
                await done[after[name]].wait()
            done[name].set()
            return name

        return tool_of(name, work)

    search_tool, fetch_url_tool, summarise_tool = (working(name) for name in done)
    provider = FauxProvider()
    provider.set_responses([calls_of(*[(name, {}) for name in done]), "done"])
    model = provider.model("test").spec
    agent = Agent(
        provider=provider,
        model=model,
        tools=[search_tool, fetch_url_tool, summarise_tool],
    )
    events: list[Any] = []
    agent.subscribe(events.append)
    await agent.prompt("hi")
    batch = [label(event) for event in events if event.type.startswith("tool_execution")]
    assert batch[:3] == [f"tool_execution_start:c{number}" for number in (1, 2, 3)]
    assert sorted(batch[3:6]) == [f"tool_execution_update:c{number}" for number in (1, 2, 3)]
    assert batch[6:] == [f"tool_execution_end:c{number}:finished" for number in (3, 2, 1)]
    assert [result.text for result in results_of(agent)] == ["search", "fetch_url", "summarise"]


# --- sequential ------------------------------------------------------------------------------


class WriteDbParams(BaseModel):
    record: str


database: list[str] = []


async def write_db(tool_call_id, params: WriteDbParams, *, signal=None, on_update=None):
    database.append(f"{params.record} begins")
    await anyio.lowlevel.checkpoint()
    database.append(f"{params.record} ends")
    return "written"


@pytest.mark.parametrize("how", ["agent", "tool"])
async def test_sequential_execution_for_the_agent_or_by_one_tool(how: str) -> None:
    database.clear()
    write_db_tool = AgentTool(
        name="write_db",
        description="持久化一条记录。",
        parameters=WriteDbParams,
        execute=write_db,
        execution_mode="sequential" if how == "tool" else None,  # 出于安全考虑放弃并行
    )
    calls = calls_of(("write_db", {"record": "a"}), ("say", {}), ("write_db", {"record": "b"}))
    options: dict[str, Any] = {"tool_execution": "sequential"} if how == "agent" else {}
    _, agent, events = agent_of(calls, "done", tools=[write_db_tool, saying("say")], **options)
    await agent.prompt("hi")
    assert database == ["a begins", "a ends", "b begins", "b ends"]
    batch = [label(event).rpartition(":finished")[0] or label(event) for event in events if "execution" in event.type]
    assert batch == [f"tool_execution_{what}:c{number}" for number in (1, 2, 3) for what in ("start", "end")]


# --- progress --------------------------------------------------------------------------------


class Page:
    def __init__(self, url: str) -> None:
        self.url = url


pages = [Page("a"), Page("b"), Page("c")]
processed: list[str] = []


async def fetch_pages(query: str) -> list[Page]:
    await anyio.lowlevel.checkpoint()
    return pages


async def process(page: Page) -> None:
    await anyio.lowlevel.checkpoint()
    processed.append(page.url)


async def slow_search(tool_call_id, params, *, signal=None, on_update=None):
    for i, page in enumerate(await fetch_pages(params.query)):
        if signal and signal.is_set():
            break
        if on_update:
            on_update({"progress": i, "total": len(pages), "url": page.url})
        await process(page)
    return AgentToolResult(content=[TextContent(text="done")])


async def test_progress_is_told_without_await_and_stays_out_of_the_context() -> None:
    processed.clear()
    slow = AgentTool(name="slow_search", description="searches", parameters=SearchParams, execute=slow_search)
    provider, agent, events = agent_of(calls_of(("slow_search", {"query": "x"})), "done", tools=[slow])
    await agent.prompt("hi")
    updates = [event.partial_result for event in events if event.type == "tool_execution_update"]
    assert updates == [{"progress": number, "total": 3, "url": url} for number, url in enumerate("abc")]
    assert processed == ["a", "b", "c"]
    assert "progress" not in str([message.model_dump() for message in provider.calls[-1].messages])


# --- cancelling ------------------------------------------------------------------------------

big_dataset = range(1_000_000)


@pytest.mark.parametrize("cancellation", ["immediate", "cooperative"])
async def test_a_long_running_tool_stops_at_an_abort(cancellation: Any) -> None:
    chunks: list[int] = []

    async def process_chunk(chunk: int) -> None:
        chunks.append(chunk)
        await anyio.lowlevel.checkpoint()
        if len(chunks) == 10:
            agent.abort("enough")

    async def long_running(tool_call_id, params, *, signal=None, on_update=None):
        for chunk in big_dataset:
            if signal and signal.is_set():
                return AgentToolResult(content=[TextContent(text="cancelled")])
            await process_chunk(chunk)
        return None

    tool = tool_of("long_running", long_running, cancellation=cancellation)
    provider, agent, events = agent_of(calls_of(("long_running", {})), "never", tools=[tool])
    result = await agent.prompt("hi")
    assert (result.outcome, result.abort_reason, provider.call_count) == ("aborted", "enough", 1)
    assert chunks == list(range(10))
    [kept] = results_of(agent)
    assert "cancelled" in kept.text
    assert balance_faults(events) == []
    assert transcript_faults(agent.state.messages) == []


async def test_one_big_await_is_bounded_by_a_deadline_in_the_tool() -> None:
    async def bounded(tool_call_id, params, *, signal=None, on_update=None):
        with anyio.fail_after(0.01):
            await anyio.sleep_forever()

    async def moved_on(tool_call_id, params, *, signal=None, on_update=None):
        with anyio.move_on_after(0.01):
            await anyio.sleep_forever()
        return "nothing found in time"

    tools = [tool_of("bounded", bounded), tool_of("moved_on", moved_on)]
    _, agent, _ = agent_of(calls_of(("bounded", {}), ("moved_on", {})), "done", tools=tools)
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert [(result.text, result.is_error) for result in results_of(agent)] == [
        ("TimeoutError", True),
        ("nothing found in time", False),
    ]


# --- errors ----------------------------------------------------------------------------------


async def test_an_error_is_raised_or_returned() -> None:
    async def raising(tool_call_id, params, *, signal=None, on_update=None):
        raise ValueError("没有这个页面")

    async def returning(tool_call_id, params, *, signal=None, on_update=None):
        return AgentToolResult(
            content=[TextContent(text="超出限流,60 秒后再试")],
            is_error=True,
        )

    tools = [tool_of("raising", raising), tool_of("returning", returning)]
    provider, agent, _ = agent_of(calls_of(("raising", {}), ("returning", {})), "adapted", tools=tools)
    result = await agent.prompt("hi")
    assert result.text == "adapted"
    assert [(result.text, result.is_error) for result in results_of(agent)] == [
        ("没有这个页面", True),
        ("超出限流,60 秒后再试", True),
    ]
    sent = [message for message in provider.calls[-1].messages if message.role == "tool_result"]
    assert [message.is_error for message in sent] == [True, True]


# --- terminate -------------------------------------------------------------------------------


class Answer(BaseModel):
    answer: str


saved: list[str] = []


def save_answer(answer: str) -> None:
    saved.append(answer)


async def submit_final_answer(tool_call_id, params, *, signal=None, on_update=None):
    save_answer(params.answer)
    return AgentToolResult(
        content=[TextContent(text="submitted")],
        terminate=True,
    )


@pytest.mark.parametrize("others", [0, 1])
async def test_terminate_ends_the_run_only_if_every_result_says_so(others: int) -> None:
    saved.clear()
    submit = AgentTool(name="submit", description="submits", parameters=Answer, execute=submit_final_answer)
    calls = calls_of(("submit", {"answer": "42"}), *[("say", {})] * others)
    provider, agent, events = agent_of(calls, "went on", tools=[submit, saying("say")])
    result = await agent.prompt("hi")
    assert (saved, provider.call_count) == (["42"], 1 + others)
    assert result.text == ("went on" if others else "")
    assert [event.type for event in events[-2:]] == ["turn_end", "agent_end"]


# --- traps the page names, which are none here -----------------------------------------------


async def test_keywords_that_the_function_does_not_declare_are_not_passed() -> None:
    async def bare(tool_call_id, params):
        return "ok"

    _, agent, _ = agent_of(calls_of(("bare", {})), "done", tools=[tool_of("bare", bare)])
    await agent.prompt("hi")
    assert [result.text for result in results_of(agent)] == ["ok"]


async def test_a_model_that_wants_a_tool_although_there_are_none_is_told() -> None:
    _, agent, _ = agent_of(calls_of(("search", {})), "I see", tools=[])
    result = await agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "I see")
    [refused] = results_of(agent)
    assert (refused.is_error, refused.text) == (True, "There is no tool named 'search'. The tools are: none.")


class Strict(BaseModel):
    name: str = Field(..., min_length=1)


async def test_a_constraint_is_shown_to_the_model_and_its_breach_is_an_error_result() -> None:
    provider, agent, _ = agent_of(calls_of(("say", {"name": ""})), "done", tools=[saying("say", parameters=Strict)])
    await agent.prompt("hi")
    assert provider.calls[0].tools[0].parameters["properties"]["name"]["minLength"] == 1
    [refused] = results_of(agent)
    assert refused.is_error
    assert refused.text.startswith("name: ")


def test_a_tool_without_parameters_has_an_empty_schema() -> None:
    assert saying("say").definition.parameters.get("properties", {}) == {}
    assert NoParams.model_json_schema()["type"] == "object"
