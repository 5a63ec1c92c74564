from app.components.chains_of_thought.validity import near_miss_sentence
from db.rows.chains_of_thought import WrongAnswer
from jobs.analysis.validity import ReadAnswer

ANSWER = WrongAnswer(1, 1, 0, "prompt", {}, "text", 0.1, 0.5)


def test_the_only_step_of_a_question_is_no_near_miss():
    steps = [(2, 2), (1, 2), (0, 1), (0, 1), (0, 2)]
    sentence = near_miss_sentence([ReadAnswer(ANSWER, num_good, num_steps) for num_good, num_steps in steps])
    assert sentence.startswith("Of the newest **5** wrong answers that the oracle reads, **1** have")
    assert sentence.endswith("**1** have one fewer, but at least one.")
