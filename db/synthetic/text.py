"""Sentences of made-up solutions, with common and rare words as in real ones, the same every time."""

import random
from itertools import product

NUM_SENTENCES = 4096
_COMMON_WORDS = """
    the we is of and to so that let then hence therefore since because if where for each both sum product factor
    equation term value number integer prime even odd square root triangle angle circle line point area length
    substitute simplify expand divide multiply subtract add check verify assume consider suppose obtain find count
    case proof answer result step first second next finally left right side positive negative remainder modulo
"""
_SYLLABLES = [onset + vowel for onset, vowel in product("bdfgklmnprstvz", "aeiou")]
_NUM_RARE_WORDS = 12_000
_SENTENCE_WORDS = (8, 20)


def sentences(num_sentences: int = NUM_SENTENCES) -> list[str]:
    """Return sentences with words by Zipf's law: the later in the vocabulary, the rarer."""
    rng = random.Random(20260101)
    rare = ["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))) for _ in range(_NUM_RARE_WORDS)]
    vocabulary = [*_COMMON_WORDS.split(), *rare]
    weights = [1.0 / (item + 3) for item in range(len(vocabulary))]
    made = [rng.choices(vocabulary, weights, k=rng.randint(*_SENTENCE_WORDS)) for _ in range(num_sentences)]
    return [" ".join(words).capitalize() + "." for words in made]
