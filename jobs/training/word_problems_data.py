"""Generated stories as a run's questions: put to the model like the rows of a data set."""

from dataclasses import dataclass

from exgrpo_core.types import Question
from jobs.specs.train import DataSpec
from jobs.tasks.word_problems.question_set import make_question, make_stories
from jobs.tasks.word_problems.story import Story
from jobs.training.data_rows import DataError
from jobs.training.dataset import DataSource, encode_made
from jobs.training.templates import PromptTokenizer, TemplateName

DEFAULT_NUM_MADE = 512
"""Made questions of a specification that asks for all of them."""


@dataclass(frozen=True, slots=True)
class WordProblemsData:
    """Stories to train on and held-out ones, which have sets of numbers of their own."""

    spec: DataSpec
    max_prompt_tokens: int
    model_source: str

    def encode(self, tokenizer: PromptTokenizer) -> tuple[list[Question], list[Question]]:
        """Return the questions to train on and those held out.

        Raises:
            DataError: A prompt is too long, or there are too few stories.
        """
        num_questions = self.spec.num_questions or DEFAULT_NUM_MADE
        training = draw_stories(self.spec, num_questions, is_held_out=False)
        stories = [*training, *draw_stories(self.spec, self.spec.num_held_out, is_held_out=True)]
        made = [make_question(index, story, tokenizer) for index, story in enumerate(stories)]
        source = DataSource(self.spec.source, template=TemplateName(self.spec.template))
        questions = encode_made(made, source, tokenizer, self.max_prompt_tokens)
        return questions[:num_questions], questions[num_questions:]


def draw_stories(data: DataSpec, num_stories: int, *, is_held_out: bool) -> list[Story]:
    """Return the first stories of a specification, to train on or held out.

    Raises:
        DataError: There are too few.
    """
    limits = (data.min_operations, data.max_operations, data.number_size)
    try:
        return make_stories(num_stories, data.seed, *limits, is_held_out=is_held_out)
    except ValueError as error:
        raise DataError(f"data: {error}") from error
