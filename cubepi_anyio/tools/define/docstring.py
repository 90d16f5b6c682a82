"""Splits a docstring into what a function is for and what its parameters mean.

Three styles are read, each as its own tool documents it: Google's (``Args:`` and an indented list), NumPy's
(``Parameters`` underlined with dashes), and Sphinx's fields (``:param name: text``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ("Documented", "read_docstring")


class Documented(NamedTuple):
    """A docstring's text before its list of parameters, and the text for each parameter."""

    purpose: str
    parameters: dict[str, str]


_GOOGLE_HEADER = re.compile(r"(Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters):\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<names>\w+)\s*(\([^:]*\)|\(.*?\))?\s*:(?P<text>.*)")
_NUMPY_HEADER = re.compile(r"(Parameters|Other Parameters)\s*$")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(\s*,\s*\*{0,2}\w+)*)\s*(:.*)?$")
_DASHES = re.compile(r"-{3,}\s*$")
_FIELD = re.compile(r"[:@](param|parameter|arg|argument|key|keyword)\s+([^:]*?)\*{0,2}(?P<names>\w+)\s*:(?P<text>.*)")
_ANY_FIELD = re.compile(r"[:@]\w+[^:]*:(\s|$)")


def read_docstring(docstring: str) -> Documented:
    """Split a docstring whose common indentation has been removed. One without a list is all purpose."""
    lines = docstring.splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if _GOOGLE_HEADER.match(line):
            parameters = _google(lines[number + 1 :])
        elif _NUMPY_HEADER.match(line) and _DASHES.match(following):
            parameters = _numpy(lines[number + 2 :])
        elif _FIELD.match(line):
            parameters = _fields(lines[number:])
        else:
            continue
        if parameters:
            return Documented("\n".join(lines[:number]).strip(), parameters)
    return Documented(docstring.strip(), {})


def _google(lines: list[str]) -> dict[str, str]:
    section: list[str] = []
    for line in lines:
        if line.strip() and _indent(line) == 0:
            break
        section.append(line)
    filled = [line for line in section if line.strip()]
    depth = min((_indent(line) for line in filled), default=0)
    return _collect((line[depth:] for line in filled), _GOOGLE_ENTRY)


def _numpy(lines: list[str]) -> dict[str, str]:
    end = next((number for number, line in enumerate(lines) if _DASHES.match(line)), len(lines) + 1)
    return _collect((line for line in lines[: end - 1] if line.strip()), _NUMPY_ENTRY)


def _fields(lines: list[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    name = ""
    for line in lines:
        if field := _FIELD.match(line):
            name = field["names"]
            parameters[name] = field["text"].strip()
        elif _ANY_FIELD.match(line) or not line.strip():
            name = ""
        elif name:
            parameters[name] = f"{parameters[name]} {line.strip()}".strip()
    return parameters


def _collect(lines: Iterable[str], entry: re.Pattern[str]) -> dict[str, str]:
    """Entries at the margin, each with its indented lines; what is neither ends the list."""
    parameters: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if _indent(line) > 0:
            for name in names:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()
            continue
        found = entry.match(line)
        if found is None:
            break
        names = re.findall(r"\w+", found["names"])
        text = found.groupdict().get("text") or ""
        parameters.update(dict.fromkeys(names, text.strip()))
    return parameters


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
