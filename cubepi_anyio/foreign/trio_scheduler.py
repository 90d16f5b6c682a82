"""trio: the random generator that chooses among tasks which are ready in the same step.

Why: a sweep repeats an order of the scheduler by seeding it. Used for tests only.

What replaces it: ``trio.run(seed=...)`` or the like (python-trio/trio#2675, open; the design is discussed in
python-trio/trio#32). The generator is a module's global so that test tools can seed it (python-trio/trio#840).
"""

from __future__ import annotations

import sys
from random import Random

__all__ = ("seed_scheduler",)


def seed_scheduler(seed: int) -> None:
    """Repeat the order in which trio runs tasks that are ready in the same step.

    A trio that keeps its generator elsewhere is left as it is: then equal seeds repeat nothing.
    """
    generator = getattr(sys.modules.get("trio._core._run"), "_r", None)
    if isinstance(generator, Random):
        generator.seed(seed)
