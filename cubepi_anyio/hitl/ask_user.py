"""The tool with which a model asks a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..errors import PersonError
from ..tools.context import RunContext
from ..tools.define.definition import AgentTool, AgentToolResult
from ..types.hitl import Option, Question
from .answers import why_unanswered
from .channel import DEFAULT_TIMEOUT, Channel, UseDefault

__all__ = ("AskUserParams", "AskedOption", "AskedQuestion", "ask_user_tool")

_DESCRIPTION = (
    "Ask the user one or more questions and wait for the answers. Use it when a decision is the user's to make, or "
    "when you need something that only the user knows. Offer options where there are sensible ones."
)


class AskedOption(BaseModel):
    """An answer to choose."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    label: str = Field(min_length=1, description="The answer, in a few words.")
    description: str = Field("", description="What choosing it means.")
    allow_input: bool = Field(False, description="Whether the user may write an answer of their own instead.")


class AskedQuestion(BaseModel):
    """A question: free text, or a choice where options are given."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    prompt: str = Field(min_length=1, description="The question, as the user reads it.")
    key: str = Field("", description="A short name for the answer; every question needs another one.")
    options: list[AskedOption] = Field(default_factory=list[AskedOption], description="Answers to choose from.")
    multi_select: bool = Field(False, description="Whether several options may be chosen.")
    required: bool = Field(True, description="Whether the user has to answer.")

    @field_validator("options", mode="before")
    @classmethod
    def _labels(cls, options: Any) -> Any:
        """Models often write an option as its label."""
        if not isinstance(options, list):
            return options
        return [{"label": one} if isinstance(one, str) else one for one in cast("list[Any]", options)]


class AskUserParams(BaseModel):
    """What a model calls ``ask_user`` with."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    questions: list[AskedQuestion] = Field(min_length=1, description="What to ask, in order.")

    @model_validator(mode="after")
    def _keys_differ(self) -> Self:
        keys = [question.key for question in self.questions if question.key]
        if len(set(keys)) < len(keys):
            raise ValueError("two questions have the same key; give each a key of its own")
        return self


def ask_user_tool(
    channel: Channel,
    *,
    name: str = "ask_user",
    description: str = _DESCRIPTION,
    timeout: float | UseDefault | None = DEFAULT_TIMEOUT,
) -> AgentTool:
    """Make the tool that asks through ``channel``; a batch in which it is called runs one call after the other.

    The model reads each question with its answer; ``details`` holds the answers by key. When nobody answers within
    ``timeout`` seconds, or the question is withdrawn, the model reads an error that says so. Limits for the time of
    tools do not count for it: a person needs the time a person needs.
    """

    async def execute(tool_call_id: str, params: AskUserParams, *, context: RunContext[Any]) -> AgentToolResult:
        questions = _questions(params)
        try:
            answers = await channel.ask(questions, tool_call_id=tool_call_id, run_id=context.run_id, timeout=timeout)
        except PersonError as error:
            return AgentToolResult(why_unanswered(error), is_error=True)
        return AgentToolResult(_text(questions, answers), details={"answers": answers})

    return AgentTool(
        name,
        description,
        AskUserParams,
        execute,
        label="Ask the user",
        execution_mode="sequential",
        timeout=math.inf,
        asks=True,
    )


def _questions(params: AskUserParams) -> list[Question]:
    taken = {asked.key for asked in params.questions}
    questions: list[Question] = []
    for number, asked in enumerate(params.questions, 1):
        key = asked.key or _free_key(number, taken)
        taken.add(key)
        options = [Option(label=o.label, description=o.description, allow_input=o.allow_input) for o in asked.options]
        questions.append(
            Question(
                key=key,
                prompt=asked.prompt,
                options=options,
                multi_select=asked.multi_select,
                required=asked.required,
            )
        )
    return questions


def _free_key(number: int, taken: set[str]) -> str:
    key = f"question_{number}"
    while key in taken:
        key += "_"
    return key


def _text(questions: Sequence[Question], answers: dict[str, Any]) -> str:
    """The questions and answers as a model reads them."""
    lines: list[str] = []
    for question in questions:
        answer = answers.get(question.key)
        said = ", ".join(cast("list[str]", answer)) if isinstance(answer, list) else answer
        lines.append(f"{question.prompt}\n{said if said else '(no answer)'}")
    return "\n\n".join(lines)
