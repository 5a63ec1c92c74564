"""A worker that runs the real loop around `EightNumbers`, slowed down so that a kill can meet it anywhere."""

import sys
import time

from exgrpo.jobs.execution.worker.__main__ import main
from exgrpo.jobs.training.training_loop import TrainingLoop
from tests.faults.small_training import EightNumbers, small_parts

STEP_SECONDS = 0.01
SAVE_SECONDS = 0.05


class SlowNumbers(EightNumbers):
    """`EightNumbers` that take their time."""

    def update(self, *arguments):
        time.sleep(STEP_SECONDS)
        return super().update(*arguments)

    def save(self, directory):
        time.sleep(SAVE_SECONDS / 2)
        super().save(directory)
        time.sleep(SAVE_SECONDS / 2)


def run_small(spec, run, recorder, control):
    return TrainingLoop(spec, run.path, small_parts(SlowNumbers()), recorder, control).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], {"embedded": lambda: run_small}))
