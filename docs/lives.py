"""What a delta, a call, an abort and a stored result pass through: the data behind the drawings of ``design/life.md``.

Every step is a function of the package. ``tests/docs/test_lives.py`` traces a real run of each on both backends: the
steps are passed in this order, and those of one lane in one task. ``docs/pictures.py`` draws them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One function on the way: where it stands, its name, and what it does, in a few words."""

    lane: int
    path: str
    name: str
    words: str


@dataclass(frozen=True)
class Life:
    """One drawing."""

    title: str
    lanes: tuple[str, ...]
    """Whose tasks the steps run in."""
    steps: tuple[Step, ...]


DELTA = Life(
    "The life of a delta",
    ("the task that produces the answers of the run", "the run's task"),
    (
        Step(0, "providers/http/client.py", "HttpResponse.__anext__", "a chunk has come"),
        Step(0, "providers/http/sse.py", "SSEDecoder.feed", "bytes become frames"),
        Step(0, "providers/anthropic/response.py", "AnthropicReader.feed", "a frame of the vendor's"),
        Step(0, "stream/draft.py", "DraftWriter.append", "becomes an event of ours"),
        Step(0, "stream/message_stream.py", "MessageStream.push", "handed over, without waiting"),
        Step(0, "stream/builder.py", "MessageBuilder.apply", "the message grows"),
        Step(0, "stream/buffer.py", "EventBuffer.put", "the reader wakes"),
        Step(0, "stream/message_stream.py", "MessageStream.wait_writable", "waits if 64 are unread"),
        Step(1, "agent/silence.py", "Silence.end", "the model has said something"),
        Step(1, "agent/record.py", "Record.relay", "read, and to be announced"),
        Step(1, "agent/outbox.py", "Outbox.say", "in the one order of the run"),
        Step(1, "agent/outbox.py", "Outbox._tell", "every listener hears of it"),
        Step(1, "stream/buffer.py", "EventBuffer.take_nowait", "what lies ready is read at once"),
        Step(1, "agent/silence.py", "Silence.begin", "nothing is ready: its time runs"),
        Step(1, "stream/buffer.py", "EventBuffer.take", "waits, and lets the producer on"),
    ),
)

CALL = Life(
    "The life of a call",
    ("the run's task", "the call's task"),
    (
        Step(0, "agent/turn.py", "run_turn", "the answer is complete, and has calls"),
        Step(0, "agent/calls.py", "Calls.open", "asked: a slot for each"),
        Step(0, "agent/turn.py", "run_calls", "who may run, and how"),
        Step(0, "tools/run/batch.py", "run_parallel", "all at once"),
        Step(0, "agent/calls.py", "Calls.calls_started", "announced: tool_execution_start"),
        Step(0, "concurrency/tasks.py", "run_in_tasks", "a task for each"),
        Step(1, "tools/run/call.py", "run_call", "brings it to its end"),
        Step(1, "tools/run/call.py", "_reach_outcome", "opens the scope of the call"),
        Step(1, "tools/run/call.py", "_prepare", "preparing: tool and arguments"),
        Step(1, "tools/run/call.py", "_execute", "running: deadline, errors"),
        Step(1, "tools/run/call.py", "_begin", "async, thread or cooperative"),
        Step(1, "concurrency/awaitables.py", "WatchedCoroutine.__await__", "your code, and what is thrown into it"),
        Step(1, "tools/run/outcome.py", "CallOutcome.finished", "ended: the outcome is in the slot"),
        Step(1, "agent/calls.py", "Calls.call_ended", "at once, whatever the others do"),
        Step(1, "agent/calls.py", "Calls._keep_result", "its message is made"),
        Step(1, "agent/outbox.py", "Outbox.keep", "stored, before"),
        Step(1, "agent/outbox.py", "Outbox.say", "closed: tool_execution_end is said"),
        Step(0, "agent/calls.py", "Calls.finish", "all have ended"),
        Step(0, "agent/calls.py", "Calls._answer", "results in the order of the calls"),
        Step(0, "agent/calls.py", "Calls._say_result", "answered: in the transcript"),
        Step(0, "agent/record.py", "Record.finish_turn", "turn_end"),
    ),
)

ABORT = Life(
    "The life of an abort",
    ("whoever aborts", "the call's task", "the run's task"),
    (
        Step(0, "agent/agent.py", "Agent.abort", "in any task of the event loop"),
        Step(0, "agent/ending.py", "Ending.abort", "too late once the run settles"),
        Step(0, "agent/ending.py", "Ending._take", "the cause stands, if it is the strongest"),
        Step(0, "concurrency/abort_signal.py", "AbortSource.set", "the signal is set"),
        Step(0, "agent/calls.py", "Calls._all_cancelled", "the time of running calls runs"),
        Step(0, "agent/watchdog.py", "Watchdog.watch", "a warning, should one go on"),
        Step(1, "tools/run/call.py", "_note_cancellation", "the scope of the run was cancelled"),
        Step(1, "tools/run/call.py", "_interrupt", "the tool has cleaned up and gone"),
        Step(1, "agent/calls.py", "Calls.call_interrupted", "closed on the way out"),
        Step(1, "tools/run/outcome.py", "CallOutcome.cancelled", "an error result that says why"),
        Step(1, "agent/calls.py", "Calls._close", "kept and announced, like any other"),
        Step(2, "agent/run.py", "Run.outcome_now", "the run's scope has been left"),
        Step(2, "agent/settle.py", "settle", "cannot be cancelled, and has an end"),
        Step(2, "agent/outbox.py", "Outbox.hold", "nobody is told while the record is closed"),
        Step(2, "agent/record.py", "Record.finish_answer", "what had come of an open answer"),
        Step(2, "agent/calls.py", "Calls.finish", "an outcome for each, results in order"),
        Step(2, "agent/record.py", "Record.finish_turn", "turn_end"),
        Step(2, "agent/record.py", "Record.finish_agent", "agent_end, the last event"),
        Step(2, "agent/outbox.py", "Outbox.drain_now", "now all of it is announced"),
        Step(2, "agent/run.py", "Run.result", "outcome aborted, no exception"),
    ),
)

STORED = Life(
    "The life of a stored result",
    ("the call's task", "another process, later"),
    (
        Step(0, "agent/calls.py", "Calls.call_ended", "the tool has returned"),
        Step(0, "agent/calls.py", "Calls._keep_result", "the message that answers the call"),
        Step(0, "agent/outbox.py", "Outbox.keep", "to be stored, before"),
        Step(0, "agent/outbox.py", "Outbox.say", "tool_execution_end: it has to wait"),
        Step(0, "agent/outbox.py", "Outbox.flush", "one at a time"),
        Step(0, "agent/outbox.py", "Outbox._deliveries", "messages first, then events"),
        Step(0, "agent/outbox.py", "Outbox._store_all", "one batch"),
        Step(0, "agent/thread.py", "StoredThread.append", "with changed notes, under the claim"),
        Step(0, "checkpointers/sql/store.py", "SQLCheckpointer.append", "one transaction, in a worker thread"),
        Step(0, "checkpointers/codec.py", "encode_message", "as JSON"),
        Step(0, "checkpointers/sql/worker.py", "Connections.run", "whole or absent, also if cancelled"),
        Step(0, "agent/thread.py", "StoredThread._close_questions", "it is stored; then the event is heard"),
        Step(1, "agent/thread.py", "StoredThread.open", "claims the thread of the dead process"),
        Step(1, "checkpointers/sql/store.py", "SQLCheckpointer.claim_run", "once its lease is over"),
        Step(1, "agent/thread.py", "StoredThread.load", "reads the record"),
        Step(1, "checkpointers/sql/store.py", "SQLCheckpointer.load", "the result is in it"),
        Step(1, "types/transcript.py", "repaired", "it stands behind its call"),
        Step(1, "concurrency/tasks.py", "run_in_tasks", "the run goes on from there"),
    ),
)

LIVES = {"life-of-a-delta": DELTA, "life-of-a-call": CALL, "life-of-an-abort": ABORT, "life-of-a-stored-result": STORED}
"""Each by the name of its picture."""
