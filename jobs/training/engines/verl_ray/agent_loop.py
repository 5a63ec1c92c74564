"""The plug-in's agent loop, which also decodes each response for graders, recorder and pages.

Agent loops are many and the driver is one, which decoding kept busier than all else that it does with a token. Every
process of verl imports this module before it builds a model (`model.external_lib`). Most of the process's modules are
there by then, so Python's collector is as usual from here on.
"""

from functools import cache
from typing import Any

from exgrpo.jobs.specs.verl import TEXT_AGENT_NAME
from exgrpo.jobs.training.engines.tokenizer import load_tokenizer, response_texts
from exgrpo_core.process_memory import collect_as_usual
from exgrpo_core.verl_plugin.agent_loop import PromptTokensLoop, register_loop

# verl's loader applies rules of the model's family to a plain tokenizer, which drop characters.
_load_once = cache(load_tokenizer)


@register_loop(TEXT_AGENT_NAME)
class TextLoop(PromptTokensLoop):
    """One request to the generating servers, and the text of the answer."""

    def __init__(self, trainer_config: Any, **verl: Any) -> None:
        super().__init__(**verl)
        self._tokenizer = _load_once(trainer_config.config.actor_rollout_ref.model.path)

    async def run(self, sampling_params: dict[str, Any], **prompt: Any) -> Any:
        """Generate one response and decode it."""
        output = await super().run(sampling_params, **prompt)
        ends = map(int, prompt["end_token_ids"])
        output.extra_fields["text"] = response_texts(self._tokenizer, [output.response_ids], ends)[0]
        return output


collect_as_usual()
