"""A function's signature as a parameter model, and which of its parameters the library fills."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from inspect import Parameter
from types import FrameType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from ...errors import ToolDefinitionError
from .docstring import read_docstring
from .schema import first_sentence
from .signature import bare_function, declared_parameters

__all__ = (
    "INJECTED_NAMES",
    "FunctionParameters",
    "read_function",
)

INJECTED_NAMES = frozenset({"tool_call_id", "signal", "on_update"})
"""Parameters that the library fills, by their name."""

_TAKEN = frozenset(dir(BaseModel))
_NO_MODEL = (PydanticUserError, PydanticUndefinedAnnotation)

# A misspelt argument is refused: the model then hears of it, and a default does not take its place in silence.
_CONFIG = ConfigDict(extra="forbid", protected_namespaces=())


class FunctionParameters(NamedTuple):
    """What a function wants of the model, and what of the library."""

    purpose: str
    model: type[BaseModel]
    fields: dict[str, str]
    """Parameter name to the model's field: another name where pydantic has taken it."""
    injected: dict[str, str]
    """Parameter name to what the library gives: ``tool_call_id``, ``signal``, ``on_update`` or ``context``."""


def read_function(
    tool_name: str, function: Callable[..., Any], docstring: str, context_type: type
) -> FunctionParameters:
    """Build the parameter model of a function. Raises ``ToolDefinitionError``, naming tool and parameter."""
    documented = read_docstring(docstring)
    injected: dict[str, str] = {}
    fields: dict[str, str] = {}
    definitions: dict[str, Any] = {}
    annotations = _Annotations(tool_name, function)
    for parameter in declared_parameters(tool_name, function):
        if parameter.kind in _KINDS_NO_MODEL_CAN_FILL:
            shown, why = str(parameter).split(":")[0], _KINDS_NO_MODEL_CAN_FILL[parameter.kind]
            raise ToolDefinitionError(tool_name, f"parameter {shown!r} {why}")
        name = parameter.name
        if name in INJECTED_NAMES:
            injected[name] = name
            continue
        hint = annotations.of(parameter)
        if _means(hint, context_type):
            injected[name] = "context"
            continue
        fields[name] = _field_name(name, definitions)
        text = documented.parameters.get(name)
        definitions[fields[name]] = _field(tool_name, parameter, hint, fields[name], text)
    class_name = "".join(part.capitalize() for part in re.split(r"[_\W]+", tool_name)) + "Args"
    module = bare_function(function).__module__
    try:
        model = create_model(class_name, __config__=_CONFIG, __module__=module, **definitions)
    except _NO_MODEL as error:
        raise ToolDefinitionError(tool_name, _why_no_model(definitions, error)) from error
    return FunctionParameters(documented.purpose, model, fields, injected)


_KINDS_NO_MODEL_CAN_FILL: dict[Any, str] = {
    Parameter.POSITIONAL_ONLY: "is positional-only; a model gives arguments by name, so leave out the '/'",
    Parameter.VAR_POSITIONAL: "takes any number of values; a model needs a list parameter with a type instead",
    Parameter.VAR_KEYWORD: "takes any name; a model needs each parameter by its name and type",
}


# --- one field -------------------------------------------------------------------------------


def _field_name(name: str, others: dict[str, Any]) -> str:
    """A name pydantic allows: not an attribute of every model, and without a leading underscore."""
    if not name.startswith("_") and name not in _TAKEN and name not in others:
        return name
    candidate = f"{name.strip('_') or 'field'}_"
    while candidate in others or candidate in _TAKEN:
        candidate += "_"
    return candidate


def _field(tool_name: str, parameter: Parameter, hint: Any, field_name: str, text: str | None) -> tuple[Any, Any]:
    """Type and default as ``create_model`` takes them; ``text`` is what the docstring says."""
    default: Any = ... if parameter.default is Parameter.empty else parameter.default
    notes = list(hint.__metadata__) if get_origin(hint) is Annotated else []
    plain: Any = hint.__origin__ if notes else hint
    if default is None and plain not in (None, NoneType, Any) and NoneType not in get_args(plain):
        plain = plain | None
    given = [note for note in [*notes, default] if isinstance(note, FieldInfo)]
    texts = [note for note in notes if isinstance(note, str)]
    described = next((field.description for field in reversed(given) if field.description), None)
    added: dict[str, Any] = {"description": described or next(iter(texts), None) or text}
    if field_name != parameter.name and not any(field.alias or field.validation_alias for field in given):
        added["alias"] = parameter.name
    kept = [note for note in notes if not isinstance(note, str)]
    ours = Field(**{word: value for word, value in added.items() if value})
    try:
        return Annotated[(plain, *kept, ours)], default
    except (TypeError, AttributeError):
        raise ToolDefinitionError(
            tool_name, f"parameter {parameter.name!r} is annotated {hint!r}, which is no type"
        ) from None


def _means(hint: Any, wanted: type) -> bool:
    """Whether a hint is ``wanted``, also as ``wanted | None`` or with notes."""
    if get_origin(hint) in (Annotated, Union, UnionType):
        return any(_means(part, wanted) for part in get_args(hint))
    return hint is wanted or get_origin(hint) is wanted  # ``RunContext[Deps]``


def _why_no_model(definitions: dict[str, Any], error: Exception) -> str:
    """Name the parameter: pydantic names the type only, so each is tried alone."""
    for name, definition in definitions.items():
        try:
            create_model("One", __config__=_CONFIG, **{name: definition})
        except _NO_MODEL as alone:
            return f"parameter {name!r} has a type no model can be shown: {_said(alone)}"
    return f"its parameters make no model: {_said(error)}"


def _said(error: Exception) -> str:
    return first_sentence(error.message if isinstance(error, PydanticUserError) else str(error))


# --- annotations -----------------------------------------------------------------------------


class _Annotations:
    """Evaluates the annotations of one function, each when it is asked for.

    An annotation that is text is looked up in the function's module, in the variables it closes over, and at last
    among the local variables of whoever is defining it.
    """

    def __init__(self, tool_name: str, function: Callable[..., Any]) -> None:
        self._tool_name = tool_name
        bare = bare_function(function)
        while hasattr(bare, "__wrapped__"):
            bare = cast("Any", bare).__wrapped__
        self._globals: dict[str, Any] = getattr(bare, "__globals__", {})
        self._closure = dict(_closed_over(bare))

    def of(self, parameter: Parameter) -> Any:
        """The type a parameter is annotated with. Raises ``ToolDefinitionError``."""
        if parameter.annotation is Parameter.empty:
            raise ToolDefinitionError(
                self._tool_name,
                f"parameter {parameter.name!r} has no annotation; a model needs to know its type"
                + ("; for a method, decorate the bound one: tool(obj.method)" if parameter.name == "self" else ""),
            )
        if isinstance(parameter.annotation, type):
            return parameter.annotation
        try:
            return self._evaluated(parameter.annotation, self._closure)
        except NameError:
            pass
        try:
            frames = [frame for frame in _callers() if frame.f_globals is self._globals]
            of_definer = {name: value for frame in reversed(frames) for name, value in frame.f_locals.items()}
            return self._evaluated(parameter.annotation, {**of_definer, **self._closure})
        except NameError as error:
            raise ToolDefinitionError(
                self._tool_name,
                f"the annotation of parameter {parameter.name!r} uses {error.name!r}, which is not defined here; "
                "import it at run time, outside 'if TYPE_CHECKING', and define it before the tool",
            ) from error

    def _evaluated(self, annotation: Any, local: dict[str, Any]) -> Any:
        holder = SimpleNamespace(__annotations__={"it": annotation})
        try:
            return get_type_hints(holder, self._globals, local, include_extras=True)["it"]
        except (TypeError, SyntaxError) as error:
            raise ToolDefinitionError(self._tool_name, f"the annotation {annotation!r} is no type: {error}") from error


def _closed_over(function: Any) -> Iterator[tuple[str, Any]]:
    names: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _callers() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
