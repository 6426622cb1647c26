"""Both databases take the same text apart in the same way: what one finds, the other finds."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nexus.core.fulltext import fts5_query, tsquery, words_of
from tests.conftest import examples
from tests.postgres import SERVER

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not SERVER, reason="SQLite is compared with a PostgreSQL, where there is one"),
]
TABLE = "CREATE VIRTUAL TABLE one USING fts5(words, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')"
LETTERS = st.sampled_from("aAbzéÉüÜßñçøØłıŠǅαΑΆσςΣжЖйЙёאبकก中文日한글がカ0189٣") | st.characters(
    categories=["Lu", "Ll"], max_codepoint=0x17E
)
WORDS = st.text(LETTERS | st.just("\u0301"), min_size=1, max_size=6)
BETWEEN = st.text(st.sampled_from(" \n\t-_.,:;'\"/\\&|!<>()*+@#$%^~’—…☃\U0001f600"), min_size=1, max_size=3)
PIECES = st.lists(
    st.one_of(WORDS, BETWEEN, st.sampled_from(["1e5", "12abc", "-1.5", "http://a.b/c?d", "a@b.c", "x²"])), max_size=12
)
DOCUMENTS = PIECES.map("".join)


def sqlite_finds(document: str, words: list[str], *, whole: bool) -> bool:
    with closing(sqlite3.connect(":memory:")) as store:
        store.execute(TABLE)
        store.execute("INSERT INTO one (rowid, words) VALUES (1, ?)", [document])
        return (
            store.execute("SELECT 1 FROM one WHERE one MATCH ?", [fts5_query(words, whole=whole)]).fetchone()
            is not None
        )


def postgresql_finds(document: str, words: list[str], *, whole: bool) -> bool:
    wanted = tsquery(words, whole=whole)
    if wanted is None:
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT nexus_words(%s) @@ %s::tsquery", [document, wanted.text])
        found: bool = cursor.fetchone()[0]
        return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(300))
@given(document=DOCUMENTS, data=st.data(), whole=st.booleans())
def test_they_find_the_same(document: str, data: st.DataObject, whole: bool) -> None:
    start = data.draw(st.integers(0, len(document)))
    part = document[start : data.draw(st.integers(start, len(document)))]
    words = words_of(data.draw(st.sampled_from([part, part.upper(), part.lower()]) | DOCUMENTS))
    if words:
        assert sqlite_finds(document, words, whole=whole) == postgresql_finds(document, words, whole=whole), words


@pytest.mark.parametrize(
    ("document", "words"),
    [
        *(("ΣΑΣ", "σασ"), ("σας", "ΣΑ"), ("Ångström", "angstro"), ("한글", "하"), ("5 m² ½", "m²"), ("x², y", "x")),
        *(("foo-bar baz", "foo-ba"), ("foo bar-baz", "foo-baz"), ("1e5", "100000"), ("-12", "12"), ("1.5", "1.50")),
        *(("running", "run"), ("the", "the"), ("user@host.example", "host"), ("snake_case", "case"), ("ﬁne", "fine")),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_they_agree_on_what_differs_elsewhere(document: str, words: str, whole: bool) -> None:
    assert sqlite_finds(document, [words], whole=whole) == postgresql_finds(document, [words], whole=whole)


@pytest.mark.parametrize(
    "document",
    [
        "x" * 100_000,
        "é" * 100_000,
        " ".join(f"{number:x}" for number in range(60_000)),
        " ".join(map(chr, range(0x20000, 0x2A000))) + " end",
        "ﷺ" * 66_000,
        "a-b " * 20_000,
        "𝔘𐐀 " * 90_000,
    ],
    ids=["long word", "long accented", "many words", "many wide words", "long ligatures", "one phrase", "wide"],
)
def test_no_document_is_too_large(document: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nexus_words(%s) IS NOT NULL", [document])
    for words in ([document[:50].split()[0]], ["a-b"]):
        assert postgresql_finds(document, words, whole=False) == sqlite_finds(document, words, whole=False)
