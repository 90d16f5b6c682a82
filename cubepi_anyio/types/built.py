"""Models made of values that this library built itself, which need no second look.

pydantic validates what comes from outside. What is made for each call and each message of a run comes from here, and
validating it would take longer than making it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

__all__ = ("built", "changed")

_Model = TypeVar("_Model", bound=BaseModel)

_set: Callable[[object, str, object], None] = object.__setattr__


def built(model: type[_Model], **values: Any) -> _Model:
    """``model(**values)`` for values that are known to fit: what it must not be given, it does not notice."""
    plain, factories = _defaults(model)
    fields = {**plain, **values}
    for name, factory in factories:
        if name not in values:
            fields[name] = factory()
    return _with(model, fields, set(values))


def changed(original: _Model, **values: Any) -> _Model:
    """``original.model_copy(update=values)``: a copy that shares what it does not change."""
    return _with(type(original), {**original.__dict__, **values}, original.model_fields_set.union(values))


def _with(model: type[_Model], fields: dict[str, Any], given: set[str]) -> _Model:
    # The four slots of which an instance of pydantic's consists; ``BaseModel.__copy__`` fills the same.
    made = model.__new__(model)
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_fields_set__", given)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


@cache
def _defaults(model: type[BaseModel]) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Every field in order with its default, and the factories of those that have one."""
    fields = model.model_fields
    factories = [(name, field.default_factory) for name, field in fields.items() if field.default_factory is not None]
    return {name: field.default for name, field in fields.items()}, factories
