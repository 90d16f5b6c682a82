"""Tools for testing what is built on agents: every run ended at every step, and what is checked then."""

from .cancellation import Fault as Fault
from .cancellation import MakeScenario as MakeScenario
from .cancellation import SweepReport as SweepReport
from .cancellation import endings_here as endings_here
from .cancellation import sweep as sweep
from .endings import Ending as Ending
from .event_order import EventOrder as EventOrder
from .event_order import check_events as check_events
from .guarantees import GUARANTEES as GUARANTEES
from .scenario import Check as Check
from .scenario import EndedRun as EndedRun
from .scenario import Scenario as Scenario
from .transcript import check_transcript as check_transcript
