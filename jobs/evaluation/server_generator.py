"""Answers from a server that speaks OpenAI's completions interface, such as `vllm serve MODEL`."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

import httpx2

from exgrpo.jobs.evaluation.generation import (
    PromptedQuestion,
    Sample,
    SampledQuestion,
    derive_seed,
    num_asked,
    repeat_greedy,
)
from exgrpo.jobs.machine.model_server import (
    RETRIABLE_STATUSES,
    AddressRefusedError,
    check_address,
    key_for,
    without_key,
)
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.evaluation import API_KEY_VARIABLE, EvalSpec, ServerSpec

FIRST_WAIT_SECONDS = 0.5
"""Wait before the second try; each further one is twice as long."""
QUESTIONS_AHEAD = 8
"""Batches hold so many questions for each request that may be under way."""


FURTHER_SETTINGS = {"skip_special_tokens": False, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Settings of vLLM, SGLang and others, which strict servers refuse by name.

They keep think tags that are special tokens, and nothing but temperature and top_p shapes the answers: without them a
server takes what the model's generation_config.json recommends.
"""
logger = logging.getLogger(__name__)


class ServerGenerator:
    """Asks for all answers to a question in one request, `num_parallel` questions at once; yields them as they come."""

    def __init__(self, server: ServerSpec, spec: EvalSpec, max_samples: int) -> None:
        """Check the server's address.

        Raises:
            TrainingError: It is link-local, or may not get the API key.
        """
        try:
            check_address("server.address", server.address)
            key = self._key = key_for(server.address, API_KEY_VARIABLE)
        except AddressRefusedError as error:
            raise TrainingError(str(error)) from None
        self._server = server
        self._spec = spec
        self._refused: set[str] = set()
        self.num_at_once = QUESTIONS_AHEAD * server.num_parallel * max_samples
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx2.Limits(max_connections=server.num_parallel)
        # No proxies of the environment, and no redirects: both could lead to another address.
        self._http = httpx2.Client(
            trust_env=False, headers=headers, limits=limits, timeout=server.timeout_seconds, follow_redirects=False
        )
        self._threads = ThreadPoolExecutor(server.num_parallel, thread_name_prefix="completions")

    def generate(
        self, batch: Sequence[PromptedQuestion], wanted: frozenset[str], num_samples: int, seed: int
    ) -> Iterator[SampledQuestion]:
        """Yield the wanted questions' answers as the server gives them.

        Raises:
            TrainingError: The server refuses, cannot be reached after several tries, or gives fewer answers than asked.
        """
        pending: list[Future[SampledQuestion]] = [
            self._threads.submit(self._ask, question, num_samples, derive_seed(seed, question.question_id))
            for question in batch
            if question.question_id in wanted
        ]
        try:
            for done in as_completed(pending):
                yield done.result()
        finally:
            for future in pending:
                future.cancel()

    def close(self) -> None:
        """Wait for requests under way and close the connections."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._http.close()

    def _ask(self, question: PromptedQuestion, num_samples: int, seed: int) -> SampledQuestion:
        num_wanted = num_asked(question, num_samples)
        body = {
            "model": self._server.model,
            "n": num_wanted,
            "temperature": question.temperature,
            "top_p": self._spec.top_p,
            "max_tokens": self._spec.max_response_tokens,
            "seed": seed,
        }
        is_chat = question.prompt_text is None
        prompt = {"messages": list(question.messages)} if is_chat else {"prompt": question.prompt_text}
        choices, usage = self._post("chat/completions" if is_chat else "completions", body | prompt)
        if len(choices) != num_wanted:
            raise TrainingError(
                f"{self._server.address}: gave {len(choices)} answers where {num_wanted} were asked for; the server "
                "does not sample several answers a request (n)."
            )
        mean_tokens = usage // num_wanted
        samples = [self._sample(choice, is_chat, mean_tokens) for choice in choices]
        return SampledQuestion(question.question_id, seed, repeat_greedy(samples, num_samples))

    def _post(self, path: str, body: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
        """Return choices and the number of their tokens in all."""
        wait = FIRST_WAIT_SECONDS
        failure = ""
        num_tries = 0
        while num_tries < self._server.num_tries:
            sent = {name: value for name, value in FURTHER_SETTINGS.items() if name not in self._refused}
            try:
                response = self._http.post(f"{self._server.address.rstrip('/')}/{path}", json=body | sent)
            except httpx2.HTTPError as error:
                failure = type(error).__name__
            else:
                if response.status_code == httpx2.codes.OK:
                    return _read_answer(self._server.address, response)
                failure = (
                    f"status {response.status_code}: {without_key(' '.join(response.text.split()), self._key)[:200]}"
                )
                if response.status_code not in RETRIABLE_STATUSES:
                    refused = {name for name in sent if name in response.text}
                    if not refused:
                        break
                    self._leave_out(refused)
                    continue
            num_tries += 1
            time.sleep(wait)
            wait *= 2
        raise TrainingError(f"{self._server.address}: gives no answers ({failure}); check server.address and model.")

    def _leave_out(self, names: set[str]) -> None:
        if new := sorted(names - self._refused):
            logger.warning("%s: does not take %s; its own settings count.", self._server.address, ", ".join(new))
            self._refused |= names

    def _sample(self, choice: dict[str, Any], is_chat: bool, mean_tokens: int) -> Sample:
        text = choice["message"]["content"] if is_chat else choice["text"]
        num_tokens = len(choice["token_ids"]) if isinstance(choice.get("token_ids"), list) else mean_tokens
        answer = without_key(str(text or ""), self._key)
        return Sample(answer, num_tokens, choice.get("finish_reason") == "length")


def _read_answer(address: str, response: httpx2.Response) -> tuple[list[dict[str, Any]], int]:
    try:
        document = response.json()
        return list(document["choices"]), int((document.get("usage") or {}).get("completion_tokens") or 0)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise TrainingError(f"{address}: answers something else than completions; check server.address.") from None
