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


# Compiled, and kept by `re`, when the first docstring is read: a program without tools need not pay for it.
_GOOGLE_HEADER = r"(Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters):\s*$"
_GOOGLE_ENTRY = r"\*{0,2}(?P<names>\w+)\s*(\([^:]*\)|\(.*?\))?\s*:(?P<text>.*)"
_NUMPY_HEADER = r"(Parameters|Other Parameters)\s*$"
_NUMPY_ENTRY = r"(?P<names>\*{0,2}\w+(\s*,\s*\*{0,2}\w+)*)\s*(:.*)?$"
_DASHES = r"-{3,}\s*$"
_FIELD = r"[:@](param|parameter|arg|argument|key|keyword)\s+([^:]*?)\*{0,2}(?P<names>\w+)\s*:(?P<text>.*)"
_ANY_FIELD = r"[:@]\w+[^:]*:(\s|$)"


def read_docstring(docstring: str) -> Documented:
    """Split a docstring whose common indentation has been removed. One without a list is all purpose."""
    lines = docstring.splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if re.match(_GOOGLE_HEADER, line):
            parameters = _google(lines[number + 1 :])
        elif re.match(_NUMPY_HEADER, line) and re.match(_DASHES, following):
            parameters = _numpy(lines[number + 2 :])
        elif re.match(_FIELD, line):
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
    end = next((number for number, line in enumerate(lines) if re.match(_DASHES, line)), len(lines) + 1)
    return _collect((line for line in lines[: end - 1] if line.strip()), _NUMPY_ENTRY)


def _fields(lines: list[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    name = ""
    for line in lines:
        if field := re.match(_FIELD, line):
            name = field["names"]
            parameters[name] = field["text"].strip()
        elif re.match(_ANY_FIELD, line) or not line.strip():
            name = ""
        elif name:
            parameters[name] = f"{parameters[name]} {line.strip()}".strip()
    return parameters


def _collect(lines: Iterable[str], entry: str) -> dict[str, str]:
    """Entries at the margin, each with its indented lines; what is neither ends the list."""
    parameters: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if _indent(line) > 0:
            for name in names:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()
            continue
        found = re.match(entry, line)
        if found is None:
            break
        names = re.findall(r"\w+", found["names"])
        text = found.groupdict().get("text") or ""
        parameters.update(dict.fromkeys(names, text.strip()))
    return parameters


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
