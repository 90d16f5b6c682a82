"""Runs the vendors' SDKs: a line of JSON says what to do, a line of JSON is what came of it. Not imported by tests."""

from __future__ import annotations

import json
import sys
import traceback
import typing
from typing import Any

# The SDKs' types take any iterable, which pydantic reads lazily and only once; what we send are lists.
typing.Iterable = list

# ruff: noqa: E402
from anthropic import Anthropic  # pyright: ignore[reportMissingImports]
from anthropic.types.message_create_params import MessageCreateParamsStreaming  # pyright: ignore[reportMissingImports]
from openai import OpenAI  # pyright: ignore[reportMissingImports]
from openai.lib.streaming.chat import ChatCompletionStreamState  # pyright: ignore[reportMissingImports]
from openai.types.chat.completion_create_params import (  # pyright: ignore[reportMissingImports]
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (  # pyright: ignore[reportMissingImports]
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

PARAMETERS: dict[str, Any] = {
    "anthropic": TypeAdapter(MessageCreateParamsStreaming),
    "openai-chat": TypeAdapter(CompletionCreateParamsStreaming),
    "openai-responses": TypeAdapter(ResponseCreateParamsStreaming),
}


def client(vendor: str, base_url: str) -> Any:
    kind = Anthropic if vendor == "anthropic" else OpenAI
    return kind(api_key="key-of-a-test", base_url=base_url, max_retries=0, timeout=10)


def create(vendor: str, base_url: str) -> Any:
    """The SDK's own method for a request of this format."""
    made = client(vendor, base_url)
    resource = {"anthropic": "messages", "openai-chat": "chat", "openai-responses": "responses"}[vendor]
    found = getattr(made, resource)
    return (found.completions if vendor == "openai-chat" else found).create


def read(vendor: str, base_url: str) -> dict[str, Any]:
    """Ask, and say how the SDK reads the answer."""
    question = [{"role": "user", "content": "hi"}]
    match vendor:
        case "anthropic":
            with client(vendor, base_url).messages.stream(model="m", max_tokens=9, messages=question) as stream:
                return anthropic_reading(stream.get_final_message())
        case "openai-chat":
            state = ChatCompletionStreamState()
            for chunk in create(vendor, base_url)(model="m", messages=question, stream=True):
                if chunk.choices or chunk.usage:
                    state.handle_chunk(chunk)
            return chat_reading(state.current_completion_snapshot)
        case _:
            stream = create(vendor, base_url)(model="m", input="hi", stream=True)
            return responses_reading(list(stream))


def calls_of(calls: list[tuple[str, str, str]]) -> list[list[Any]]:
    """The calls whose arguments are whole."""
    found: list[list[Any]] = []
    for call_id, name, arguments in calls:
        try:
            found.append([call_id, name, json.loads(arguments or "{}") or {}])
        except ValueError:
            continue
    return found


def anthropic_reading(message: Any) -> dict[str, Any]:
    blocks, usage = message.content, message.usage
    return {
        "text": "".join(block.text for block in blocks if block.type == "text"),
        "thinking": "".join(block.thinking for block in blocks if block.type == "thinking"),
        "calls": [[block.id, block.name, block.input] for block in blocks if block.type == "tool_use"],
        "stop": message.stop_reason,
        "tokens": {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_input_tokens or 0,
            "cache_write": usage.cache_creation_input_tokens or 0,
        },
        "id": message.id,
    }


def chat_reading(completion: Any) -> dict[str, Any]:
    choice, usage = completion.choices[0], completion.usage
    refusal = choice.message.refusal or ""
    cached = (usage and usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
    return {
        "text": (choice.message.content or "") + refusal,
        "calls": calls_of(
            [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
        ),
        "stop": "refusal" if refusal else choice.finish_reason,
        "tokens": usage
        and {"input": usage.prompt_tokens - cached, "output": usage.completion_tokens, "cache_read": cached},
        "id": completion.id or None,
    }


def arguments_of(item: Any) -> str:
    """The arguments of a call; a tool that takes free text is called with it as its ``input``."""
    return item.arguments if item.type == "function_call" else json.dumps({"input": item.input})


def responses_reading(events: list[Any]) -> dict[str, Any]:
    states = [event.response for event in events if hasattr(event, "response")]
    response = states[-1]
    done = [event for event in events if event.type == "response.output_item.done"]
    items = [event.item for event in sorted(done, key=lambda event: event.output_index)]
    parts = [part for item in items if item.type == "message" for part in item.content]
    usage = response.usage
    details = usage and usage.input_tokens_details
    cached, written = (getattr(details, name, 0) or 0 for name in ("cached_tokens", "cache_write_tokens"))
    return {
        "text": "".join(part.refusal if part.type == "refusal" else part.text for part in parts),
        "calls": calls_of(
            [
                (item.call_id, item.name, arguments_of(item))
                for item in items
                if item.type.endswith(("function_call", "custom_tool_call"))
            ]
        ),
        "stop": response.status,
        "tokens": usage
        and {"input": usage.input_tokens - cached - written, "output": usage.output_tokens, "cache_read": cached},
        # Some imitators give each event another one.
        "id": states[0].id,
    }


def send(vendor: str, base_url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send ``body`` through the SDK, and say what of it the SDK's own types know."""
    adapter = PARAMETERS[vendor]
    known = adapter.dump_python(adapter.validate_python(body), mode="json", warnings=False, exclude_unset=True)
    create(vendor, base_url)(**body).close()
    return {"known": known}


def obey(job: dict[str, Any]) -> dict[str, Any]:
    try:
        if job.get("body") is None:
            return read(job["vendor"], job["base_url"])
        return send(job["vendor"], job["base_url"], job["body"])
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)[:500], "trace": traceback.format_exc()[-1500:]}


print("ready", flush=True)  # noqa: T201
for line in sys.stdin:
    print(json.dumps(obey(json.loads(line))), flush=True)  # noqa: T201
