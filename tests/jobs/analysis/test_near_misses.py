from db.rows.chains_of_thought import WrongAnswer
from jobs.analysis.near_misses import read_wrong_answers
from jobs.tasks.word_problems.question_set import make_stories

CHAIN = "Q6a*2b+3:"


def wrong(text, prompt=CHAIN, details=None):
    return WrongAnswer(1, 1, 0, prompt, {"modulus": 10} if details is None else details, text, 0.1, 0.5)


def test_nearest_misses_come_first_and_steps_are_counted_up_to_the_first_fault():
    # 6 * 2 = 2 and 2 + 3 = 5, modulo 10.
    at_first, at_last, only_answer = r"6;a*2=3;b+3=6;\boxed{6}", r"6;a*2=2;b+3=6;\boxed{6}", r"6;a*2=2;b+3=5;\boxed{4}"
    read = read_wrong_answers([wrong(at_first), wrong(at_last), wrong(only_answer)])
    assert [item.answer.text for item in read] == [only_answer, at_last, at_first]
    assert [(item.num_good_steps, item.num_steps, item.num_missing) for item in read] == [
        (2, 2, 0),
        (1, 2, 1),
        (0, 2, 2),
    ]


def test_stories_are_read_by_their_oracle():
    (story,) = make_stories(1, 0, 2, 2, "small")
    details = {"data_source": "word_problems"} | story.details()
    assert read_wrong_answers([wrong("no step at all", details=details)]) == []
    (item,) = read_wrong_answers([wrong(r"1 + 1 = 3. \boxed{3}", details=details)])
    assert (item.num_good_steps, item.num_steps) == (0, len(story.steps))


def test_tasks_without_an_oracle_have_none():
    assert read_wrong_answers([wrong("text", details={}), wrong("text", prompt="What is 1+1?")]) == []
