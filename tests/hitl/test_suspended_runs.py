"""What is left of a suspended run when something else ends it."""

from __future__ import annotations

import anyio
import pytest

from tests.support.agents import Word, sleeping, transcript_faults

from .restarts import YES, World, batch, by_call

pytestmark = pytest.mark.anyio


async def test_aborting_a_run_gives_up_the_questions_it_has_asked(world: World) -> None:
    only = world.process(batch("gated", "slow"), "done")
    only.agent.state.tools = [*only.agent.state.tools, sleeping("slow", parameters=Word)]

    asked = anyio.Event()
    only.agent.subscribe(lambda event: asked.set() if event.type == "tool_execution_end" else None)
    async with anyio.create_task_group() as tasks:

        async def abort() -> None:
            await asked.wait()
            only.agent.abort("enough")

        tasks.start_soon(abort)
        assert (await only.agent.prompt("go")).outcome == "aborted"
    assert transcript_faults(only.agent.state.messages) == []
    assert only.agent.pending_requests == []
    assert (await only.agent.prompt("go on")).text == "done"


async def test_aborting_a_run_that_goes_on_leaves_the_results_in_order(world: World) -> None:
    ids = by_call((await world.process(batch("gated", "free")).agent.prompt("go")).requests)
    second = world.process("done")
    second.agent.subscribe(lambda event: second.agent.abort() if event.type == "tool_execution_start" else None)
    assert (await second.agent.respond(ids["c1"], YES)).outcome == "aborted"
    assert transcript_faults(second.agent.state.messages) == []
    assert (await second.agent.prompt("go on")).text == "done"


async def test_an_answer_that_was_stored_before_the_process_died_is_used_by_resume(world: World) -> None:
    ids = by_call((await world.process(batch("gated", "free")).agent.prompt("go")).requests)
    await world.store.save_answer("t", ids["c1"], YES)
    last = world.process("done")
    assert (await last.agent.resume()).text == "done"
    assert world.ran == {"free w2": 1, "gated w1": 1}


async def test_a_question_whose_time_is_over_refuses_its_call_when_the_run_is_resumed(world: World) -> None:
    first = world.process(batch("gated", "free"))
    first.channel.default_timeout = 0
    await first.agent.prompt("go")
    last = world.process("done")
    assert (await last.agent.resume()).text == "done"
    assert last.texts == ["The call was not approved. Nobody answered within 0 seconds.", "free w2"]
