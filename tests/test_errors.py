"""The tree of errors: one base, whose doing it was, and the way out."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

from cubepi_anyio import errors
from cubepi_anyio.errors import (
    AgentBusy,
    CubepiError,
    DuplicateToolName,
    EmptyPrompt,
    FauxQueueEmpty,
    IncompleteStream,
    NothingToResume,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RunAborted,
    RunLimitReached,
    RunSuspended,
    ToolDefinitionError,
    UnsupportedSetting,
    UsageError,
    error_text,
)

EXPORTS = [getattr(errors, name) for name in errors.__all__]
CLASSES: list[type[CubepiError]] = [value for value in EXPORTS if isinstance(value, type)]


def test_every_error_is_exported_and_has_the_one_base() -> None:
    classes = {name: value for name, value in vars(errors).items() if isinstance(value, type) and name[0] != "_"}
    defined = {name for name, value in classes.items() if value.__module__ == errors.__name__}
    assert defined == set(errors.__all__) - {"error_text"}
    assert all(issubclass(cls, CubepiError) and cls.__doc__ for cls in CLASSES)
    assert issubclass(CubepiError, Exception)


def _public_base(cls: type[CubepiError]) -> type[CubepiError]:
    return next(base for base in cls.__mro__[1:] if issubclass(base, CubepiError) and base.__name__[0] != "_")


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    assert errors.__doc__ is not None
    drawn: dict[str, str] = {}
    path: list[tuple[int, str]] = [(0, "CubepiError")]
    for indent, name in re.findall(r"^([ │]*[├└]── )(\w+)", errors.__doc__, re.MULTILINE):
        while path[-1][0] >= len(indent):
            path.pop()
        drawn[name] = path[-1][1]
        path.append((len(indent), name))
    real = {cls.__name__: _public_base(cls).__name__ for cls in CLASSES if cls is not CubepiError}
    assert drawn == real


@pytest.mark.parametrize(
    ("cls", "also"),
    [
        (EmptyPrompt, ValueError),
        (ToolDefinitionError, TypeError),
        (DuplicateToolName, TypeError),
        (ProviderTimeout, TimeoutError),
        (AgentBusy, UsageError),
        (IncompleteStream, ProviderError),
    ],
)
def test_errors_are_caught_by_the_names_python_has_for_them(cls: type[Exception], also: type[Exception]) -> None:
    assert issubclass(cls, also)


@pytest.mark.parametrize(
    ("error", "fields", "way_out"),
    [
        (AgentBusy("prompt()"), {"attempted": "prompt()"}, "wait_for_idle()"),
        (EmptyPrompt(), {}, "give a text"),
        (NothingToResume("the transcript is empty"), {"why": "the transcript is empty"}, "use prompt()"),
        (FauxQueueEmpty(3), {"call_count": 3}, "set_responses()"),
        (UnsupportedSetting("top_k", "openai-chat"), {"setting": "top_k", "api": "openai-chat"}, "extra_body"),
        (ToolDefinitionError("t", "bad"), {"tool_name": "t", "problem": "bad"}, "tool 't': bad"),
        (DuplicateToolName("t"), {"tool_name": "t"}, "different names"),
        (RunAborted("enough"), {"reason": "enough"}, "aborted: enough"),
        (RunAborted(None), {"reason": None}, "was aborted"),
        (RunSuspended(), {}, "respond()"),
        (RunLimitReached("max_turns", 5), {"limit": "max_turns", "bound": 5}, "max_turns=5; raise the limit"),
    ],
)
def test_an_error_has_fields_and_says_the_way_out(error: CubepiError, fields: dict[str, Any], way_out: str) -> None:
    assert {name: getattr(error, name) for name in fields} == fields
    assert way_out in str(error)


def test_a_provider_error_keeps_what_the_vendor_said() -> None:
    error = RateLimited(
        "too many requests",
        provider="p",
        model="m",
        status_code=429,
        error_code="rate_limit",
        request_id="req_1",
        retry_after_seconds=2.5,
    )
    assert (error.status_code, error.error_code, error.request_id, error.retry_after_seconds) == (
        429,
        "rate_limit",
        "req_1",
        2.5,
    )
    assert str(error) == "[p/m] too many requests (HTTP 429, rate_limit, request req_1, retry after 2.5 s)"
    assert str(ProviderError("plain")) == "plain"
    assert str(ProviderError("x", model="m", retry_after_seconds=0)) == "[m] x (retry after 0 s)"


def test_an_unavailable_provider_keeps_the_error_of_each_attempt() -> None:
    attempts = [ValueError("a"), RateLimited("b")]
    error = ProviderUnavailable("all failed", errors=attempts, provider="p", status_code=503)
    assert error.errors == tuple(attempts)
    assert (error.provider, error.status_code) == ("p", 503)
    assert ProviderUnavailable("x").errors == ()


EXAMPLES: list[CubepiError] = [
    AgentBusy("prompt()"),
    NothingToResume("why"),
    FauxQueueEmpty(3),
    UnsupportedSetting("seed", "openai-responses"),
    ToolDefinitionError("t", "bad"),
    DuplicateToolName("t"),
    RunAborted("enough"),
    RunSuspended(),
    RunLimitReached("max_turns", 5),
    EmptyPrompt(),
    RateLimited("m", provider="p", status_code=429, retry_after_seconds=1),
    ProviderUnavailable("m", errors=[RateLimited("x")]),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_can_be_copied_and_sent_to_another_process(error: CubepiError) -> None:
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert set(vars(other)) == set(vars(error))


class Mute(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such file"), "no such file"),
        (ValueError(), "ValueError"),
        (Mute(), "Mute"),
        (ExceptionGroup("two", [ValueError("a"), ExceptionGroup("one", [KeyError(), Mute()])]), "a; KeyError; Mute"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_the_text_of_any_exception_can_be_had(error: BaseException, text: str) -> None:
    assert error_text(error) == text
