"""Structured concurrency as this package keeps it; nothing here knows of agents.

::

    caller's task  ──▶ run_in_own_task ───────────────────────────────────────────▶ outcome, as itself
                         │ a task group: whoever starts a task waits for it
    a run's task         └──▶ a turn ──▶ run_in_tasks ─────────────────▶ the next turn
                                           │ first error cancels the rest
    tasks of calls                         ├──▶ a tool ────▶ ended
                                           └──▶ a tool ─ ✗ cancelled ─▶ shielded(seconds): cleanup ─▶ ended

Five invariants hold everywhere. Each says what breaks without it.

1. *Whoever starts a task waits for it.* A task that outlives its starter uses what the starter has closed, and its
   error reaches nobody. So there are task groups only, and no way here to start a task without waiting.
2. *The state of the scopes says who was cancelled, never the type of an exception.* Foreign code raises cancellation
   errors of its own (a cancelled future), and turns real ones into others. ``surroundings_are_cancelled()`` asks the
   scopes. Who trusts the type ends a healthy run, or goes on in a cancelled one.
3. *A shield has an end.* Cleanup goes on under ``shielded(seconds)``, no longer. A shield without an end makes a
   program that cannot be stopped. ``run_to_end`` is the exception: for work that ends by itself and must be whole.
4. *Native cancellation is counted.* asyncio's ``Task.cancel()`` passes scopes and shields, is delivered once, and is
   forgotten where somebody swallows it. ``Task.cancelling()`` remembers. Foreign code therefore runs where only scopes
   cancel (``run_in_own_task``), or the count is compared after it (``hear_of_swallowed_cancellation``); and no task
   changes the count of another (``OwnCancelCount``). Otherwise ``asyncio.timeout()`` around a run never expires, or
   the caller's next await is cancelled for no reason.
5. *A request to exit is carried over.* ``KeyboardInterrupt`` and ``SystemExit`` raised by a task stop asyncio's event
   loop on the spot, past all cleanup. They are caught in the task, cancel its group, and leave from the waiting task.

What leaves a group leaves as itself (``bare_error``): a single error without a group around it, with its traceback.
"""

from ..foreign.anyio_scopes import OwnCancelCount as OwnCancelCount
from ..foreign.anyio_scopes import surroundings_are_cancelled as surroundings_are_cancelled
from ..foreign.asyncio_tasks import native_cancel_counter as native_cancel_counter
from .abort_signal import AbortSignal as AbortSignal
from .abort_signal import AbortSource as AbortSource
from .awaitables import NOTHING_TO_AWAIT as NOTHING_TO_AWAIT
from .awaitables import Deferred as Deferred
from .awaitables import WatchedCoroutine as WatchedCoroutine
from .native_cancellation import has_native_cancellation as has_native_cancellation
from .native_cancellation import hear_of_swallowed_cancellation as hear_of_swallowed_cancellation
from .native_cancellation import let_own_cancellation_pass as let_own_cancellation_pass
from .native_cancellation import native_cancel_requests as native_cancel_requests
from .tasks import bare_error as bare_error
from .tasks import holds_cancellation as holds_cancellation
from .tasks import run_in_group as run_in_group
from .tasks import run_in_own_task as run_in_own_task
from .tasks import run_in_tasks as run_in_tasks
from .tasks import run_to_end as run_to_end
from .tasks import shielded as shielded
