"""Tokens are counted once: read from the cache, written to it, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.providers import FauxProvider, faux_assistant_message, faux_thinking, faux_tool_call
from cubepi_anyio.types import ImageContent, Message, Model, TextContent, ToolDefinition, ToolResultMessage, Usage
from cubepi_anyio.types import UserMessage as User

pytestmark = pytest.mark.anyio

MODEL = Model(id="m", provider="faux")


def said(text: str) -> User:
    return User(content=[TextContent(text=text)])


async def usage_of(provider: FauxProvider, messages: list[Message], model: Model = MODEL, **request: Any) -> Usage:
    provider.append_responses(["ok"])
    usage = (await provider.generate(model, messages, **request)).usage
    assert usage is not None
    return usage


async def test_output_is_a_token_for_four_characters_of_text_thinking_names_and_arguments() -> None:
    provider = FauxProvider()
    provider.set_responses([[faux_thinking("t" * 10), "x" * 20, faux_tool_call("add", {"a": 1})]])
    usage = (await provider.generate(MODEL, [])).usage
    assert usage == Usage(output_tokens=11, reasoning_tokens=3)  # 10 + 20 + 3 + 8 = 41 characters


async def test_a_usage_given_with_the_message_replaces_the_count() -> None:
    given_usage = Usage(input_tokens=100, output_tokens=50)
    provider = FauxProvider()
    provider.set_responses([faux_assistant_message("Hi", usage=given_usage)])
    assert (await provider.generate(MODEL, [said("hi")])).usage == given_usage


async def test_a_first_prompt_is_written_and_a_longer_one_reads_it_back() -> None:
    provider = FauxProvider()
    messages: list[Message] = [said("x" * 400)]
    first = await usage_of(provider, messages, system_prompt="s" * 40)
    assert (first.input_tokens, first.cache_read_tokens, first.cache_write_tokens) == (0, 0, 111)  # 10 + 101
    messages += [faux_assistant_message("y" * 40), said("z" * 36)]
    second = await usage_of(provider, messages, system_prompt="s" * 40)
    assert second.cache_read_tokens == first.context_tokens
    assert second.cache_write_tokens == 13 + 10
    assert second.input_tokens == 0


async def test_the_same_prompt_again_is_read_whole() -> None:
    provider = FauxProvider()
    first = await usage_of(provider, [said("x" * 400)])
    again = await usage_of(provider, [said("x" * 400)])
    assert (again.cache_read_tokens, again.cache_write_tokens) == (first.context_tokens, 0)


async def test_a_prompt_that_differs_in_the_middle_reads_up_to_there() -> None:
    provider = FauxProvider()
    beginning = said("a" * 40)
    await usage_of(provider, [beginning, said("b" * 40), said("c" * 40)])
    usage = await usage_of(provider, [beginning, said("B" * 40), said("c" * 40)])
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (11, 22)
    whole = await usage_of(provider, [beginning, said("b" * 40), said("c" * 40)])
    assert (whole.cache_read_tokens, whole.cache_write_tokens) == (33, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"system_prompt": "Be long."},
        {"tools": [ToolDefinition(name="add")]},
        {"model": Model(id="other", provider="faux")},
    ],
    ids=["system prompt", "tools", "model"],
)
async def test_what_stands_before_the_messages_decides_whether_they_can_be_read(change: dict[str, Any]) -> None:
    provider = FauxProvider()
    request: dict[str, Any] = {"system_prompt": "Be brief.", "tools": [ToolDefinition(name="sub")]}
    await usage_of(provider, [said("x" * 40)], **request)
    usage = await usage_of(provider, [said("x" * 40)], **{**request, **change})
    assert usage.cache_read_tokens == 0
    assert usage.cache_write_tokens == usage.context_tokens > 0


async def test_conversations_that_take_turns_do_not_push_each_other_out() -> None:
    provider = FauxProvider()
    one: list[Message] = [said("one " * 10)]
    two: list[Message] = [said("two " * 10)]
    for messages in (one, two):
        await usage_of(provider, messages)
        messages.append(said("more"))
    assert [(await usage_of(provider, messages)).cache_read_tokens for messages in (one, two)] == [11, 11]


async def test_a_cleared_cache_reads_nothing() -> None:
    provider = FauxProvider()
    first = await usage_of(provider, [said("x" * 400)])
    provider.clear_prompt_cache()
    assert await usage_of(provider, [said("x" * 400)]) == first


async def test_without_a_cache_every_prompt_is_input() -> None:
    provider = FauxProvider(prompt_cache=False)
    for _ in range(2):
        usage = await usage_of(provider, [said("x" * 400)])
        assert usage == Usage(input_tokens=101, output_tokens=1)
    provider.clear_prompt_cache()


async def test_a_refused_request_is_not_cached() -> None:
    provider = FauxProvider()
    provider.set_responses([ConnectionError("down")])
    await provider.generate(MODEL, [said("x" * 400)])
    assert (await usage_of(provider, [said("x" * 400)])).cache_read_tokens == 0


async def test_calls_results_and_pictures_count() -> None:
    messages: list[Message] = [
        faux_assistant_message([faux_thinking("t" * 4), faux_tool_call("add", {"a": 1}, id="c1")]),
        ToolResultMessage(tool_call_id="c1", tool_name="add", content=[TextContent(text="x" * 9)]),
        User(content=[ImageContent(source="aGk=", media_type="image/png")]),
    ]
    # assistant 9 + 4 + 3 + 8 = 24, tool_result 11 + 9 = 20, user 4 and a picture
    assert (await usage_of(FauxProvider(), messages)).context_tokens == 6 + 5 + 1001


class MeasuredList(list[Any]):
    """A list that counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()


async def test_a_message_is_measured_once_in_a_conversation_that_grows() -> None:
    provider = FauxProvider()
    contents = [MeasuredList([TextContent(text="x" * 40)]) for _ in range(50)]
    messages: list[Message] = []
    for content in contents:
        messages.append(User.model_construct(content=content))
        await usage_of(provider, messages)
    assert [content.times for content in contents] == [1] * 50


@given(turns=st.lists(st.lists(st.sampled_from(["a", "bb" * 9, "c" * 70]), max_size=4), min_size=1, max_size=8))
async def test_the_parts_of_a_prompt_always_add_up_to_what_it_costs_without_a_cache(turns: list[list[str]]) -> None:
    cached, uncached = FauxProvider(), FauxProvider(prompt_cache=False)
    for turn in turns:
        messages: list[Message] = [said(text) for text in turn]
        parts, whole = await usage_of(cached, messages), await usage_of(uncached, messages)
        assert parts.input_tokens + parts.cache_read_tokens + parts.cache_write_tokens == whole.input_tokens
