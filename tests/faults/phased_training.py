"""A training run in a process of its own that says which phase it enters, so that a kill can meet every phase."""

import os
import signal
import time

from exgrpo.jobs.training.training_loop import TrainingLoop
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests.faults.small_training import EightNumbers, StepControl, small_parts

PHASES = {"o": "opening", "r": "rollout", "s": "score", "u": "update", "c": "collecting", "w": "checkpoint"}
"""A run's phases by the letter that says them; an evaluation, `e`, is one of its steps' too."""
PHASE_SECONDS = 0.004
MAX_PHASES = 80


class PhasedNumbers(EightNumbers):
    """`EightNumbers` whose phases take their time and are said in a pipe."""

    def __init__(self, say, seconds=None):
        super().__init__()
        self._say = say
        self._seconds = seconds or {}

    def _enter(self, letter):
        self._say(letter)
        time.sleep(self._seconds.get(letter, PHASE_SECONDS))

    def rollout(self, *arguments):
        self._enter("r")
        return super().rollout(*arguments)

    def entropies(self, *arguments):
        self._enter("s")
        return super().entropies(*arguments)

    def update(self, *arguments):
        self._enter("u")
        metrics = super().update(*arguments)
        self._say("c")
        return metrics

    def save(self, directory):
        super().save(directory)
        self._enter("w")

    def generate_for_evaluation(self, *arguments):
        self._enter("e")
        return super().generate_for_evaluation(*arguments)


class Trainer:
    """A forked process that trains one attempt of a run until it is killed."""

    def __init__(self, run):
        self._phases, said = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._phases)
                _train(run, lambda letter: os.write(said, letter.encode()))
            finally:
                os._exit(0)
        os.close(said)

    def phases(self):
        while letter := os.read(self._phases, 1).decode():
            yield letter

    def kill_in(self, phase, chance, num_before):
        """Kill -9 at a random moment after a phase was entered `num_before` + 1 times; return the phase it was in.

        A run that has retired all its questions scores nothing any more: it is killed in another phase.
        """
        for number, letter in enumerate(self.phases()):
            num_before -= letter == phase
            if num_before < 0 or number == MAX_PHASES:
                break
        time.sleep(chance.uniform(0.0, 2 * PHASE_SECONDS))
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status), "the run ended before the kill"
        last = [phase, *(letter for letter in self.phases() if letter in PHASES)][-1]
        os.close(self._phases)
        return PHASES[last]


def _train(run, say):
    say("o")
    recorder = FileRecorder(run, run.claim_attempt(), run.spec().recording)
    recorder.status(RunStatus.RUNNING)
    TrainingLoop(run.spec(), run.path, small_parts(PhasedNumbers(say)), recorder, StepControl()).run()
