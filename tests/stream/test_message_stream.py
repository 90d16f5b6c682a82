"""How a stream ends, what its result is, and who may read it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio.errors import IncompleteStream, ProviderUnavailable, StreamMisuse
from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.stream import MessageDraft, MessageStream
from cubepi_anyio.types import AssistantMessage, TextContent, ThinkingContent, ToolCall, Usage

pytestmark = pytest.mark.anyio


def delta(text: str, index: int | None = None) -> StreamEvent:
    return StreamEvent("text_delta", index, text)


def saying(text: str, **fields: Any) -> AssistantMessage:
    return AssistantMessage(content=[TextContent(text=text)], **fields)


async def played(produce: Any) -> tuple[list[StreamEvent], AssistantMessage, MessageStream]:
    """All events of a stream, its result, and the stream."""
    stream = MessageStream(produce)
    async with stream:
        events = [event async for event in stream]
        message = await stream.result()
    return events, message, stream


# --- endings ---------------------------------------------------------------------------------


async def test_a_producer_that_raises_before_its_first_event_is_an_error_event() -> None:
    failure = ValueError("no backend")

    async def produce() -> None:
        raise failure

    events, message, stream = await played(produce)
    assert [event.type for event in events] == ["error"]
    assert events[0].error is failure
    assert events[0].error_message == "no backend"
    assert message == AssistantMessage(stop_reason="error", error_message="no backend", error_type="ValueError")
    assert stream.error is failure


async def test_a_producer_that_raises_keeps_what_had_arrived() -> None:
    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream)
        draft.writer.start(usage=Usage(input_tokens=7))
        await draft.thinking("unsigned")
        await draft.text("kept")
        index = await draft.tool_call("1", "t")
        await draft.arguments(index, '{"a": 1}')
        raise ProviderUnavailable("gone", status_code=503)

    events, message, stream = await played(produce)
    assert [event.type for event in events].count("error") == 1
    assert events[-1].type == "error"
    assert message.content == [TextContent(text="kept")]
    assert (message.stop_reason, message.error_type) == ("error", "ProviderUnavailable")
    assert message.error_message == "gone (HTTP 503)"
    assert message.usage == Usage(input_tokens=7)
    assert isinstance(stream.error, ProviderUnavailable)


async def test_an_error_without_a_text_is_named() -> None:
    async def produce() -> None:
        raise TimeoutError

    events, message, _ = await played(produce)
    assert events[-1].error_message == "TimeoutError"
    assert message.error_message == "TimeoutError"


async def test_a_stream_without_a_terminal_event_and_without_a_result_is_an_error() -> None:
    async def produce(stream: MessageStream) -> None:
        await stream.send(delta("half"))

    events, message, stream = await played(produce)
    assert [event.type for event in events] == ["text_delta", "error"]
    assert isinstance(stream.error, IncompleteStream)
    assert (message.text, message.stop_reason, message.error_type) == ("half", "error", "IncompleteStream")


async def test_a_producer_that_does_nothing_is_an_error() -> None:
    async def produce() -> None:
        return None

    events, message, _ = await played(produce)
    assert [event.type for event in events] == ["error"]
    assert message.stop_reason == "error"


async def test_done_without_a_result_gives_the_message_the_stream_kept() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("start", partial=AssistantMessage(model_id="m", usage=Usage(input_tokens=1))))
        await stream.send(delta("Hel"))
        await stream.send(delta("lo"))
        await stream.send(StreamEvent("done", stop_reason="length", usage=Usage(output_tokens=2)))

    events, message, stream = await played(produce)
    assert [event.type for event in events] == ["start", "text_delta", "text_delta", "done"]
    assert message == saying("Hello", model_id="m", stop_reason="length", usage=Usage(output_tokens=2))
    assert stream.error is None


async def test_done_after_a_call_means_tool_use_unless_the_provider_says_otherwise() -> None:
    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream)
        await draft.tool_call("1", "t", {"a": 1})
        await draft.done()

    _, message, _ = await played(produce)
    assert message.stop_reason == "tool_use"
    assert message.content == [ToolCall(id="1", name="t", arguments={"a": 1})]


async def test_a_result_without_done_gets_its_done() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.set_result(saying("whole"))

    events, message, _ = await played(produce)
    assert [event.type for event in events] == ["done"]
    assert message == saying("whole")


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
async def test_a_failed_result_without_a_terminal_event_gets_an_error_event(stop_reason: str) -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(delta("kept"))
        stream.set_result(AssistantMessage(stop_reason=stop_reason, error_message="why"))

    events, message, _ = await played(produce)
    assert [event.type for event in events] == ["text_delta", "error"]
    assert events[-1].error_message == "why"
    assert message == saying("kept", stop_reason=stop_reason, error_message="why")


async def test_a_failure_after_the_result_was_set_is_no_success() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(delta("text"))
        stream.push(StreamEvent("toolcall_start", 1, block=ToolCall(id="1", name="t")))
        stream.set_result(
            AssistantMessage(
                content=[TextContent(text="text"), ToolCall(id="1", name="t")],
                stop_reason="tool_use",
                usage=Usage(output_tokens=3),
            )
        )
        raise ValueError("cut")

    _, message, _ = await played(produce)
    assert message == saying(
        "text", stop_reason="error", error_message="cut", error_type="ValueError", usage=Usage(output_tokens=3)
    )


async def test_an_error_event_without_a_reason_says_so() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("error"))

    _, message, stream = await played(produce)
    assert (message.stop_reason, message.error_message) == ("error", "the provider gave no reason")
    assert stream.error is None


async def test_nothing_is_delivered_after_a_terminal_event() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(delta("a"))
        stream.push(StreamEvent("done"))
        stream.push(delta("b"))
        await stream.send(StreamEvent("error", error_message="late"))
        stream.fail(ValueError("late"))
        raise ValueError("later")

    events, message, _ = await played(produce)
    assert [event.type for event in events] == ["text_delta", "done"]
    assert (message.text, message.stop_reason) == ("a", "stop")


async def test_the_first_result_counts() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("done"))
        stream.set_result(saying("first"))
        stream.set_result(saying("second"))

    assert (await played(produce))[1].text == "first"


async def test_a_result_set_right_after_a_drafts_done_counts() -> None:
    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream)
        await draft.text("drafted")
        await draft.done()
        stream.set_result(saying("said"))

    _, message, _ = await played(produce)
    assert message.text == "said"
    stream = MessageStream(produce)
    async with stream:
        async for event in stream:
            if event.is_terminal:
                break
        assert (await stream.result()).text == "said"


async def test_a_provider_that_builds_messages_may_set_its_result_some_time_after_done() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("text_delta", delta="a", partial=saying("a")))
        stream.push(StreamEvent("done"))
        await anyio.wait_all_tasks_blocked()
        stream.set_result(saying("a", usage=Usage(output_tokens=1)))

    _, message, _ = await played(produce)
    assert message.usage == Usage(output_tokens=1)


@pytest.mark.virtual_clock
async def test_a_provider_that_builds_messages_and_never_sets_a_result_is_waited_for_a_second() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("text_delta", delta="a", partial=saying("a")))
        stream.push(StreamEvent("done"))
        await anyio.sleep_forever()

    started = anyio.current_time()
    async with MessageStream(produce) as stream:
        message = await stream.result()
        assert anyio.current_time() - started == pytest.approx(1)
    assert message == saying("a")


async def test_two_tasks_may_ask_for_the_result_of_an_ended_stream() -> None:
    may_settle = anyio.Event()
    results: list[AssistantMessage] = []

    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("text_delta", delta="a", partial=saying("a")))
        stream.push(StreamEvent("done"))
        await may_settle.wait()
        stream.set_result(saying("settled"))

    async def ask(stream: MessageStream) -> None:
        results.append(await stream.result())

    with anyio.fail_after(5):
        async with MessageStream(produce) as stream:
            async for _ in stream:
                pass
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, stream)
                tasks.start_soon(ask, stream)
                await anyio.wait_all_tasks_blocked()
                may_settle.set()
    assert [message.text for message in results] == ["settled", "settled"]


async def test_a_stream_nobody_entered_runs_to_its_end_when_its_result_is_asked_for() -> None:
    async def produce(stream: MessageStream) -> None:
        for _ in range(200):
            await stream.send(delta("ab"))
        await stream.send(StreamEvent("done"))

    stream = MessageStream(produce)
    assert (await stream.result()).text == "ab" * 200
    assert (await stream.result()).text == "ab" * 200
    assert stream.message.text == "ab" * 200


async def test_leaving_early_gives_an_aborted_message_with_what_was_read() -> None:
    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream)
        await draft.text("one ")
        await draft.text("two ")
        await draft.tool_call("1", "t")
        await draft.done()

    stream = MessageStream(produce)
    async with stream:
        async for event in stream:
            if event.type == "text_delta":
                break
    assert await stream.result() == saying("one ", stop_reason="aborted", usage=Usage())
    assert stream.message.text == "one "


async def test_leaving_before_the_first_event_gives_an_empty_aborted_message() -> None:
    started = False

    async def produce(stream: MessageStream) -> None:
        nonlocal started
        started = True
        await stream.send(delta("never"))

    async with MessageStream(produce) as stream:
        pass
    assert not started
    assert await stream.result() == AssistantMessage(stop_reason="aborted")
    assert stream.message == AssistantMessage()


async def test_the_message_so_far_is_what_the_consumer_has_read() -> None:
    async def produce(stream: MessageStream) -> None:
        for letter in "abc":
            stream.push(delta(letter))
        stream.push(StreamEvent("done"))

    seen: list[str] = []
    async with MessageStream(produce) as stream:
        async for event in stream:
            assert event.partial is not None
            assert event.partial.text == stream.message.text
            seen.append(stream.message.text)
    assert seen == ["a", "ab", "abc", "abc"]


async def test_broken_message_judges_by_what_was_read_not_by_what_was_sent() -> None:
    call, whole = ToolCall(id="1", name="t"), ToolCall(id="1", name="t", arguments={"a": 1})
    stream = MessageStream()
    stream.push(StreamEvent("toolcall_start", 0, partial=AssistantMessage(content=[call])))
    stream.push(StreamEvent("toolcall_delta", 0, '{"a": 1}', AssistantMessage(content=[call])))
    stream.push(StreamEvent("toolcall_end", 0, partial=AssistantMessage(content=[whole])))
    await anext(stream)
    await anext(stream)
    assert stream.broken_message().content == []
    await anext(stream)
    assert stream.broken_message().content == [whole]


# --- given partials --------------------------------------------------------------------------


async def test_a_given_partial_is_authoritative() -> None:
    partials = [saying("Hel"), saying("Help"), saying("entirely different")]

    async def produce(stream: MessageStream) -> None:
        for partial in partials:
            await stream.send(StreamEvent("text_delta", delta="ignored", partial=partial))
        await stream.send(StreamEvent("done"))

    events, message, _ = await played(produce)
    assert [event.partial for event in events[:3]] == partials
    assert all(event.partial is partial for event, partial in zip(events, partials, strict=False))
    assert message == partials[-1]


async def test_plain_deltas_go_on_from_a_given_partial() -> None:
    async def produce(stream: MessageStream) -> None:
        await stream.send(delta("lost"))
        await stream.send(StreamEvent("text_delta", delta="x", partial=saying("Hel", response_id="r")))
        await stream.send(delta("lo "))
        await stream.send(delta("wo", 0))
        await stream.send(StreamEvent("text_delta", delta="x", partial=saying("Hello wor", response_id="s")))
        await stream.send(delta("ld"))
        await stream.send(StreamEvent("text_end", 0))
        await stream.send(StreamEvent("done"))

    events, message, _ = await played(produce)
    assert [event.partial.text for event in events if event.partial] == [
        "lost",
        "Hel",
        "Hello ",
        "Hello wo",
        "Hello wor",
        "Hello world",
        "Hello world",
        "Hello world",
    ]
    assert message == saying("Hello world", response_id="s")


async def test_a_given_end_closes_the_block_for_later_deltas() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("text_delta", delta="one", partial=saying("one")))
        stream.push(StreamEvent("text_end", partial=saying("one")))
        stream.push(delta("two"))
        stream.push(StreamEvent("done"))

    assert (await played(produce))[1].content == [TextContent(text="one"), TextContent(text="two")]


async def test_a_signature_in_a_given_partial_survives_a_failure() -> None:
    thought = AssistantMessage(content=[ThinkingContent(thinking="deep", signature="s")])

    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("thinking_delta", 0, "deep", thought))
        stream.push(delta("said", 1))
        raise ValueError("cut")

    assert (await played(produce))[1].content == [*thought.content, TextContent(text="said")]


async def test_a_call_that_was_open_when_a_partial_was_given_is_still_open() -> None:
    call = ToolCall(id="1", name="t")

    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("toolcall_start", 0, block=call))
        stream.push(StreamEvent("toolcall_delta", 0, '{"a"'))
        stream.push(StreamEvent("text_delta", 1, "x", AssistantMessage(content=[call, TextContent(text="x")])))
        stream.push(delta("y", 1))
        raise ValueError("cut")

    assert (await played(produce))[1].content == [TextContent(text="xy")]


async def test_a_done_with_its_own_partial_gives_that_message() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(delta("draft"))
        stream.push(StreamEvent("done", partial=saying("final")))

    assert (await played(produce))[1] == saying("final")


# --- the producer ----------------------------------------------------------------------------


class _Provider:
    async def method(self, stream: MessageStream) -> None:
        stream.push(StreamEvent("done"))


async def _two(stream: MessageStream, marker: str) -> None:
    stream.push(delta(marker))
    stream.push(StreamEvent("done"))


def _returns_an_awaitable(stream: MessageStream) -> Awaitable[None]:
    return _two(stream, "y")


def _plain(stream: MessageStream) -> None:
    stream.push(StreamEvent("done"))


PRODUCERS: list[Any] = [_Provider().method, functools.partial(_two, marker="x"), _plain, _returns_an_awaitable]


@pytest.mark.parametrize("produce", PRODUCERS)
async def test_any_callable_that_takes_a_stream_may_produce(produce: Any) -> None:
    events, message, _ = await played(produce)
    assert events[-1].type == "done"
    assert message.stop_reason == "stop"


async def test_a_producer_whose_parameters_have_defaults_is_called_without_the_stream() -> None:
    given: list[object] = []

    async def produce(model: str = "default") -> None:
        given.append(model)

    await played(produce)
    assert given == ["default"]


async def test_attach_task_takes_the_function_and_runs_it_when_the_stream_is_entered() -> None:
    stream = MessageStream()
    runs: list[str] = []

    async def produce() -> None:
        runs.append("run")
        stream.push(delta("a"))
        stream.push(StreamEvent("done"))

    stream.attach_task(produce)
    await anyio.wait_all_tasks_blocked()
    assert runs == []
    async with stream:
        assert [event.type async for event in stream] == ["text_delta", "done"]
    assert runs == ["run"]


@pytest.mark.parametrize("give", [MessageStream, lambda task: MessageStream().attach_task(task)])
async def test_a_coroutine_in_place_of_the_function_is_refused(give: Callable[[Any], object]) -> None:
    async def produce() -> None:
        raise AssertionError("never runs")

    with pytest.raises(StreamMisuse, match="takes the async function itself, not coroutine"):
        give(produce())


async def test_a_task_in_place_of_the_function_is_refused(anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("tasks as objects are asyncio's")
    import asyncio  # noqa: PLC0415

    async def produce() -> None:
        return None

    task = asyncio.create_task(produce())
    with pytest.raises(StreamMisuse, match="takes the async function itself, not Task"):
        MessageStream().attach_task(task)  # type: ignore[reportArgumentType]
    await task


async def test_a_stream_has_one_producer_and_gets_it_before_it_is_entered() -> None:
    async def produce() -> None:
        return None

    with pytest.raises(StreamMisuse, match="has a producer already"):
        MessageStream(produce).attach_task(produce)
    async with MessageStream() as stream:
        with pytest.raises(StreamMisuse, match="before the stream is entered"):
            stream.attach_task(produce)


async def test_a_stream_is_entered_once() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("done"))

    stream = MessageStream(produce)
    async with stream:
        pass
    with pytest.raises(StreamMisuse, match="entered once"):
        async with stream:
            pass


def test_a_stream_can_be_made_and_filled_outside_of_any_event_loop() -> None:
    stream = MessageStream(_Provider().method)
    stream.push(delta("early"))
    assert stream.message == AssistantMessage()
    MessageStream().set_result(saying("x"))


async def test_what_was_pushed_before_the_stream_was_entered_is_delivered_first() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(delta("b"))
        stream.push(StreamEvent("done"))

    stream = MessageStream(produce)
    stream.push(delta("a"))
    async with stream:
        assert [event.delta async for event in stream] == ["a", "b", None]


# --- the consumer ----------------------------------------------------------------------------


async def test_iterating_again_after_the_end_ends_again() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("done"))

    stream = MessageStream(produce)
    async with stream:
        assert len([event async for event in stream]) == 1
        assert [event async for event in stream] == []
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert [event async for event in stream] == []


async def test_two_tasks_that_iterate_at_once_are_an_error_for_the_second() -> None:
    go_on = anyio.Event()
    errors: list[StreamMisuse] = []
    seen: list[str] = []

    async def produce(stream: MessageStream) -> None:
        await go_on.wait()
        stream.push(delta("a"))
        stream.push(StreamEvent("done"))

    async def first(stream: MessageStream) -> None:
        seen.extend([event.type async for event in stream])

    with anyio.fail_after(5):
        async with MessageStream(produce) as stream, anyio.create_task_group() as tasks:
            tasks.start_soon(first, stream)
            await anyio.wait_all_tasks_blocked()
            for ask in (stream.__anext__, stream.result):
                with pytest.raises(StreamMisuse, match="single consumer") as caught:
                    await ask()
                errors.append(caught.value)
            go_on.set()
    assert len(errors) == 2
    assert seen == ["text_delta", "done"]


async def test_iterating_a_stream_that_was_not_entered_says_what_to_do() -> None:
    with pytest.raises(StreamMisuse, match="async with stream"):
        await anext(MessageStream(_Provider().method))


async def test_iterating_a_stream_that_was_left_early_is_an_error() -> None:
    async def produce() -> None:
        await anyio.sleep_forever()

    async with MessageStream(produce) as stream:
        pass
    with pytest.raises(StreamMisuse, match="left before its end"):
        await anext(stream)


async def test_a_consumer_in_another_task_hears_that_the_stream_was_left() -> None:
    errors: list[str] = []

    async def produce() -> None:
        await anyio.sleep_forever()

    async def consume(stream: MessageStream) -> None:
        try:
            await anext(stream)
        except StreamMisuse as error:
            errors.append(str(error))

    with anyio.fail_after(5):
        for attached in (produce, None):
            async with anyio.create_task_group() as tasks, MessageStream(attached) as stream:
                tasks.start_soon(consume, stream)
                await anyio.wait_all_tasks_blocked()
    assert len(errors) == 2
    assert all("left before its end" in error for error in errors)


async def test_a_deadline_around_one_step_loses_no_event() -> None:
    go_on = anyio.Event()

    async def produce(stream: MessageStream) -> None:
        await go_on.wait()
        for letter in "abc":
            await stream.send(delta(letter))
        await stream.send(StreamEvent("done"))

    async with MessageStream(produce) as stream:
        for _ in range(3):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await anext(stream)
            assert scope.cancelled_caught
        go_on.set()
        assert [event.delta async for event in stream] == ["a", "b", "c", None]
