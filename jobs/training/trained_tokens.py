"""The trained tokens of each demonstration, counted by a program of its own: a dry run loads no training library."""

import json
import sys

from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.demonstrations import encode_demonstrations
from exgrpo.jobs.training.engines.tokenizer import load_tokenizer
from exgrpo.jobs.training.run_data import open_data
from exgrpo_core.errors import UserError, first_line


def count_trained_tokens(spec: TrainSpec) -> dict[str, int]:
    """Return the row of each demonstration with the number of its tokens that are imitated.

    Raises:
        DataError: A row cannot be used, or the template cannot write one of its fields.
        EngineError: The model has no tokenizer that can be read.
    """
    data = open_data(spec)
    tokenizer = load_tokenizer(data.model_source, spec.model.revision)
    questions, _ = data.encode(tokenizer)
    rows = encode_demonstrations(spec, questions, tokenizer)
    numbers = [str(question.metadata.get("row", question.index + 1)) for question in questions]
    return {number: sum(turn.token_ids.size for turn in row) for number, row in zip(numbers, rows, strict=True)}


def main() -> None:
    """Read a specification from standard input and write a line of JSON."""
    found: dict[str, object]
    try:
        found = {"rows": count_trained_tokens(TrainSpec.model_validate_json(sys.stdin.read()))}
    except UserError as error:
        found = {"error": first_line(error)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
