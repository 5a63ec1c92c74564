"""Data sets by name or folder, whose cards lead to no address."""

from typing import Any

_ALLOWED_PROTOCOLS = frozenset({"file", "hf", "local", "zip"})


def load_data_set(source: str, config: str | None = None, *, split: str, streams: bool = False) -> Any:  # noqa: ANN401 - the library's classes have no types
    """Return a split of a data set; `streams` downloads only what is read.

    Raises:
        OSError, ValueError, KeyError, datasets.exceptions.DatasetsError: It cannot be loaded, or its card names files
            at an address.
    """
    import datasets
    from fsspec.registry import known_implementations

    # A card's `data_files` may be any address that fsspec knows, those of inner services included.
    for protocol in known_implementations.keys() - _ALLOWED_PROTOCOLS:
        del known_implementations[protocol]
    return datasets.load_dataset(source, config, split=split, streaming=streams)
