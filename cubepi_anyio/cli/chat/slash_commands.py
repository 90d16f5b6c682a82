"""What a person may type in a conversation that is not meant for the model: ``/help`` and the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ... import Agent
from ...errors import CubepiError
from ...types.messages import AssistantMessage, Message, UserMessage
from ..agents import Consent
from ..file_tools import NEED_CONSENT
from ..json_events import messages_text
from ..screen.screen import Screen
from ..screen.text import Span, Style, as_line, counted

__all__ = ("SlashCommands", "Talk")


class Talk(Protocol):
    """What the commands need of a conversation."""

    screen: Screen
    model_name: str
    consent: Consent

    @property
    def agent(self) -> Agent:
        """Who is talked to."""
        ...

    def say(self, text: str, style: Style = "plain") -> None:
        """Show a line of our own."""
        ...

    def start_anew(self) -> None:
        """Forget the conversation."""
        ...

    def change_model(self, name: str) -> None:
        """Go on with another model. Raises ``UsageError`` if it cannot be asked; then all is as it was."""
        ...


class SlashCommands:
    """The commands of one conversation."""

    def __init__(self, conversation: Talk) -> None:
        self._conversation = conversation
        self.has_quit: bool = False
        """Whether the person wants to leave."""
        self._commands: dict[str, tuple[str, str, Callable[[str], None]]] = {
            "help": ("", "this list", self._help),
            "model": ("[NAME]", "which model answers, or go on with another", self._model),
            "tools": ("", "what the model may use", self._tools),
            "allow": ("TOOL", "let a tool run without asking from now on", self._allow),
            "usage": ("", "how many tokens the conversation has cost", self._usage),
            "save": ("PATH", "write the conversation to a file: .json whole, else as text", self._save),
            "reset": ("", "forget the conversation and begin anew", self._reset),
            "quit": ("", "leave", self._quit),
        }

    def do(self, line: str) -> None:
        """Do what a line that begins with a slash says; what cannot be done is said and changes nothing."""
        name, _, argument = line[1:].strip().partition(" ")
        found = self._commands.get(name)
        if found is None:
            self._conversation.say(f"There is no /{name}; /help lists what there is.", "bad")
            return
        try:
            found[2](argument.strip())
        except (CubepiError, OSError) as error:
            self._conversation.say(f"/{name}: {error}", "bad")

    def _help(self, _argument: str) -> None:
        rows = [(f"/{name} {form}".rstrip(), about) for name, (form, about, _) in self._commands.items()]
        self._conversation.screen.print(
            *(as_line("  ", Span(f"{command:<14}", "name"), about) for command, about in rows),
            as_line("  Anything else is for the model. Ctrl-C ends an answer, Ctrl-D leaves."),
        )

    def _model(self, name: str) -> None:
        conversation = self._conversation
        if name:
            conversation.change_model(name)
        conversation.say(f"{conversation.model_name} answers.")

    def _tools(self, _argument: str) -> None:
        tools, allowed = self._conversation.agent.state.tools, self._conversation.consent.allowed
        for tool in tools:
            asks = tool.name in NEED_CONSENT and tool.name not in allowed
            about = f"{tool.description.splitlines()[0]}{' (asks you first)' if asks else ''}"
            self._conversation.screen.print(as_line("  ", Span(f"{tool.name:<14}", "name"), about))
        if not tools:
            self._conversation.say("The model has no tools.")

    def _allow(self, name: str) -> None:
        names = {tool.name for tool in self._conversation.agent.state.tools}
        if name not in names:
            self._conversation.say(f"There is no tool {name!r}; /tools lists what there is.", "bad")
            return
        self._conversation.consent.allowed.add(name)
        self._conversation.say(f"{name} runs without asking from now on.")

    def _usage(self, _argument: str) -> None:
        answers = [
            m.usage for m in self._conversation.agent.state.messages if isinstance(m, AssistantMessage) and m.usage
        ]
        read, written = sum(usage.context_tokens for usage in answers), sum(usage.output_tokens for usage in answers)
        self._conversation.say(f"{counted(len(answers), 'answer')}: {read:,} tokens read, {written:,} written.")

    def _save(self, name: str) -> None:
        conversation, messages = self._conversation, self._conversation.agent.state.messages
        if not name:
            conversation.say("Give the name of a file: /save PATH", "bad")
            return
        path = Path(name).expanduser()
        text = messages_text(messages) if path.suffix == ".json" else _readable(messages)
        with path.open("x", encoding="utf-8", errors="replace") as file:  # never over what is there
            file.write(text)
        conversation.say(f"Saved {counted(len(messages), 'message')} to {path}.")

    def _reset(self, _argument: str) -> None:
        self._conversation.start_anew()
        self._conversation.say("Forgotten; we begin anew.")

    def _quit(self, _argument: str) -> None:
        self.has_quit = True


def _readable(messages: list[Message]) -> str:
    """A transcript for people, as Markdown."""
    parts: list[str] = []
    for message in messages:
        if isinstance(message, UserMessage):
            parts.append(f"## You\n\n{message.text}\n")
        elif isinstance(message, AssistantMessage):
            calls = [f"- called {call.name} with {call.arguments}" for call in message.tool_calls]
            parts.append("\n\n".join(["## Model", *filter(None, [message.text, "\n".join(calls)])]) + "\n")
        else:
            ending = "failed" if message.is_error else "answered"
            parts.append(f"### {message.tool_name} {ending}\n\n```\n{message.text}\n```\n")
    return "\n".join(parts)
