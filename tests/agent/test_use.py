"""``agent.use()``: middleware that comes and goes between runs."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio import DuplicateToolName, Message, Middleware
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from tests.hitl.restarts import YES, World, batch, by_call
from tests.support.agents import assert_well_ended, bench, calling, saying
from tests.support.onions import Onions

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


class Tagging(Middleware):
    """Adds its tag to the system prompt."""

    def __init__(self, tag: str, *tools: Any) -> None:
        self.tag = tag
        self.tools = tools

    async def transform_system_prompt(self, system_prompt: str, *, ctx: Any, signal: Any) -> str:
        return system_prompt + self.tag


def prompts(made: Any) -> list[str]:
    return [call.system_prompt for call in made.provider.calls]


async def test_it_holds_from_the_next_run_on_and_so_does_its_undo() -> None:
    made = bench("1", "2", "3", middleware=[Tagging("a")])
    await made.agent.prompt("hi")
    undo = made.agent.use(Tagging("b"))
    await made.agent.prompt("hi")
    undo()
    await made.agent.prompt("hi")
    assert prompts(made) == ["a", "ab", "a"]
    await assert_well_ended(made)


async def test_neither_holds_in_a_run_that_goes_on() -> None:
    undos: list[Any] = [None]

    class Changing(Middleware):
        async def transform_context(self, messages: list[Message], *, ctx: Any, signal: Any) -> list[Message]:
            if undos[0] is None:
                undos[0] = made.agent.use(Tagging("late"))
            elif ctx.turn == 1:
                undos[0]()
            return messages

    made = bench(calling("say"), "1", calling("say"), "2", "3", tools=[saying("say")], middleware=[Changing()])
    for _ in range(3):
        await made.agent.prompt("hi")
    assert prompts(made) == ["", "", "late", "late", ""]


@pytest.mark.parametrize("how", ["stream", "resume"])
async def test_it_holds_for_stream_and_resume_too(how: str) -> None:
    made = bench("1", "2")
    await made.agent.prompt("hi")
    made.agent.use(Tagging("b"))
    if how == "stream":
        async with made.agent.stream("hi") as run:
            await run.result()
    else:
        made.agent.steer("go on")
        await made.agent.resume()
    assert prompts(made) == ["", "b"]


async def test_a_stream_that_was_made_before_has_what_was_there_when_it_is_entered() -> None:
    made = bench("1")
    stream = made.agent.stream("hi")
    made.agent.use(Tagging("b"))
    async with stream as run:
        await run.result()
    assert prompts(made) == ["b"]


async def test_it_holds_for_respond() -> None:
    async with MemoryCheckpointer() as store:
        process = World(store).process(batch("gated"), "done")
        ids = by_call((await process.agent.prompt("go")).requests)
        onions = Onions()
        process.agent.use(onions)
        await process.agent.respond(ids["c1"], YES)
        assert (onions.closed["run"], onions.closed["tool c1"], onions.faults) == (1, 1, [])


async def test_the_same_middleware_twice_is_there_twice_and_each_undo_takes_one_away() -> None:
    made = bench("1", "2", "3", "4")
    same = Tagging("s")
    first, second = made.agent.use(same), made.agent.use(same)
    await made.agent.prompt("hi")
    first()
    first()  # again does nothing
    await made.agent.prompt("hi")
    second()
    await made.agent.prompt("hi")
    assert prompts(made) == ["ss", "s", ""]
    await assert_well_ended(made)


async def test_undos_may_come_in_any_order() -> None:
    made = bench("1", "2", "3")
    undo = {tag: made.agent.use(Tagging(tag)) for tag in "abc"}
    undo["b"]()
    await made.agent.prompt("hi")
    undo["a"]()
    await made.agent.prompt("hi")
    assert prompts(made) == ["ac", "c"]


async def test_it_is_the_innermost() -> None:
    log: list[str] = []
    made = bench("1", middleware=[Onions("a", log)])
    made.agent.use(Onions("b", log))
    await made.agent.prompt("hi")
    assert log == ["a<run", "b<run", "a<call", "b<call", "a<try", "b<try"] + [
        f"{name}>{what}" for what in ("try", "call", "run") for name in ("b", "a")
    ]


async def test_it_brings_its_tools_and_takes_them_away() -> None:
    made = bench(calling("extra"), "1", calling("extra"), "2", tools=[saying("say")])
    undo = made.agent.use(Tagging("", saying("extra")))
    await made.agent.prompt("hi")
    undo()
    await made.agent.prompt("hi")
    assert made.texts[0] == "extra"
    assert "There is no tool named 'extra'" in made.texts[1]
    offered = [[tool.name for tool in call.tools or ()] for call in made.provider.calls]
    assert offered == [["say", "extra"]] * 2 + [["say"]] * 2
    await assert_well_ended(made)


async def test_a_tool_whose_name_is_taken_is_refused_and_leaves_nothing() -> None:
    made = bench("1", "2", tools=[saying("say")], middleware=[Tagging("a", saying("mine"))])
    for taken in ("say", "mine"):
        with pytest.raises(DuplicateToolName, match=taken):
            made.agent.use(Tagging("b", saying(taken)))
    with pytest.raises(TypeError, match="a tool is an AgentTool"):
        made.agent.use(Tagging("b", "no tool"))
    await made.agent.prompt("hi")
    assert prompts(made) == ["a"]
    await assert_well_ended(made)
