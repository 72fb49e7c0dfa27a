from memagent_batch.bm25 import Bm25
from memagent_batch.tokens.tokenizer import Tokenizer

PASSAGES = [
    "The grass is green and the sky is blue.",
    "The access code of Copper-Falcon is 7318265.",
    "The access code of quiet harbour is 1111111.",
    "",
]


def scores_of(tokenizer: Tokenizer, question: str, passages: list[str] = PASSAGES) -> list[float]:
    rank = Bm25(decode=tokenizer.decode)
    return rank([tokenizer.encode(passage) for passage in passages], tokenizer.encode(question))


def test_bm25_passage_with_the_rarest_words_of_the_question_is_nearest(tiny_tokenizer: Tokenizer) -> None:
    scores = scores_of(tiny_tokenizer, "What is the access code of copper-falcon?")
    assert len(scores) == len(PASSAGES)
    assert max(scores) == scores[1] > scores[2] > scores[0] > scores[3] == 0


def test_bm25_number_alone_finds_its_passage(tiny_tokenizer: Tokenizer) -> None:
    scores = scores_of(tiny_tokenizer, "7318265")
    assert [score > 0 for score in scores] == [False, True, False, False]


def test_bm25_question_without_a_known_word_scores_nothing(tiny_tokenizer: Tokenizer) -> None:
    assert scores_of(tiny_tokenizer, "Zebra?") == [0.0] * len(PASSAGES)
    assert scores_of(tiny_tokenizer, "") == [0.0] * len(PASSAGES)


def test_bm25_passages_without_words_score_nothing(tiny_tokenizer: Tokenizer) -> None:
    assert scores_of(tiny_tokenizer, "What?", ["...", "  "]) == [0.0, 0.0]
