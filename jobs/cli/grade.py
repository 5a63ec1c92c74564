"""The command that grades one answer."""

from typing import Annotated

import typer

from exgrpo.jobs.cli.options import AsJson, print_json, print_result, print_status
from exgrpo.jobs.specs.base import AnswerKind
from exgrpo.jobs.tasks.grading.answer_grader import Scheme, grade_answer


def grade(
    answer: Annotated[
        str,
        typer.Argument(
            metavar="ANSWER",
            help="A response or its answer. Write -- and then ANSWER last if it begins with -, as in "
            "`exgrpo grade --gold -5 -- -5`.",
        ),
    ],
    gold: Annotated[str, typer.Option("--gold", metavar="GOLD", help="The correct answer.")],
    grading: Annotated[
        Scheme, typer.Option(help="Rules of rewards (training) or of published scores (paper).")
    ] = Scheme.TRAINING,
    kind: Annotated[
        AnswerKind, typer.Option(help="What the gold answer is: mathematics, or the label of an option.")
    ] = "math",
    as_json: AsJson = False,
) -> None:
    """Grade an answer as a run does. It prints the verdict and the rule that decided."""
    decision = grade_answer(answer, gold, grading, kind)
    if as_json:
        print_json(decision._asdict())
        return
    print_result(f"{decision.grade}: {decision.rule}")
    if "\\boxed" not in answer:
        print_status(
            r"ANSWER was graded as the content of a box. In a run a response without \boxed{...} earns nothing."
        )
