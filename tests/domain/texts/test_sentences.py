"""Sentences in any script, and their tokens."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.texts.sentences import MAX_SENTENCE_CHARS, Sentences, split_sentences
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Document

SIGNS = st.sampled_from(
    ' \t\n\r\u2028\u3000.!?…。？！；؟।,|)"””aZéß1०他说ا\u0301\u200d\U0001f600\U0001f468\ufe0f\u1160-'
)
TEXTS = st.text(SIGNS, max_size=300) | st.text(max_size=300)


def sentences_of(text: str, *, max_chars: int = MAX_SENTENCE_CHARS) -> list[str]:
    found = split_sentences(text, max_chars=max_chars)
    return [text[slice(*found.span(index))] for index in range(len(found))]


@given(TEXTS, st.integers(4, 50))
def test_sentences_cover_all_but_white_space_in_order_and_keep_to_their_length(text: str, max_chars: int) -> None:
    found = split_sentences(text, max_chars=max_chars)
    end = 0
    for index in range(len(found)):
        start, next_end = found.span(index)
        assert end <= start < next_end <= start + max_chars
        assert not text[end:start].strip()
        assert text[start:next_end] == text[start:next_end].strip()
        end = next_end
    assert not text[end:].strip()


@given(TEXTS, st.integers(0, 300), st.integers(1, 60))
def test_sentences_within_a_span_are_those_with_a_character_in_it(text: str, start: int, length: int) -> None:
    found = split_sentences(text, max_chars=20)
    expected = [i for i in range(len(found)) if found.starts[i] < start + length and found.ends[i] > start]
    assert list(found.within(start, start + length)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mr. Smith paid 3.14 dollars. He left.", ["Mr. Smith paid 3.14 dollars.", "He left."]),
        (
            "J. R. Hartley, e.g. of the U.S. Army, wrote it. Yes!",
            ["J. R. Hartley, e.g. of the U.S. Army, wrote it.", "Yes!"],
        ),
        ('"Why?" she asked. (No.) Then: "Go!" He went.', ['"Why?" she asked.', "(No.)", 'Then: "Go!"', "He went."]),
        ("See Art. 5 and www.example.org. Wait... then go", ["See Art. 5 and www.example.org.", "Wait... then go"]),
        ("He said no. Then see No. 5 of modern art. End", ["He said no.", "Then see No. 5 of modern art.", "End"]),
        ("2. Scope\n2.1. Parties sign. Here", ["2. Scope", "2.1. Parties sign.", "Here"]),
        ("他说：“你好！”我走了？是的；好", ["他说：“你好！”", "我走了？", "是的；", "好"]),
        ("هل وقعت؟ نعم. ثم غادر", ["هل وقعت؟", "نعم.", "ثم غادر"]),
        ("यह एक है। वह दो॥ अंत", ["यह एक है।", "वह दो॥", "अंत"]),
        ("Name: X\r\nDate: Y\r\n\r\nEnd", ["Name: X", "Date: Y", "End"]),
        ("a\tb\nc\td\n| e | f |", ["a\tb", "c\td", "| e | f |"]),
        ("", []),
    ],
)
def test_sentences_of_many_scripts_and_forms(text: str, expected: list[str]) -> None:
    assert sentences_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "The lease (ref. AB-12) begins on 1 May.",
        "See Nos. 4 and 5, Art. III, Sec. 5(a) and Sched. 2 hereto.",
        "The Acme Co. Ltd. and J. R. R. Tolkien, Ph.D. of Leeds, signed it.",
        "As follows: 1. The tenant pays; 2. The landlord repairs.",
        "Dated 31. Dec. 2024 by him.",
        "Der Vertrag endet am 31. Dezember 2024, zum 1. Januar oder am 5. Mai.",
        "Ende\t31. Dezember 2024\tsee\u00a0No. 5 and\tDr. Gray.",
        "Gemäß § 5 Abs. 2 Nr. 3 BGB i. V. m. Art. 7 und Anlage Nr. A-12 gilt dies.",
        "Das gilt z. B. Mietern, d. h. Personen, u. a. Kindern gegenüber.",
        "Im 19. Jahrhundert galt die 2. Fassung der 3. Auflage, Az. VIII ZR 12/20.",
        "Die Summe von 5 Mio. Euro zzgl. MwSt. ist fällig.",
        "Voir l'art. 5, al. 2 et p. ex. M. Dupont (réf. 12-B) et Mme. Martin.",
        "Véase el art. 5, p. ej. Sr. García, núm. 3 y la pág. 12.",
    ],
)
def test_abbreviation_ordinal_or_number_of_an_entry_ends_no_sentence(text: str) -> None:
    assert sentences_of(text) == [text]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("See Art. 5.", "The tenant pays."), ("We paid 31.", "They paid 5."), ("It is option b.", "The rest is c.")),
        *(("He said no.", "A man left."), ("Das kostet 100.", "Mehr nicht."), ("Es gilt bis 2024.", "Danach nicht.")),
        *(("Il paie 5.", "Après, rien."), ("Paga 31.", "Luego nada."), ("It ends in May.", "He left.")),
    ],
)
def test_number_or_short_word_may_end_a_sentence(first: str, second: str) -> None:
    assert sentences_of(f"{first} {second}") == [first, second]


def test_line_that_was_broken_at_a_margin_goes_on_and_a_row_of_a_table_does_not() -> None:
    prose = "This line of prose was broken at the margin of\r\nthe page. Another one."
    assert sentences_of(prose) == ["This line of prose was broken at the margin of\r\nthe page.", "Another one."]
    rows = "2021-03-04,amber,falcon,12,paid in full by bank\n2021-03-05,copper,falcon,13,open"
    assert sentences_of(rows) == rows.split("\n")


NDA = """MUTUAL NON-DISCLOSURE AGREEMENT
This Agreement is made between Arden Therapeutics Limited, a company registered in England
with number 09114427, whose office is at 14 Babraham Road, Cambridge ("Arden"), and
Kestrel Data Systems GmbH, a company registered in Munich under HRB 218844, whose
registered office is at Leopoldstrasse 61, Munich ("Kestrel"). It takes effect on 12 June 2025 (the
"Effective Date"), although the parties signed it before two witnesses of theirs on 19 June
2025 without seal
BACKGROUND
1.1 "Confidential Information" means all information, in any form, that a party makes available
1.2 "Trade Secret" means Confidential Information that meets the definition in the Trade Secrets
(Enforcement) Regulations 2018, at a fee of no more than five thousand pounds sterling or
£5,000."""
"""A page as it comes from a PDF or OCR: lines end at the margin."""


def test_lines_of_a_page_that_break_before_a_capital_digit_or_quote_go_on() -> None:
    assert [" ".join(each.split()) for each in sentences_of(NDA)] == [
        "MUTUAL NON-DISCLOSURE AGREEMENT",
        "This Agreement is made between Arden Therapeutics Limited, a company registered in England with number "
        '09114427, whose office is at 14 Babraham Road, Cambridge ("Arden"), and Kestrel Data Systems GmbH, a '
        "company registered in Munich under HRB 218844, whose registered office is at Leopoldstrasse 61, Munich "
        '("Kestrel").',
        'It takes effect on 12 June 2025 (the "Effective Date"), although the parties signed it before two witnesses '
        "of theirs on 19 June 2025 without seal",
        "BACKGROUND",
        '1.1 "Confidential Information" means all information, in any form, that a party makes available',
        '1.2 "Trade Secret" means Confidential Information that meets the definition in the Trade Secrets '
        "(Enforcement) Regulations 2018, at a fee of no more than five thousand pounds sterling or £5,000.",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["2021-03-04 12:00 the server of the north did not start again", "2021-03-05 09:30 the server did start again"],
        ["Name of the landlord and owner: Halvorsen Holdings LLC", "Name of the tenant and user: Bluefin Ceramics Inc"],
        ["Base rent for each month of the first year USD 4,850", "Security deposit that is due on signing USD 14,550"],
        ["A Master Services Agreement Between These Two Parties", "This Agreement is made between " + "two of " * 9],
        ["The parties agree on all that follows in this agreement", "Governing Law", "Oregon law governs it."],
        ["A paragraph on one line " + "that is longer than any page is wide " * 5, "Another paragraph of it"],
        ["This sentence ends here, with a quote (that is closed).)", '"Another one begins with a quote in this line".'],
    ],
)
def test_lines_of_records_forms_headings_and_paragraphs_do_not_go_on(lines: list[str]) -> None:
    assert sentences_of("\n".join(lines)) == [line.strip() for line in lines]


def test_long_run_is_cut_at_white_space_and_never_inside_a_sign() -> None:
    assert sentences_of("aaaa bbbb cccc", max_chars=10) == ["aaaa bbbb", "cccc"]
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert sentences_of(family * 4, max_chars=9) == [family] * 4
    assert sentences_of("e\u0301" * 8, max_chars=5) == ["e\u0301" * 2] * 4


@given(st.text(st.sampled_from("aé他\U0001f600 .。\n\u0301ا1"), max_size=80))
def test_tokens_of_a_sentence_hold_all_of_it_and_little_more(tiny_tokenizer: Tokenizer, text: str) -> None:
    document = tiny_tokenizer.document(text)
    found = split_sentences(text, max_chars=20)
    for index in range(len(found)):
        start, end = found.tokens(index, document)
        sentence = text[slice(*found.span(index))]
        assert sentence in tiny_tokenizer.decode(document.tokens(start, end))
        assert document.token_chars[start] <= found.starts[index]
        assert end == document.num_tokens or document.token_chars[end] >= found.ends[index]


def test_tokens_of_a_sentence_whose_first_character_is_spread_over_tokens() -> None:
    document = Document(token_ids=[1, 2, 3, 4, 5], token_chars=[0, 1, 1, 1, 2], num_chars=3)
    assert Sentences(starts=[1], ends=[2]).tokens(0, document) == (1, 4)


@pytest.mark.parametrize(
    "text",
    [
        *("." * 500_000 + "a", ". " * 250_000 + ".a", " " * 500_000 + "a", "\n" * 500_000, "A. " * 170_000),
        *(",a" * 250_000, "a" * 250_000 + "\n" + " " * 250_000 + "A"),
    ],
)
def test_time_grows_with_the_length_alone(text: str) -> None:
    began = time.process_time()
    split_sentences(text)
    assert time.process_time() - began < 5  # a tenth of that where nothing is looked at twice; hours where it is
