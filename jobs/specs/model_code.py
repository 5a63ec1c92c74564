"""Whether a configuration file of a model names code or kernels from a hub, however deep inside."""

CONFIG_FILES = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
"""Files in which transformers and vLLM look for the names of code."""
SETTINGS_FILES = (*CONFIG_FILES, "generation_config.json")
"""All files of settings, each a mapping in JSON."""
_AUTO_MAP = "auto_map"
_ATTENTION = "attn_implementation"


def named_code(content: object) -> str | None:
    """Return the field that names code, None if no field of the configuration does.

    `auto_map` names Python files of a model's folder. An attention with a slash is a repository of compiled kernels,
    which transformers would fetch and run.
    """
    rest = [content]
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            rest += item
        if not isinstance(item, dict):
            continue
        for name, value in item.items():
            if name == _AUTO_MAP or (str(name).endswith(_ATTENTION) and _has_slash(value)):
                return str(name)
            rest.append(value)
    return None


def _has_slash(value: object) -> bool:
    """Whether a text has a slash, or one in a mapping of texts, as a model of several parts has it."""
    texts = value.values() if isinstance(value, dict) else [value]
    return any(isinstance(text, str) and "/" in text for text in texts)
