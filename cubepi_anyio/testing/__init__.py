"""Tools for testing what is built on agents: every run ended at every step, and what is checked then."""

from .context import RunByHand as RunByHand
from .context import run_context as run_context
from .event_order import EventOrder as EventOrder
from .event_order import check_events as check_events
from .guarantees import GUARANTEES as GUARANTEES
from .sweeps.cancellation import Fault as Fault
from .sweeps.cancellation import MakeScenario as MakeScenario
from .sweeps.cancellation import SweepReport as SweepReport
from .sweeps.cancellation import endings_here as endings_here
from .sweeps.cancellation import sweep as sweep
from .sweeps.endings import Ending as Ending
from .sweeps.scenario import Check as Check
from .sweeps.scenario import EndedRun as EndedRun
from .sweeps.scenario import Scenario as Scenario
from .transcript import check_transcript as check_transcript
