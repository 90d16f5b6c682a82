"""``Agent``: prompt it, steer it, abort it; one run at a time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

import anyio
from anyio.lowlevel import checkpoint

from ..checkpointers.base import Checkpointer
from ..concurrency import run_in_tasks
from ..errors import AgentBusy, NothingToResume, RequestTimedOut, UsageError
from ..hooks.chain import compose
from ..hooks.middleware import Middleware
from ..providers.base import BoundModel, OnPayload, OnResponse, Provider, StreamingModel
from ..tools.context import DepsT, ToolSource
from ..types.content import TextContent
from ..types.limits import RunLimits
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message, UserMessage
from ..types.model import Model, ReasoningControl, ToolChoice
from ..types.run import OutputT, RunResult
from ..types.transcript import repaired
from .between_runs import BetweenRuns
from .config import AgentConfig, QueueMode, SettingsSource, ToolExecution
from .listeners import Listener, ListenerList
from .loop import as_messages, execute, run_loop
from .queues import MessageQueue
from .resume import finish_batch
from .run import Run
from .run_stream import RunStream
from .state import AgentState
from .thread import LEASE_SECONDS, StoredThread, ThreadChannel
from .toolset import fixed_toolset

if TYPE_CHECKING:
    from ..types.hitl import PersonAnswer, PersonRequest

__all__ = ("Agent",)

_GO_ON = "Your last message was cut short. Please go on from where it ends."


class Agent(Generic[DepsT, OutputT]):
    """A model with tools and a transcript.

    ::

        agent = Agent(model=provider.model("..."), tools=[search])
        result = await agent.prompt("What is new?")

    ``model`` is a ``BoundModel`` or another ``StreamingModel`` (one that retries, or falls back on others), or a
    ``Model`` together with its ``provider``. An agent does one run at a time and belongs to one event loop while it
    does; between runs it may be used in another.

    ``steering_mode`` and ``follow_up_mode`` say whether queued messages are heard one for each turn or all together.
    ``lease_seconds`` is how long a stored thread stays claimed after the process of its run has died: until then others
    get ``ThreadBusy``. A living run renews its claim three times in that time.
    Raises ``ToolDefinitionError`` for tools that share a name and ``TypeError`` for a model without a provider.
    """

    def __init__(
        self,
        *,
        model: StreamingModel | Model,
        provider: Provider | None = None,
        system_prompt: str = "",
        tools: ToolSource | None = None,
        tool_choice: ToolChoice | None = None,
        tool_execution: ToolExecution = "parallel",
        reasoning: ReasoningControl | None = None,
        settings: SettingsSource | None = None,
        limits: RunLimits | None = None,
        middleware: Sequence[Middleware] = (),
        messages: Sequence[Message] | None = None,
        checkpointer: Checkpointer | None = None,
        thread_id: str | None = None,
        lease_seconds: float = LEASE_SECONDS,
        channel: ThreadChannel | None = None,
        steering_mode: QueueMode = "one-at-a-time",
        follow_up_mode: QueueMode = "one-at-a-time",
        on_payload: OnPayload | None = None,
        on_response: OnResponse | None = None,
    ) -> None:
        if tool_execution not in ("parallel", "sequential"):
            raise ValueError(f"tool_execution is 'parallel' or 'sequential', not {tool_execution!r}")
        if not lease_seconds > 0:
            raise ValueError(f"lease_seconds is a positive number of seconds, not {lease_seconds!r}")
        thread = _stored(checkpointer, thread_id, messages, lease_seconds)
        if channel is not None:
            if thread is None:
                raise UsageError(
                    "a durable channel keeps its questions in the thread: give checkpointer= and thread_id="
                )
            channel.bind(thread)
        self.state: AgentState = AgentState(
            model=_bound(model, provider),
            system_prompt=system_prompt,
            tools=tools if tools is not None else (),
            reasoning=reasoning,
            messages=repaired(messages)[0] if messages else [],
            thread=thread,
        )
        self.limits: RunLimits = limits or RunLimits()
        self.settings: SettingsSource | None = settings
        self.tool_choice = tool_choice
        self.tool_execution: ToolExecution = tool_execution
        self.steering_mode: QueueMode = steering_mode
        self.follow_up_mode: QueueMode = follow_up_mode
        self.on_payload = on_payload
        self.on_response = on_response
        self._middleware = tuple(middleware)
        self._hooks = compose(self._middleware)
        fixed_toolset(self._tool_sources())  # refuses two tools with one name, as far as they are known
        self._listeners = ListenerList()
        self._steering = MessageQueue()
        self._follow_ups = MessageQueue()
        self._idle: anyio.Event | None = None

    # --- running -----------------------------------------------------------------------------

    async def prompt(
        self,
        prompt: str | Message | Sequence[str | Message],
        *,
        run_id: str | None = None,
        settings: SettingsSource | None = None,
    ) -> RunResult[OutputT]:
        """Say something and run until the model has nothing more to do.

        ``settings`` hold for this run, over those of the model and of the agent. Abort, limits and a failing model are
        results (``RunResult.outcome``). A cancellation from outside leaves as itself when the record is complete, and
        so does what a listener or the store raises. Raises ``AgentBusy`` while a run goes on, ``EmptyPrompt`` if there
        is nothing in the prompt. A checkpoint.
        """
        messages = as_messages(prompt)
        run = self._begin("prompt()", run_id, settings)
        return await self._go(run, messages)

    async def resume(self, *, run_id: str | None = None) -> RunResult[OutputT]:
        """Let the model go on from the transcript as it is, or from what is queued.

        Where the transcript ends with a message of the model's that was cut short, it is asked to go on.
        A stored thread whose run was suspended goes on with the calls that have been answered meanwhile, or whose time
        to be answered is over. Raises ``NothingToResume`` if the transcript is empty, or ends with a finished answer
        and nothing is queued; ``RequestsPending`` if every call that waits still has to; ``AgentBusy`` while a run goes
        on. A checkpoint.
        """
        self._refuse_busy("resume()")
        thread = self.state.thread
        if thread is None:
            self._refuse_nothing_to_resume()
        run = self._begin("resume()", run_id)

        async def work() -> None:
            if thread is not None and thread.requests:
                waiting = _still_waiting(thread.waiting)
                if len(waiting) == len(thread.requests):
                    thread.refuse_waiting("resume()")
                await finish_batch(run, waiting)
                await self._go_on(run)
                return
            self._refuse_nothing_to_resume()
            queued = [] if self._steering else self._follow_ups.take(self.follow_up_mode)
            await run_loop(run, queued or self._call_to_go_on(), self._steering, self._follow_ups)

        return await self._execute(run, work)

    def _call_to_go_on(self) -> list[Message]:
        """What is said to a model whose own message was cut short: vendors refuse a request that ends with one."""
        last = self.state.transcript[-1] if self.state.transcript else None
        if self._steering or not isinstance(last, AssistantMessage):
            return []
        metadata = {"synthetic": True, "synthetic_source": "resume"}
        return [UserMessage(content=[TextContent(text=_GO_ON)], metadata=metadata)]

    def _refuse_nothing_to_resume(self) -> None:
        if self._steering or self._follow_ups:
            return
        last = self.state.transcript[-1] if self.state.transcript else None
        if last is None:
            raise NothingToResume("the transcript is empty")
        if isinstance(last, AssistantMessage) and last.stop_reason not in CUT_STOP_REASONS:
            raise NothingToResume("the model has said its last word")

    def stream(
        self,
        prompt: str | Message | Sequence[str | Message],
        *,
        run_id: str | None = None,
        settings: SettingsSource | None = None,
    ) -> RunStream:
        """The same run as ``prompt()``, as a context manager whose iteration gives the events.

        ::

            async with agent.stream("...") as run:
                async for event in run:
                    ...
                result = await run.result()

        The run starts when the block is entered; leaving the block aborts it and waits until it has settled.
        """
        messages = as_messages(prompt)

        def begin() -> Run:
            return self._begin("stream()", run_id, settings)

        return RunStream(begin, lambda run: self._go(run, messages, in_own_task=True), self._listeners)

    def _begin(self, what: str, run_id: str | None, settings: SettingsSource | None = None) -> Run:
        self._refuse_busy(what)
        state, listeners = self.state, self._listeners
        config = self._config(settings)
        state.run = run = Run(config, state.transcript, listeners, run_id=run_id, store=state.thread, notes=state.notes)
        return run

    def _refuse_busy(self, what: str) -> None:
        if self.state.run is not None:
            raise AgentBusy(what)

    def _tool_sources(self) -> tuple[ToolSource, ...]:
        return (self.state.tool_source, *self._hooks.tools)

    def _config(self, settings: SettingsSource | None = None) -> AgentConfig:
        sources = self._tool_sources()
        return AgentConfig(
            model=self.state.model,
            system_prompt=self.state.system_prompt,
            tool_sources=sources,
            toolset=fixed_toolset(sources),
            tool_choice=self.tool_choice,
            tool_execution=self.tool_execution,
            limits=self.limits,
            reasoning=self.state.reasoning,
            settings=tuple(said for said in (self.settings, settings) if said is not None),
            hooks=self._hooks,
            on_payload=self.on_payload,
            on_response=self.on_response,
            steering_mode=self.steering_mode,
            follow_up_mode=self.follow_up_mode,
        )

    def _go(self, run: Run, prompts: list[Message], *, in_own_task: bool = False) -> Awaitable[RunResult[Any]]:
        return self._execute(run, partial(self._say, run, prompts), in_own_task=in_own_task)

    async def _say(self, run: Run, prompts: list[Message]) -> None:
        if self.state.thread is not None:
            self.state.thread.refuse_waiting("prompt()")
        await run_loop(run, prompts, self._steering, self._follow_ups)

    async def _execute(
        self, run: Run, work: Callable[[], Awaitable[None]], *, in_own_task: bool = False
    ) -> RunResult[Any]:
        """Do the work of a run, on its stored thread if there is one, and be idle afterwards."""
        thread = self.state.thread
        on_thread = work if thread is None else partial(_on_thread, run, thread, work)
        try:
            return await execute(run, on_thread, in_own_task=in_own_task)
        finally:
            self._be_idle()
            for message in run.put_off:
                self._steering.put(message)
            self.state.last_outcome, self.state.error = run.record.outcome, run.ending.model_error

    def _be_idle(self) -> None:
        self.state.run = None
        if self._idle is not None:
            self._idle.set()
            self._idle = None

    # --- threads -----------------------------------------------------------------------------

    async def load(self) -> list[Message]:
        """Read the stored thread and return its messages, mended if a process died over it. A checkpoint.

        Runs do this by themselves; call it to show a thread, or its ``pending_requests``, before the first one.
        Raises ``UsageError`` for an agent without a store, ``AgentBusy`` while a run goes on, and the store's errors.
        """
        self._refuse_busy("load()")
        await self._stored_thread("load()").load(self.state.transcript)
        return self.state.messages

    async def fork(self, new_thread_id: str, *, after_run_id: str | None = None) -> None:
        """Copy the stored thread, as it is or as it was when a run had ended, to another id. A checkpoint.

        Raises ``ThreadNotFound``, ``ThreadExists`` or ``RunNotEnded``.
        """
        thread = self._stored_thread("fork()")
        await thread.checkpointer.fork(thread.thread_id, new_thread_id, after_run_id=after_run_id)

    async def fork_once(self, prompt: str | Message | Sequence[str | Message]) -> RunResult[OutputT]:
        """Say something on a copy of the transcript, which is thrown away afterwards; nothing is stored.

        The copy has the same model, tools, hooks and limits. It may run while the agent does. A checkpoint.
        """
        config = self._config()
        run = Run(config, await self._mended_transcript(), ListenerList())
        messages = as_messages(prompt)
        return await execute(run, lambda: run_loop(run, messages, MessageQueue(), MessageQueue()))

    async def _mended_transcript(self) -> list[Message]:
        """A copy of the transcript in which every call is answered, also while a run goes on."""
        await checkpoint()
        return repaired(self.state.transcript)[0]

    def _stored_thread(self, what: str) -> StoredThread:
        if self.state.thread is None:
            raise UsageError(f"{what}: this agent has no store; give it checkpointer= and thread_id=")
        return self.state.thread

    # --- a person in the loop ----------------------------------------------------------------

    @property
    def pending_requests(self) -> list[PersonRequest]:
        """The questions of the stored thread that wait for a person, as far as they have been loaded."""
        return self.state.thread.waiting if self.state.thread is not None else []

    async def respond(self, request_id: str, answer: PersonAnswer, *, run_id: str | None = None) -> RunResult[OutputT]:
        """Answer a question of a suspended run and go on, as far as that is possible.

        The answer is stored, then the call it was for runs. While other calls of the batch wait, the run is suspended
        again; when none does, the model reads the results. Any process may answer.
        Raises ``UnknownRequest``, ``AlreadyAnswered``, ``RequestTimedOut`` (then ``resume()`` goes on without it),
        ``InvalidAnswer`` if the answer does not fit the question, and what ``prompt()`` raises. A checkpoint.
        """
        thread = self._stored_thread("respond()")
        run = self._begin("respond()", run_id)

        async def work() -> None:
            from ..types.person_answers import check_answer  # noqa: PLC0415 - brings models that few programs need

            request = thread.request(request_id).request
            if request.is_overdue(time.time()):
                raise RequestTimedOut(request.id, request.timeout_seconds or 0)
            await thread.save_answer(request_id, check_answer(request, answer))
            await finish_batch(run, _still_waiting(thread.waiting))
            await self._go_on(run)

        return await self._execute(run, work)

    async def withdraw_requests(self, reason: str = "", *, run_id: str | None = None) -> RunResult[OutputT]:
        """Give up the questions of a suspended run: its waiting calls are answered as refused, and the agent can go on.

        The model is not asked. Raises ``NothingToResume`` if nothing waits. A checkpoint.
        """
        thread = self._stored_thread("withdraw_requests()")
        run = self._begin("withdraw_requests()", run_id)

        async def work() -> None:
            await thread.clear(list(thread.requests))
            refusal = f"The call did not run: the question about it was withdrawn{f' ({reason})' if reason else '.'}"
            await finish_batch(run, (), refusal=refusal)

        return await self._execute(run, work)

    async def _go_on(self, run: Run) -> None:
        """Let the model read the results of a batch that is complete now."""
        if not run.must_stop:
            await run_loop(run, [], self._steering, self._follow_ups)

    # --- speaking into a run -----------------------------------------------------------------

    def abort(self, reason: str | None = None) -> None:
        """End the run that is going on, at whatever point: it returns ``outcome="aborted"`` when it has settled.

        Nothing happens if the agent is idle. Call it in the event loop's thread.
        """
        if self.state.run is not None:
            self.state.run.ending.abort(reason)

    def abort_tool_call(self, tool_call_id: str, reason: str | None = None) -> bool:
        """End one call; the run goes on, and the model reads that it was cancelled. ``False`` without such a call."""
        slots = self.state.run.calls.slots if self.state.run is not None else []
        for slot in slots:
            if slot.call.id == tool_call_id and slot.outcome is None:
                slot.abort(reason)
                return True
        return False

    def steer(self, message: str | Message) -> str:
        """Say something before the model's next answer, also in the middle of a run.

        Returns an id for ``retract``. What a run does not hear, the next one hears first.
        """
        return self._steering.put(as_messages(message)[0])

    def follow_up(self, message: str | Message) -> str:
        """Say something when the run would otherwise end. Returns an id for ``retract``."""
        return self._follow_ups.put(as_messages(message)[0])

    def retract(self, queued_id: str) -> bool:
        """Take back what was queued; ``False`` if it has been said already."""
        return self._steering.retract(queued_id) or self._follow_ups.retract(queued_id)

    @property
    def queued_messages(self) -> list[Message]:
        """What is queued and not yet said: steering first, then follow-ups."""
        return [*self._steering.messages, *self._follow_ups.messages]

    # --- watching ----------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have ``listener`` called with ``(event, signal)``, or ``(event)``, for every event of every run.

        Plain or async; one event at a time, in one order for all. An async listener holds the run back and is
        cancelled with it. What a listener raises ends the run and reaches its caller. Returns the function that
        unsubscribes.
        """
        return self._listeners.subscribe(listener)

    def use(self, middleware: Middleware) -> Callable[[], None]:
        """Add a middleware, innermost of all; returns the function that takes it away again.

        Both hold from the next ``prompt()``, ``stream()``, ``resume()`` or ``respond()``, never in a run that goes on.
        Raises ``DuplicateToolName`` if it brings a tool whose name is taken.
        """
        before = self._middleware
        self._set_middleware((*before, middleware))
        try:
            fixed_toolset(self._tool_sources())
        except Exception:
            self._set_middleware(before)
            raise

        is_there = True

        def take_away() -> None:
            nonlocal is_there
            if is_there:
                is_there = False
                place = max(i for i, one in enumerate(self._middleware) if one is middleware)
                self._set_middleware((*self._middleware[:place], *self._middleware[place + 1 :]))

        return take_away

    def _set_middleware(self, middleware: tuple[Middleware, ...]) -> None:
        self._middleware = middleware
        self._hooks = compose(middleware)

    def between_runs(self) -> BetweenRuns:
        """Claim the idle agent, and its stored thread, for a block: no run can begin meanwhile, here or elsewhere.

        ::

            async with agent.between_runs() as ctx:
                ctx.notes["summary"] = await summarise(ctx.messages)

        The block is given a ``RunContext``; nothing is said to listeners. Notes that changed are stored when it is
        left, under the claim, however it is left. Entering raises ``AgentBusy`` while a run goes on, and what the store
        raises.
        """
        return BetweenRuns(lambda: self._begin("between_runs()", None), self._be_idle, self.state.thread)

    async def wait_for_idle(self) -> None:
        """Return when no run is going on. A checkpoint."""
        if self.state.run is None:
            await checkpoint()
        while self.state.run is not None:
            if self._idle is None:
                self._idle = anyio.Event()
            await self._idle.wait()

    def reset(self) -> None:
        """Forget the transcript and what is queued. Raises ``AgentBusy`` while a run goes on."""
        self._refuse_busy("reset()")
        self.state.transcript = []
        self.state.error = self.state.last_outcome = None
        self._steering.clear()
        self._follow_ups.clear()


def _still_waiting(requests: Sequence[PersonRequest]) -> list[PersonRequest]:
    """The questions whose time is not over."""
    now = time.time()
    return [request for request in requests if not request.is_overdue(now)]


async def _on_thread(run: Run, thread: StoredThread, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work of a run while its claim on the thread is kept."""
    run.on_settled = thread.close
    await thread.open(run.id, run.record.messages)

    async def keep() -> None:
        try:
            await thread.keep_claim()
        except Exception as error:
            # Not raised here: the work often fails of the same in the same moment, and one failure is one error.
            run.ending.fail(error)

    async def work_and_stop() -> None:
        await work()
        keeping.cancel()

    with anyio.CancelScope() as keeping:
        await run_in_tasks((keep, work_and_stop))


def _stored(
    checkpointer: Checkpointer | None,
    thread_id: str | None,
    messages: Sequence[Message] | None,
    lease_seconds: float,
) -> StoredThread | None:
    if checkpointer is None and thread_id is None:
        return None
    if checkpointer is None or not thread_id:
        raise UsageError("checkpointer= and thread_id= belong together: a thread is kept in a store under its id")
    if messages:
        raise UsageError("messages= and checkpointer= exclude each other: a stored thread has its own messages")
    return StoredThread(checkpointer, thread_id, lease_seconds=lease_seconds)


def _bound(model: StreamingModel | Model, provider: Provider | None) -> StreamingModel:
    if isinstance(model, Model):
        if provider is None:
            raise TypeError("a Model needs its provider: Agent(provider=..., model=...), or use provider.model('...')")
        return BoundModel(provider, model)
    if provider is not None:
        raise TypeError("the model is bound to its provider already; leave the provider out")
    return model
