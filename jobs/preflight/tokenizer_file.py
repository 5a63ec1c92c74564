"""A model's tokenizer from its tokenizer.json alone, which loads no training library."""

from pathlib import Path
from typing import TYPE_CHECKING

from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.errors import first_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # type: ignore[import-untyped]


def read_tokenizer(path: Path) -> "Tokenizer":
    """Return the tokenizer of a file.

    Raises:
        UnreadableFileError: The file is damaged.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the reader raises bare exceptions, and for some files a panic of Rust's
        raise UnreadableFileError(f"{path}: is no tokenizer ({first_line(error)}); use another copy.") from error
