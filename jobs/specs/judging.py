"""Specification of a judge's job: chains of thought, judge, number of votes, and the spend cap."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from exgrpo.jobs.specs.base import Positive, Seed, ServerAddress, Spec, SpecError
from exgrpo.jobs.specs.train import RunName

API_KEY_VARIABLE = "EXGRPO_JUDGE_API_KEY"
"""Environment variable with the key of the judge's server; it is never part of a specification."""
PAPER_JUDGE = "Qwen/Qwen3-32B"


class JudgedSpec(Spec):
    """The chains of thought to judge: those of a training run, or of a file with human labels."""

    run_id: str | None = None
    """A training run."""
    file: Path | None = None
    """JSON lines with `id`, `problem`, `steps` and `label` (-1 if every step is right), to calibrate the judge on."""
    only_correct: bool = True
    """Judge answer-correct responses only, as the paper does."""
    first_step: Positive | None = None
    """First training step to judge; None is the first."""
    last_step: Positive | None = None
    """Last training step to judge; None is the last."""
    limit: Positive | None = None
    """Judge this many, drawn evenly by `seed`; None judges all."""
    seed: Seed = 0
    """Seed of the draw."""

    @model_validator(mode="after")
    def _check_source(self) -> "JudgedSpec":
        if (self.run_id is None) == (self.file is None):
            raise SpecError("give either a RUN or a file of labels.", "run_id", "file")
        return self


class JudgeServerSpec(Spec):
    """A server that speaks OpenAI's chat completions, such as `vllm serve Qwen/Qwen3-32B`."""

    address: ServerAddress
    """Address up to and with `/v1`; no user, password or query in it."""
    model: str = Field(PAPER_JUDGE, min_length=1)
    """Name under which the server knows the judge (the paper's: Qwen/Qwen3-32B)."""
    temperature: float = Field(0.6, ge=0)
    """Sampling temperature (the paper's: 0.6)."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Share of probability that is sampled from (the paper's: 0.95)."""
    max_tokens: Positive = 16384
    """Longest answer with its thought, in tokens; a longer one is cut off and gives no verdict."""
    num_parallel: Positive = 16
    """Parallel requests."""
    requests_per_minute: Positive | None = None
    """Most requests started in a minute; None sets no limit."""
    timeout_seconds: float = Field(600.0, gt=0)
    """Longest wait for one complete answer."""
    num_tries: Positive = 5
    """Tries of one question before it counts as unjudged."""
    retry_seconds: float = Field(1.0, ge=0)
    """Mean wait before the second try; it doubles with each further one."""
    max_requests: Positive | None = None
    """Spend cap: requests, retries counted."""
    max_total_tokens: Positive | None = None
    """Spend cap: prompt and answer tokens together, three bytes count as one; the server's count is ignored."""


class JudgeSpec(Spec):
    """One judge's job on some chains of thought."""

    kind: Literal["judge"] = "judge"
    name: RunName = "judge"
    """Name on pages."""
    judged: JudgedSpec
    judge: Literal["server", "oracle"] = "server"
    """A language model behind a server, or the oracle of a built-in task."""
    server: JudgeServerSpec | None = None
    """The server, for `judge: server`."""
    num_votes: Positive = 1
    """Verdicts on each response; the majority counts, a tie is unjudged."""
    tags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_together(self) -> "JudgeSpec":
        if (self.judge == "server") != (self.server is not None):
            raise SpecError("expected one exactly when judge is server.", "server")
        if self.judge == "oracle" and self.judged.run_id is None:
            raise SpecError("expected none with the oracle, which knows the built-in tasks only.", "judged.file")
        if self.judge == "oracle" and self.num_votes > 1:
            raise SpecError("expected 1 with the oracle, which always gives the same verdict.", "num_votes")
        return self
