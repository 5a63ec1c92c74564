from jobs.grading.code.marks import bits_to_rules, mark_code, rules_to_bits


def marked(text, has_code=None):
    row = {"text": text, "has_code": has_code}
    mark_code([row])
    return row


def test_a_text_carries_its_rules_as_bits_and_the_parsers_word():
    row = marked("```python\nimport math\nprint(math.pi)\n```")
    assert bits_to_rules(row["code_rules"]) == ("R1", "R5", "R7")
    assert row["has_python_block"] is True
    assert marked("It is 3.") == {"text": "It is 3.", "has_code": False, "code_rules": 0, "has_python_block": False}


def test_the_rules_say_whether_there_is_code_only_where_the_task_did_not():
    assert marked("print(3)")["has_code"] is True
    assert marked("print(3)", has_code=False)["has_code"] is False


def test_each_rule_has_a_bit_of_its_own_and_comes_back():
    assert rules_to_bits(["R1"]) == 1
    assert rules_to_bits(["R17", "R2"]) == 2**16 + 2
    assert bits_to_rules(2**16 + 2) == ("R2", "R17")
