"""Asking for an object: by a tool and by the vendor's schema, what is said about one that does not fit."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Literal, assert_type

import anyio
import pytest
from pydantic import BaseModel, Field, field_validator

from cubepi_anyio import (
    AssistantMessage,
    FauxResponse,
    Model,
    ProviderUnavailable,
    RateLimited,
    StreamOptions,
    ToolDefinitionError,
    ToolResultMessage,
    UserMessage,
    faux_assistant_message,
    faux_tool_call,
)
from cubepi_anyio.errors import ProviderError, StructuredOutputError
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.anthropic import request as anthropic
from cubepi_anyio.providers.base import ResponseSchema
from cubepi_anyio.providers.composed.fallback import FallbackModel
from cubepi_anyio.providers.composed.race import RaceModel
from cubepi_anyio.providers.composed.retry import RetryModel, RetryPolicy
from cubepi_anyio.providers.openai import OpenAIProvider
from cubepi_anyio.providers.openai_chat import request as chat
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider
from cubepi_anyio.providers.openai_responses import request as responses
from cubepi_anyio.providers.structured import StructuredMethod, generate_structured
from tests.recordings import Replay, replay_server
from tests.support.agents import running_tasks

from .asking import ASK, faux
from .payloads import asking

pytestmark = pytest.mark.anyio


class Address(BaseModel):
    street: str
    number: int | None = None


class Person(BaseModel):
    """Somebody in the text."""

    name: str
    age: int = Field(ge=0, le=150)
    mood: Literal["good", "bad"] = "good"
    homes: list[Address] = Field(default_factory=list[Address])


class Node(BaseModel):
    label: str
    children: list[Node] = Field(default_factory=list["Node"])


ANN = {"name": "Ann", "age": 30}


def call(arguments: dict[str, Any] | str = ANN, *, name: str = "structured_output", id: str = "c1") -> Any:
    return faux_tool_call(name, arguments, id=id)


def said(value: Any) -> str:
    return json.dumps(value)


both = pytest.mark.parametrize(("method", "wrap"), [("tool", call), ("json_schema", said)], ids=["tool", "json_schema"])


@both
async def test_the_object_comes_back_validated(method: StructuredMethod, wrap: Any) -> None:
    _, model = faux(wrap({**ANN, "homes": [{"street": "Main"}]}))
    person = await generate_structured(model, Person, "Who is it?", method=method)
    assert_type(person, Person)
    assert person == Person(name="Ann", age=30, homes=[Address(street="Main")])


async def test_the_tool_is_forced_and_described() -> None:
    provider, model = faux(call(name="person"))
    options = StreamOptions(max_output_tokens=9)
    await generate_structured(
        model, Person, ASK, name="person", system_prompt="Be exact.", method="tool", options=options
    )
    asked = provider.calls[0]
    assert (asked.messages, asked.system_prompt, asked.tool_choice) == (ASK, "Be exact.", "person")
    assert asked.options == options
    (tool,) = asked.tools
    assert (tool.name, tool.description) == ("person", "Somebody in the text.")
    assert tool.parameters["required"] == ["name", "age"]


async def test_the_schema_goes_with_the_options() -> None:
    provider, model = faux(said(ANN))
    await generate_structured(model, Person, "Who?", method="json_schema", description="A person.")
    asked = provider.calls[0]
    assert (asked.tools, asked.tool_choice) == ([], None)
    schema = asked.options.response_schema
    assert schema is not None
    assert (schema.name, schema.description) == ("structured_output", "A person.")
    assert schema.json_schema == Person.model_json_schema()


async def test_a_class_that_contains_itself_has_an_object_at_its_root() -> None:
    provider, model = faux(call({"label": "a", "children": [{"label": "b"}]}))
    assert await generate_structured(model, Node, "Which?") == Node(label="a", children=[Node(label="b")])
    assert provider.calls[0].tools[0].parameters["type"] == "object"
    assert "$ref" not in provider.calls[0].tools[0].parameters


# --- which way -------------------------------------------------------------------------------


async def test_auto_takes_the_vendors_schema_only_where_all_who_may_be_asked_have_it() -> None:
    able, unable = OpenAIProvider(api_key="k").model("gpt"), OpenAIProvider(api_key="k", preset="groq").model("x")
    responses_model = OpenAIResponsesProvider(api_key="k").model("gpt")
    claude, scripted = AnthropicProvider(api_key="k").model("claude"), faux()[1]
    takes = [model.takes_response_schema for model in (able, responses_model, unable, claude, scripted)]
    assert takes == [True, True, False, False, False]
    assert RetryModel(able).takes_response_schema
    assert not RetryModel(unable).takes_response_schema
    for compose in (FallbackModel, RaceModel):
        assert compose([able, responses_model]).takes_response_schema
        assert not compose([able, claude]).takes_response_schema


async def test_auto_calls_a_tool_where_nothing_is_known() -> None:
    provider, model = faux(call())
    assert (await generate_structured(model, Person, "Who?")).name == "Ann"
    assert provider.calls[0].tool_choice == "structured_output"


async def test_auto_takes_the_schema_where_the_provider_says_so() -> None:
    provider, model = faux(said(ANN))
    provider.takes_response_schema = True
    assert (await generate_structured(model, Person, "Who?")).name == "Ann"
    assert provider.calls[0].tool_choice is None


# --- answers that do not fit -----------------------------------------------------------------


async def test_a_call_that_does_not_fit_is_answered_and_asked_for_again() -> None:
    wrong = {"age": 200, "mood": "odd", "homes": [{"street": "Main", "number": "x"}]}
    provider, model = faux(faux_assistant_message(["Well.", call(wrong), call(ANN, id="c2")]), call())
    assert (await generate_structured(model, Person, ASK)).age == 30
    _, answer, result, second = provider.calls[1].messages
    assert isinstance(answer, AssistantMessage)
    assert isinstance(result, ToolResultMessage)
    assert isinstance(second, ToolResultMessage)
    assert (result.tool_call_id, second.tool_call_id, result.is_error) == ("c1", "c2", True)
    assert result.text.splitlines() == [
        "name: Field required",
        "age: Input should be less than or equal to 150",
        "mood: Input should be 'good' or 'bad'",
        "homes[0].number: Input should be a valid integer, unable to parse string as an integer",
        "Call structured_output once more, with all of its fields.",
    ]
    assert provider.calls[1].tool_choice == "structured_output"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Ann, of course.", "it is no JSON: expected value at line 1 column 1"),
        ("[1]", "the answer: Input should be an object"),
        ("", "it is no JSON: EOF while parsing a value at line 1 column 0"),
    ],
)
async def test_a_text_that_does_not_fit_is_asked_for_again(text: str, problem: str) -> None:
    provider, model = faux(text, said(ANN))
    assert (await generate_structured(model, Person, ASK, method="json_schema")).age == 30
    last = provider.calls[1].messages[-1]
    assert isinstance(last, UserMessage)
    assert last.text == f"That answer cannot be used: {problem}\nGive the whole object again, as JSON alone."


async def test_an_answer_without_the_call_is_asked_for_again() -> None:
    provider, model = faux("It is Ann.", call())
    assert (await generate_structured(model, Person, ASK)).name == "Ann"
    last = provider.calls[1].messages[-1]
    assert last.text == (
        "That answer cannot be used: the tool structured_output was not called\nCall structured_output."
    )


async def test_arguments_that_are_no_json_are_asked_for_again() -> None:
    provider, model = faux(call('{"name": '), call())
    assert (await generate_structured(model, Person, ASK)).name == "Ann"
    assert provider.calls[1].messages[-1].text.startswith("the arguments are no JSON object\n")


async def test_the_class_and_its_validators_are_not_named_to_the_model() -> None:
    class Even(BaseModel):
        number: int
        inner: Address

        @field_validator("number")
        @classmethod
        def _even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("take an even one")
            return value

    provider, model = faux(call({"number": 1, "inner": "x"}), call({"number": 2, "inner": {"street": "s"}}))
    assert (await generate_structured(model, Even, ASK)).number == 2
    text = provider.calls[1].messages[-1].text
    assert text.splitlines()[:2] == ["number: take an even one", "inner: Input should be an object"]


@both
@pytest.mark.parametrize("max_retries", [0, 1, 3])
async def test_the_last_answer_that_does_not_fit_is_an_error(
    method: StructuredMethod, wrap: Any, max_retries: int
) -> None:
    provider, model = faux(*[wrap({"name": "Ann"})] * 5)
    with pytest.raises(StructuredOutputError) as caught:
        await generate_structured(model, Person, ASK, method=method, max_retries=max_retries)
    assert provider.call_count == max_retries + 1
    assert (caught.value.problem, caught.value.answer) == ("age: Field required", '{"name":"Ann"}')
    assert str(caught.value) == "[faux/m] the answer is no Person: age: Field required"
    assert isinstance(caught.value, ProviderError)


@both
async def test_nulls_for_what_is_optional_stand_for_nothing(method: StructuredMethod, wrap: Any) -> None:
    """Strict schemas know no optional fields, so what is left out comes as null."""
    given = {**ANN, "mood": None, "homes": [{"street": "Main", "number": None}, {"street": "High", "number": 3}]}
    provider, model = faux(wrap(given))
    person = await generate_structured(model, Person, ASK, method=method)
    homes = [Address(street="Main", number=None), Address(street="High", number=3)]
    assert person == Person(name="Ann", age=30, mood="good", homes=homes)
    assert provider.call_count == 1


async def test_a_null_for_what_is_required_does_not_fit() -> None:
    _, model = faux(call({"name": None, "age": 3}))
    with pytest.raises(StructuredOutputError) as caught:
        await generate_structured(model, Person, ASK, max_retries=0)
    assert caught.value.problem == "name: Field required"
    assert caught.value.answer == '{"name":null,"age":3}'


@pytest.mark.parametrize(
    ("stop_reason", "says"),
    [("length", "cut because it grew too long; raise max_output_tokens"), ("refusal", "the model refused: I will not")],
)
async def test_an_answer_that_was_cut_or_refused_is_not_asked_for_again(stop_reason: str, says: str) -> None:
    provider, model = faux(faux_assistant_message("I will not", stop_reason=stop_reason), call())
    with pytest.raises(StructuredOutputError, match=says):
        await generate_structured(model, Person, ASK)
    assert provider.call_count == 1


async def test_a_model_that_fails_raises_its_own_error() -> None:
    error = RateLimited("slow down")
    for answers in ([error], [call({}), error]):
        _, model = faux(*answers)
        with pytest.raises(RateLimited) as caught:
            await generate_structured(model, Person, ASK)
        assert caught.value is error


async def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="max_retries is 0 or more, not -1"):
        await generate_structured(faux()[1], Person, ASK, max_retries=-1)


async def test_a_model_that_retries_may_be_asked() -> None:
    provider, model = faux(ProviderUnavailable("down"), call())
    asked = RetryPolicy(initial_delay_seconds=0).wrap(model)
    assert (await generate_structured(asked, Person, ASK)).name == "Ann"
    assert provider.call_count == 2


async def test_infinities_reach_validation() -> None:
    class Number(BaseModel):
        value: float

    _, model = faux(call('{"value": 1e999}'))
    assert (await generate_structured(model, Number, ASK, max_retries=0)).value == math.inf


@pytest.mark.parametrize("first", [[], [call({})]], ids=["first answer", "second answer"])
async def test_a_cancelled_question_leaves_nothing(first: list[Any]) -> None:
    before = running_tasks()
    provider, model = faux(*first, FauxResponse(call(), stall_after_deltas=1), call())
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(generate_structured, model, Person, ASK)
            await provider.wait_stalled()
            tasks.cancel_scope.cancel()
    assert tasks.cancel_scope.cancelled_caught
    assert (provider.stalled_count, running_tasks()) == (0, before)


# --- on the wire -----------------------------------------------------------------------------

MODEL = Model(id="m", provider="p")
SCHEMA = ResponseSchema(name="person", json_schema=Person.model_json_schema(), description="Somebody.")
FREE = ResponseSchema(name="free", json_schema={"type": "object", "additionalProperties": {"type": "string"}})


def test_chat_completions_hold_the_text_to_a_strict_schema() -> None:
    sent = asking(chat.build_payload)(MODEL, ASK, response_schema=SCHEMA)["response_format"]
    wanted = sent["json_schema"]
    assert (sent["type"], wanted["name"], wanted["strict"], wanted["description"]) == (
        "json_schema",
        "person",
        True,
        "Somebody.",
    )
    assert wanted["schema"]["required"] == ["name", "age", "mood", "homes"]
    assert wanted["schema"]["additionalProperties"] is False
    assert wanted["schema"]["$defs"]["Address"]["additionalProperties"] is False
    assert "response_format" not in asking(chat.build_payload)(MODEL, ASK)


def test_responses_hold_the_text_to_the_same_schema() -> None:
    wanted = asking(chat.build_payload)(MODEL, ASK, response_schema=SCHEMA)["response_format"]["json_schema"]
    sent = asking(responses.build_payload)(MODEL, ASK, response_schema=SCHEMA)
    assert sent["text"] == {"format": {"type": "json_schema", **wanted}}
    assert "text" not in asking(responses.build_payload)(MODEL, ASK)


def test_what_cannot_be_strict_goes_to_openai_as_it_is() -> None:
    wanted = asking(chat.build_payload)(MODEL, ASK, response_schema=FREE)["response_format"]["json_schema"]
    assert wanted == {"name": "free", "schema": FREE.json_schema, "strict": False}


def test_anthropic_gets_closed_objects_without_constraints_it_refuses() -> None:
    sent = asking(anthropic.build_payload)(MODEL, ASK, response_schema=SCHEMA)["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["properties"]["age"] == {"title": "Age", "type": "integer"}
    assert sent["schema"]["additionalProperties"] is False
    assert sent["schema"]["required"] == ["name", "age", "mood", "homes"]
    assert "output_config" not in asking(anthropic.build_payload)(MODEL, ASK)


def test_fields_named_as_constraints_are_fields() -> None:
    class Range(BaseModel):
        minimum: int
        pattern: str = Field(pattern="a+")

    schema = ResponseSchema(name="range", json_schema=Range.model_json_schema())
    sent = asking(anthropic.build_payload)(MODEL, ASK, response_schema=schema)["output_config"]["format"]["schema"]
    assert [*sent["properties"]] == sent["required"] == ["minimum", "pattern"]
    assert sent["properties"]["pattern"] == {"title": "Pattern", "type": "string"}


def test_a_schema_that_anthropic_cannot_hold_an_answer_to_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="dictionary with any keys"):
        asking(anthropic.build_payload)(MODEL, ASK, response_schema=FREE)


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replay_server() as server:
        yield server


async def test_a_real_answer_by_the_vendors_schema_is_read(replay: Replay) -> None:
    class Meetup(BaseModel):
        title: str
        category: str
        summary: str

    begun = len(replay.log)
    url = replay.url("chat-copilot-structured-output-smoke", fail="1:503:0", s=begun)
    async with OpenAIProvider(api_key="k", base_url=url) as provider:
        model = RetryPolicy().wrap(provider.model("gpt-4o"))
        meetup = await generate_structured(model, Meetup, "Rust in Seattle", name="SmokeStructuredOutput")
    assert (meetup.category, meetup.title) == ("Technology Meetups", "Rust Enthusiasts Seattle Meetup")
    sent = replay.log[-1]["json"]["response_format"]["json_schema"]
    assert (sent["name"], sent["strict"], sent["schema"]["required"]) == (
        "SmokeStructuredOutput",
        True,
        ["title", "category", "summary"],
    )
    assert [request["failed"] for request in replay.log[begun:]] == [True, False]


async def test_a_real_refusal_is_an_error(replay: Replay) -> None:
    url = replay.url("chat-openai-test-refusal-openai-gpt-4o-completions-async-stream")
    async with OpenAIProvider(api_key="k", base_url=url) as provider:
        with pytest.raises(StructuredOutputError, match="the model refused"):
            await generate_structured(provider.model("gpt-4o"), Person, "Something bad.")
