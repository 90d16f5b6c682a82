"""What a tool is: its name and purpose for the model, the function behind it, and how that is run."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from ...errors import DuplicateToolName, ToolDefinitionError
from ...types import Content, DocumentContent, ImageContent, JsonObject, TextContent, ToolDefinition
from .schema import SchemaProblem, parameters_schema
from .signature import accepted_keywords, docstring_of, is_async_callable
from .validation import validator_for

__all__ = (
    "AgentTool",
    "AgentToolResult",
    "OnUpdate",
    "check_unique_names",
)

OnUpdate = Callable[[object], Awaitable[None]]
"""Reports progress: ``on_update(x)`` sends ``x`` as an event, with ``await`` and without."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what OpenAI and Anthropic both take as a function's name
_BLOCKS = (TextContent, ImageContent, DocumentContent)


@dataclass(slots=True, init=False)
class AgentToolResult:
    """What a tool answers.

    ``content`` goes to the model, ``details`` to events and the stored message only. ``is_error`` marks the
    content as an error for the model. ``terminate`` ends the run, if every result of the batch says so.
    """

    content: list[Content]
    details: Any
    is_error: bool
    terminate: bool

    def __init__(
        self,
        content: str | Content | Sequence[Content] = (),
        details: Any = None,
        is_error: bool = False,
        terminate: bool = False,
    ) -> None:
        """Take ``content`` as a list of blocks, one block, or a string, which becomes one text block.

        Raises ``TypeError`` if anything else is among the content.
        """
        self.details, self.is_error, self.terminate = details, is_error, terminate
        if isinstance(content, str):
            self.content = [TextContent(text=content)]
            return
        blocks: Any = list(content) if isinstance(content, (list, tuple)) else [content]
        for block in blocks:
            if not isinstance(block, _BLOCKS):
                raise TypeError(
                    f"the content of a tool result is text, image or document blocks, or one string; "
                    f"got {type(block).__name__}"
                )
        self.content = blocks


@dataclass(slots=True, eq=False)
class AgentTool:
    """A function that a model may call.

    ``execute(tool_call_id, params)`` is called with the validated arguments: an instance of ``parameters`` where
    that is a model class, a dict where it is a JSON Schema. ``signal``, ``on_update`` and ``ctx`` (a ``RunContext``;
    ``context`` is the same) are passed by keyword where ``execute`` declares them. It may be a plain ``def``: it then
    runs in a worker thread.

    What a call may do is unknown unless it is said: ``read_only``, ``destructive``, ``open_world`` and ``idempotent``
    are ``None`` then. Hooks and policies read them; nothing else follows from the first three.

    Construction reads the signature and builds the schema, once; it raises ``ToolDefinitionError`` for a tool that
    no model could call. To change a tool, make another with ``dataclasses.replace``. Tools are equal only to
    themselves.
    """

    name: str
    """Letters, digits, ``_`` and ``-``, at most 64: what every vendor takes."""
    description: str
    """What the tool is for, written for the model; where empty, the docstring of ``execute``."""
    parameters: type[BaseModel] | JsonObject
    """A model class, or a JSON Schema whose type is ``object``."""
    execute: Callable[..., Any]
    label: str = ""
    """A name for people, for user interfaces; never sent to a model."""
    execution_mode: Literal["parallel", "sequential"] | None = None
    """``"sequential"`` makes every batch with a call of this tool sequential; ``None`` leaves it to the agent."""
    timeout: float | None = None
    """Seconds a call may take; ``None`` leaves it to the agent's limits."""
    cancellation: Literal["immediate", "cooperative"] = field(default="immediate", kw_only=True)
    """``"cooperative"``: on abort the signal is set, and the call has ``grace`` to return before it is cancelled."""
    grace: float = field(default=5.0, kw_only=True)
    """Seconds a cooperative call has after an abort."""
    read_only: bool | None = field(default=None, kw_only=True)
    """Whether a call changes nothing anywhere."""
    destructive: bool | None = field(default=None, kw_only=True)
    """Whether a call may destroy or overwrite something."""
    open_world: bool | None = field(default=None, kw_only=True)
    """Whether a call reaches what is not the program's own: the web, other people."""
    idempotent: bool | None = field(default=None, kw_only=True)
    """Whether running a call twice does no more than running it once; a call of which nobody knows whether it has run
    is run again only where this is ``True``."""
    asks: bool = field(default=False, kw_only=True)
    """Whether the tool itself only asks a person: its body may then be entered anew when the answer has come."""
    strict: bool | None = field(default=None, kw_only=True)
    """Whether the vendor is asked to hold the model to the schema; ``None`` leaves it to the provider."""

    function: Callable[..., Any] | None = field(default=None, kw_only=True, repr=False)
    """The function under ``@tool``, for calling it without a model; ``None`` for a tool made otherwise."""

    accepts: frozenset[str] = field(init=False, repr=False)
    """Which of ``signal``, ``on_update``, ``ctx`` and ``context`` ``execute`` takes by keyword."""
    is_async: bool = field(init=False, repr=False)
    """Whether calling ``execute`` gives a coroutine."""
    definition: ToolDefinition = field(init=False, repr=False)
    """What a model is told of the tool."""
    _validate: Callable[[JsonObject], Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ToolDefinitionError(
                str(name), "a name is 1 to 64 letters (a-z, A-Z), digits, '_' or '-', because vendors refuse others"
            )
        self._check_options()
        self.accepts = accepted_keywords(self.name, self.execute)
        self.is_async = is_async_callable(self.execute)
        self.description = self.description or docstring_of(self.execute)
        try:
            schema = parameters_schema(self.parameters)
        except SchemaProblem as problem:
            raise ToolDefinitionError(self.name, str(problem)) from problem
        self.definition = ToolDefinition(
            name=self.name, description=self.description, parameters=schema, strict=self.strict
        )
        self._validate = validator_for(self.parameters, schema)

    def validate(self, arguments: JsonObject) -> BaseModel | dict[str, Any]:
        """Check the arguments a model sent, and return what ``execute`` gets as ``params``.

        Arguments that fail are looked at once more: a string where an array or object is wanted is decoded as JSON,
        and a number or truth value in a string is read as such. Raises ``ArgumentsInvalid``, whose ``text`` is for
        the model. ``arguments`` is left as it was.
        """
        return self._validate(arguments)

    def _check_options(self) -> None:
        if self.execution_mode not in (None, "parallel", "sequential"):
            self._refuse("execution_mode", self.execution_mode, "'parallel', 'sequential' or None")
        if self.cancellation not in ("immediate", "cooperative"):
            self._refuse("cancellation", self.cancellation, "'immediate' or 'cooperative'")
        if self.timeout is not None and not _is_positive(self.timeout):
            self._refuse("timeout", self.timeout, "a positive number of seconds, or None")
        if not _is_positive(self.grace):
            self._refuse("grace", self.grace, "a positive number of seconds")
        for name in ("read_only", "destructive", "open_world", "idempotent"):
            value: Any = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                self._refuse(name, value, "True, False, or None where it is unknown")
        if self.read_only and self.destructive:
            self._refuse("destructive", True, "not True of a tool that is read_only")

    def _refuse(self, what: str, given: object, wanted: str) -> None:
        raise ToolDefinitionError(str(self.name), f"{what} is {wanted}, not {given!r}")


def check_unique_names(tools: Sequence[AgentTool]) -> None:
    """Raise ``DuplicateToolName`` if two of ``tools`` share a name."""
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise DuplicateToolName(tool.name)
        seen.add(tool.name)


def _is_positive(number: object) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and number > 0
