"""The tool with which a model asks a person."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import RunLimits, faux_assistant_message, faux_tool_call
from cubepi_anyio.errors import RequestTimedOut, RequestWithdrawn
from cubepi_anyio.hitl import MemoryChannel, ask_user_tool
from cubepi_anyio.testing.people import ScriptedChannel
from cubepi_anyio.types.hitl import AskRequest, Option, Question
from tests.support.agents import Bench, assert_well_ended, bench, saying

pytestmark = pytest.mark.anyio


def asking(channel: Any, *questions: Any, **options: Any) -> Bench:
    """An agent whose model asks these questions."""
    answer = faux_assistant_message([faux_tool_call("ask_user", {"questions": list(questions)}, id="c1")])
    return bench(answer, "done", tools=[ask_user_tool(channel)], **options)


async def test_the_model_reads_each_question_with_its_answer() -> None:
    channel = ScriptedChannel([{"colour": "Red", "sizes": ["S", "L"], "question_3": "soon"}])
    made = asking(
        channel,
        {"prompt": "Which colour?", "key": "colour", "options": ["Red", {"label": "Blue", "description": "cool"}]},
        {"prompt": "Which sizes?", "key": "sizes", "options": ["S", "M", "L"], "multi_select": True},
        {"prompt": "When?"},
        {"prompt": "Anything else?", "required": False},
    )
    assert (await made.agent.prompt("go")).outcome == "completed"
    assert made.texts == ["Which colour?\nRed\n\nWhich sizes?\nS, L\n\nWhen?\nsoon\n\nAnything else?\n(no answer)"]
    assert made.results[0].details == {"answers": {"colour": "Red", "sizes": ["S", "L"], "question_3": "soon"}}
    assert not made.results[0].is_error
    (request,) = channel.requests
    assert isinstance(request.payload, AskRequest)
    assert request.payload.questions[0] == Question(
        key="colour", prompt="Which colour?", options=[Option(label="Red"), Option(label="Blue", description="cool")]
    )
    assert [question.key for question in request.payload.questions] == ["colour", "sizes", "question_3", "question_4"]
    assert (request.tool_call_id, request.run_id) == ("c1", made.results[0].run_id)
    await assert_well_ended(made)


async def test_a_key_that_is_made_up_meets_no_key_that_was_given() -> None:
    channel = ScriptedChannel([{"question_2": "a", "question_2_": "b"}])
    made = asking(channel, {"prompt": "A?", "key": "question_2"}, {"prompt": "B?"})
    await made.agent.prompt("go")
    assert made.texts == ["A?\na\n\nB?\nb"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RequestTimedOut("q", 30), "Nobody answered within 30 seconds."),
        (RequestWithdrawn("q", "the user left"), "The question was withdrawn: the user left"),
    ],
)
async def test_the_model_reads_that_nobody_answered(error: Exception, text: str) -> None:
    made = asking(ScriptedChannel([error]), {"prompt": "Well?"})
    assert (await made.agent.prompt("go")).outcome == "completed"
    assert (made.texts, made.results[0].is_error) == ([text], True)


@pytest.mark.parametrize(
    ("questions", "text"),
    [
        ([], "questions: List should have at least 1 item after validation, not 0"),
        (
            [{"prompt": "A?", "key": "k"}, {"prompt": "B?", "key": "k"}],
            "two questions have the same key; give each a key of its own",
        ),
        ([{"key": "k"}], "questions.0.prompt: Field required"),
    ],
)
async def test_questions_nobody_could_answer_are_refused(questions: list[Any], text: str) -> None:
    channel = ScriptedChannel([])
    made = asking(channel, *questions)
    await made.agent.prompt("go")
    assert made.results[0].is_error
    assert text in made.texts[0]
    assert channel.requests == []


async def test_a_batch_with_a_question_runs_one_call_after_the_other() -> None:
    channel = MemoryChannel()
    calls = [
        faux_tool_call("ask_user", {"questions": [{"prompt": "Well?"}]}, id="c1"),
        faux_tool_call("b", {}, id="c2"),
    ]
    made = bench(faux_assistant_message(calls), "done", tools=[ask_user_tool(channel), saying("b")])

    async def answer() -> None:
        await anyio.wait_all_tasks_blocked()
        assert [label for label in made.labels if "execution" in label] == ["tool_execution_start:c1"]
        channel.answer(channel.pending[0].id, {"question_1": "yes"})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await made.agent.prompt("go")
    assert made.texts == ["Well?\nyes", "b"]


@pytest.mark.virtual_clock
async def test_limits_for_tools_do_not_hurry_a_person() -> None:
    channel = MemoryChannel()
    made = asking(channel, {"prompt": "Well?"}, limits=RunLimits(tool_timeout=1))

    async def answer() -> None:
        await anyio.sleep(100)
        channel.answer(channel.pending[0].id, {"question_1": "yes"})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await made.agent.prompt("go")
    assert made.texts == ["Well?\nyes"]


@pytest.mark.virtual_clock
async def test_a_question_has_the_deadline_of_its_tool() -> None:
    channel = MemoryChannel(default_timeout=1000)
    calls = [faux_tool_call("ask_user", {"questions": [{"prompt": "Well?"}]}, id="c1")]
    made = bench(faux_assistant_message(calls), "done", tools=[ask_user_tool(channel, timeout=5)])
    start = anyio.current_time()
    await made.agent.prompt("go")
    assert anyio.current_time() - start == pytest.approx(5)
    assert made.texts == ["Nobody answered within 5 seconds."]


async def test_aborting_a_run_takes_the_question_back() -> None:
    channel = MemoryChannel()
    made = asking(channel, {"prompt": "Well?"})
    channel.listen(lambda request: made.agent.abort())
    assert (await made.agent.prompt("go")).outcome == "aborted"
    assert channel.pending == []
    await assert_well_ended(made)


async def test_the_tool_can_be_named_and_described() -> None:
    tool = ask_user_tool(ScriptedChannel([]), name="ask_boss", description="Ask the boss.")
    assert (tool.name, tool.description, tool.execution_mode, tool.asks) == (
        "ask_boss",
        "Ask the boss.",
        "sequential",
        True,
    )
    questions = tool.definition.parameters["properties"]["questions"]
    assert (questions["type"], questions["minItems"]) == ("array", 1)
