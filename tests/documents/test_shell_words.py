"""Where words of bash end, by hand and for any text: nothing fails, and what is not closed ends with the text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.documents import shell_words as words
from meshwright.documents.shell_words import Token

TEXTS = st.text(alphabet=list("'\"`$(){}[]\\ab1 \n\t#;&|<>=~?-"), max_size=14)


@pytest.mark.parametrize(
    ("after", "text", "start", "end"),
    [
        (words.after_single, "'a'b", 0, 3),
        (words.after_single, "'a\\'b", 0, 4),
        (words.after_single, "'ab", 0, 3),
        (words.after_ansi, "$'a\\'b'c", 1, 7),
        (words.after_ansi, "$'ab", 1, 4),
        (words.after_ansi, "$'ab\\", 1, 5),
        (words.after_ansi, "$''x", 1, 3),
        (words.after_backquote, "`a\\`b`c", 0, 6),
        (words.after_backquote, "`ab", 0, 3),
        (words.after_backquote, "``x", 0, 2),
        (words.after_double, '"a\\"b"c', 0, 6),
        (words.after_double, '"a$(b "c")d"e', 0, 12),
        (words.after_double, '"a`"`"b', 0, 6),
        (words.after_double, '"ab', 0, 3),
        (words.after_double, '"ab\\', 0, 4),
        (words.after_dollar, "$ab1-c", 0, 4),
        (words.after_dollar, "$1b", 0, 2),
        (words.after_dollar, "$@b", 0, 2),
        (words.after_dollar, "$ b", 0, 1),
        (words.after_dollar, "$", 0, 1),
        (words.after_dollar, "${a}b", 0, 4),
        (words.after_dollar, "$(a)b", 0, 4),
        (words.after_dollar, "$((1+(2)))b", 0, 10),
        (words.after_dollar, "$[1]b", 0, 4),
        (words.after_dollar, "$'a'b", 0, 4),
        (words.after_dollar, "${a:-'}'}b", 0, 9),
        (words.after_dollar, '${a:-"}"}b', 0, 9),
        (words.after_dollar, "${a:-\\}}b", 0, 8),
        (words.after_dollar, "${a:-${b}}c", 0, 10),
        (words.after_dollar, "${a:-`}`}c", 0, 9),
        (words.after_dollar, "${a", 0, 3),
        (words.after_dollar, "$(a (b) c)d", 0, 10),
    ],
)
def test_behind_a_quote_or_an_expansion(after, text, start, end):
    assert after(text, start) == end


@pytest.mark.parametrize(
    ("text", "tokens", "end"),
    [
        ("a 'b c' d", [("word", 0, 1), ("word", 2, 7), ("word", 8, 9)], 9),
        ("a;b", [("word", 0, 1)], 1),
        ("a # b", [("word", 0, 1)], 2),
        ("a#b", [("word", 0, 3)], 3),
        ("a\\\n b", [("word", 0, 3), ("word", 4, 5)], 5),
        ("a \\\nb", [("word", 0, 1), ("word", 4, 5)], 5),
        ("a\nb", [("word", 0, 1)], 1),
        ("a&&b", [("word", 0, 1)], 1),
        ("(a)", [], 0),
        ("x=(1 2) b", [("word", 0, 7), ("word", 8, 9)], 9),
        ("x+=(1) b", [("word", 0, 6), ("word", 7, 8)], 8),
        ("x[1]=2", [("word", 0, 6)], 6),
        ("<(a b) c", [("word", 0, 6), ("word", 7, 8)], 8),
        ("a <<(b", [("word", 0, 1), ("redirection", 2, 4)], 4),
        ("a >>(b", [("word", 0, 1), ("redirection", 2, 4)], 4),
        ("run <nodes> b", [("word", 0, 3), ("placeholder", 4, 11), ("word", 12, 13)], 13),
    ],
)
def test_words_of_a_command(text, tokens, end):
    found, at = words.command_tokens(text, 0, len(text))
    assert [(each.kind, each.start, each.end) for each in found] == tokens
    assert at == end


@pytest.mark.parametrize(
    ("text", "operator", "target", "end"),
    [
        ("> f", ">", 2, 3),
        ("2>f x", ">", 2, 3),
        ("2>&1", ">&", 3, 4),
        ("&> f", "&>", 3, 4),
        ("<<< 'a b' c", "<<<", 4, 9),
        ("{fd}>> f", "{fd}>>", 7, 8),
        ("<<-E", "<<-", 3, 4),
        (">| f", ">|", 3, 4),
        (">", ">", 1, 1),
    ],
)
def test_redirections(text, operator, target, end):
    assert words.command_tokens(text, 0, len(text))[0][0] == Token("redirection", 0, end, operator, target)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b\n c", ["a", "b", "c"]),
        ("a # no\nb", ["a", "b"]),
        ("a#b", ["a#b"]),
        ("'a b' c # no", ["'a b'", "c"]),
        ("a;b", ["a;b"]),
        ("", []),
        ("(a)", ["(a)"]),
    ],
)
def test_words_of_a_list(text, found):
    assert [text[slice(*each)] for each in words.list_words(text, 0, len(text))] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-n $a && b", ["-n", "$a", "&&", "b"]),
        ("a==b||c", ["a==b", "||", "c"]),
        ("( a )", ["(", "a", ")"]),
        ("a =~ b|c d", ["a", "=~", "b|c", "d"]),
        ("a = b|c", ["a", "=", "b", "|", "c"]),
        ("a<b", ["a", "<", "b"]),
        ("!a", ["!a"]),
    ],
)
def test_words_of_a_condition(text, found):
    assert [text[slice(*each)] for each in words.test_words(text, 0, len(text))] == found


@examples(50)
@given(TEXTS)
def test_any_text_ends_and_every_step_goes_forward(text):
    """Also cut off anywhere."""
    for after in (words.after_single, words.after_ansi, words.after_backquote, words.after_double, words.after_dollar):
        end = after(text + " ", 0)
        assert 1 <= end <= len(text) + 1
    for opening, close in ("()", "{}", "[]"):
        assert 1 <= words.after_bracket(opening + text, 0, close) <= len(text) + 1
    assert 0 <= words.after_word(text, 0, len(text)) <= len(text)
    tokens, end = words.command_tokens(text, 0, len(text))
    starts = [(each.start, each.end) for each in tokens]
    for pairs in (starts, words.list_words(text, 0, len(text)), words.test_words(text, 0, len(text))):
        assert all(first < last for first, last in pairs)
        assert all(one[1] <= other[0] for one, other in pairwise(pairs))
    assert 0 <= end <= len(text)


def test_what_is_nested_beyond_reason_ends_with_the_text():
    deep = "$(" * 60 + "a" + ")" * 60
    assert words.after_dollar(deep + "b", 0) == len(deep) + 1
    few = "$(" * 15 + "a" + ")" * 15
    assert words.after_dollar(few + "b", 0) == len(few)
