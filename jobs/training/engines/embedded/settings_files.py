"""What is refused in the settings files of a model before an engine loads it."""

from transformers import PreTrainedConfig
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from exgrpo.jobs.training.pretrained.model_shapes import SETTINGS_FILES, named_code, read_settings
from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.errors import EngineError


def refuse_remote_code(source: str, revision: str | None = None) -> None:
    """Refuse a model whose folder or hub repository names code, or has a settings file that is no mapping in JSON.

    Raises:
        EngineError: It is one.
        OSError: It cannot be found.
    """
    try:
        for name in SETTINGS_FILES:
            read_settings(source, name, revision)
    except UnreadableFileError as error:
        raise EngineError(str(error), "model.source") from None
    settings = {
        "config.json": PreTrainedConfig.get_config_dict(source, revision=revision)[0],
        "tokenizer_config.json": get_tokenizer_config(source, revision=revision),
    }
    for name, content in settings.items():
        field = named_code(content)
        if field is not None:
            raise EngineError(
                f"{source} comes with code ({field} in {name}), which is never run; choose a model "
                "whose architecture transformers knows.",
                "model.source",
            )
