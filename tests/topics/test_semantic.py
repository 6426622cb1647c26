"""Searching messages by meaning: what is found, what keeps the vectors in step, and what happens where it cannot be."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import time_machine
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from safetensors.numpy import save_file

from nexus.core.background_work import work_forever, work_once
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.maintenance.check_inputs import FileExamination
from nexus.topics import maintenance, metrics, search
from nexus.topics.embedding import background, index, local, source, vectors
from nexus.topics.embedding.background import EMBEDDING
from nexus.topics.models import Embedding, TopicMessage
from nexus.topics.toolset import TOPICS, Unavailable
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import ROOT, environment, nexus
from tests.topics import small_model
from tests.topics.agent_bus import AT, SCHEMA
from tests.topics.conftest import Client

Configure = Callable[..., None]


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a process does that has just started."""
    monkeypatch.setattr(source, "_known", source._Known("", None))


@pytest.fixture
def model(tmp_path: Path, configure: Configure) -> str:
    """The small model, named by the settings."""
    folder = small_model.make(tmp_path / "model")
    configure(embedding_model=folder)
    return folder


@pytest.fixture
def cars(ann: Client, topic: str, model: str) -> str:
    """A topic in which two things were said, and indexed."""
    ann.say(topic, "the car is broken", "the invoice is late")
    work_once(EMBEDDING)
    return topic


def answered(client: Client, query: str, mode: str = "semantic", **more: Any) -> dict[str, Any]:
    return client.call("messages_search", query=query, mode=mode, include_content=True, **more)


def found(client: Client, query: str, mode: str = "semantic", **more: Any) -> list[str]:
    """What is near enough to share a concept, best first."""
    results = answered(client, query, mode, **more)["results"]
    return [row["content_markdown"] for row in results if (row["semantic_score"] or 0) > 0.5]


def reindexed() -> tuple[dict[str, Any], list[str]]:
    """What `nexus topics reindex` answers, and the lines in which it says how far it is."""
    out, progress = StringIO(), StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("topics", "reindex", "--json", stdout=out, stderr=progress)
    assert ended.value.code == 0
    return json.loads(out.getvalue()), progress.getvalue().splitlines()


def warned(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer.get("warnings", ())]


def test_it_finds_by_meaning_what_words_do_not(ann: Client, cars: str) -> None:
    assert answered(ann, "automobile defect", "fts")["count"] == 0
    assert found(ann, "automobile defect") == ["the car is broken"]
    answer = answered(ann, "automobile defect", "hybrid")
    best = answer["results"][0]
    assert (best["content_markdown"], best["fts_rank"], "rank" in best) == ("the car is broken", None, False)
    assert best["semantic_score"] == pytest.approx(1, abs=1e-2)
    assert (best["snippet"], best["topic_name"], warned(answer)) == ("the car is broken", "cache", [])


@pytest.mark.parametrize(
    ("text", "snippet"),
    [
        ("a car\n\n  and   more", "a car and more"),
        ("car " + "漢" * 500, "car " + "漢" * 155 + "…"),
        ("car " + "word " * 100, "car " + "word " * 31 + "…"),
    ],
)
def test_where_no_word_was_found_the_snippet_is_the_beginning(
    ann: Client, topic: str, model: str, text: str, snippet: str
) -> None:
    ann.say(topic, text)
    work_once(EMBEDDING)
    assert answered(ann, "vehicle")["results"][0]["snippet"] == snippet


def test_hybrid_prefers_what_both_find(ann: Client, cars: str) -> None:
    ann.say(cars, "a vehicle, with a fault", "car")
    work_once(EMBEDDING)
    results = answered(ann, "car", "hybrid")["results"]
    assert results[0]["content_markdown"] == "car"
    assert results[0]["fts_rank"] < 0 and results[0]["semantic_score"] > 0.9
    assert results[0]["snippet"] == "\ue000car\ue001"
    assert len({row["message_id"] for row in results}) == len(results)
    assert len(answered(ann, "car", "hybrid", limit=1)["results"]) == 1


def test_it_searches_one_topic_or_all(ann: Client, cars: str) -> None:
    other = ann.call("topic_create", name="other")["topic_id"]
    ann.join(other, "ann")
    ann.say(other, "this vehicle has a defect")
    work_once(EMBEDDING)
    assert len(found(ann, "automobile fault")) == 2
    assert found(ann, "automobile fault", topic_id=other) == ["this vehicle has a defect"]
    for mode in ("semantic", "hybrid"):
        for _ in range(2):
            assert ann.code("messages_search", query="car", mode=mode, topic_id="nowhere") == "TOPIC_NOT_FOUND"


def test_many_vectors_are_compared_a_piece_at_a_time(ann: Client, cars: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ann.say(cars, *("kitten" for _ in range(7)), "a feline, and a payment")
    work_once(EMBEDDING)
    at_once = [(row["content_markdown"], row["semantic_score"]) for row in answered(ann, "cat money")["results"]]
    monkeypatch.setattr(vectors, "AT_ONCE", 3)
    assert [
        (row["content_markdown"], row["semantic_score"]) for row in answered(ann, "cat money")["results"]
    ] == at_once
    assert at_once[0][0] == "a feline, and a payment"


@pytest.mark.parametrize("at_once", [3, 7])
def test_equal_scores_are_listed_newest_first(
    ann: Client, topic: str, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    configure(embedding_model=small_model.make(tmp_path / "wide", ["cat kitten", "money", "car"], width=384))
    ann.say(topic, *("a kitten for money" for _ in range(20)))
    work_once(EMBEDDING)
    monkeypatch.setattr(vectors, "AT_ONCE", at_once)
    results = answered(ann, "cat car money", limit=50)["results"]
    assert len({row["semantic_score"] for row in results}) == 1
    assert [row["seq"] for row in results] == sorted((row["seq"] for row in results), reverse=True)
    assert len(results) == 20


def test_a_message_that_changed_is_found_by_what_it_says_now(ann: Client, cars: str) -> None:
    TopicMessage.objects.filter(content_markdown="the car is broken").update(content_markdown="the kitten sleeps")
    assert found(ann, "vehicle") == []
    assert warned(answered(ann, "vehicle")) == ["SEMANTIC_INCOMPLETE"]
    work_once(EMBEDDING)
    assert (found(ann, "vehicle"), found(ann, "feline")) == ([], ["the kitten sleeps"])
    assert warned(answered(ann, "vehicle")) == []


def test_what_is_deleted_is_found_no_more(ann: Client, cars: str, connect: Callable[..., Client]) -> None:
    operator = connect(operator="root")
    message = TopicMessage.objects.get(content_markdown="the car is broken")
    operator.call("topic_message_delete", message_id=message.message_id)
    assert found(ann, "vehicle") == []
    assert Embedding.objects.count() == 1
    operator.call("topic_delete", topic_id=cars)
    assert not Embedding.objects.exists()


def test_another_model_makes_its_own_vectors(ann: Client, cars: str, tmp_path: Path, configure: Configure) -> None:
    former = Embedding.objects.first()
    swapped = ["car money invoice", "vehicle broken", "cat"]
    configure(embedding_model=small_model.make(tmp_path / "other", swapped, width=12))
    assert answered(ann, "vehicle")["results"] == []
    assert warned(answered(ann, "vehicle", "hybrid")) == ["SEMANTIC_INCOMPLETE"]
    work_once(EMBEDDING)
    assert found(ann, "money") == ["the invoice is late", "the car is broken"]
    now_is = Embedding.objects.first()
    assert former and now_is and former.model != now_is.model and len(now_is.vector) == 2 * 12


def test_a_model_that_was_replaced_in_its_folder_is_another(ann: Client, cars: str, model: str) -> None:
    small_model.make(Path(model), ["car invoice", "broken"], width=6)
    source._known = source._Known("", None)  # the process starts anew
    work_once(EMBEDDING)
    assert set(found(ann, "invoice")) == {"the car is broken", "the invoice is late"}


def test_a_vector_of_another_dimension_is_left_out_and_made_anew(ann: Client, cars: str) -> None:
    broken = Embedding.objects.get(message__content_markdown="the car is broken")
    for vector in (b"", b"odd", np.ones(3, "<f2").tobytes()):
        Embedding.objects.filter(pk=broken.pk).update(vector=vector)
        assert found(ann, "vehicle") == []
        reindexed()
        assert found(ann, "vehicle") == ["the car is broken"]


def test_a_send_makes_no_vector_and_new_messages_are_indexed_in_order(ann: Client, cars: str) -> None:
    ann.say(cars, *(f"cat {number}" for number in range(background.BATCH + 3)))
    assert Embedding.objects.count() == 2
    assert warned(answered(ann, "cat")) == ["SEMANTIC_INCOMPLETE"]
    assert len(work_once(EMBEDDING)) == 2
    assert len(found(ann, "kitten", limit=50)) == background.BATCH + 3
    assert work_once(EMBEDDING) == []


def test_a_process_that_is_killed_while_indexing_loses_nothing(ann: Client, cars: str) -> None:
    ann.say(cars, *(f"cat {number}" for number in range(background.BATCH + 3)))
    (queue,) = EMBEDDING.queues()
    first = EMBEDDING.claim(queue)
    assert first
    EMBEDDING.settle(first, EMBEDDING.act(first))
    second = EMBEDDING.claim(queue)
    assert second and EMBEDDING.act(second)  # and here it dies
    source._known = source._Known("", None)
    assert len(found(ann, "kitten", limit=50)) == background.BATCH
    work_once(EMBEDDING)
    assert len(found(ann, "kitten", limit=50)) == background.BATCH + 3
    assert Embedding.objects.count() == TopicMessage.objects.count()


@pytest.mark.usefixtures("starts_processes")
def test_indexing_that_was_killed_goes_on(tmp_path: Path) -> None:
    database, home = tmp_path / "agent_bus.sqlite", tmp_path / "home"
    with closing(sqlite3.connect(database)) as store, store:
        store.executescript(SCHEMA)
        store.execute("INSERT INTO meta VALUES ('schema_version', '6')")
        store.execute("INSERT INTO topics VALUES ('aaa', 'cats', ?, 'open', NULL, NULL, NULL)", [AT])
        rows = [(f"m{seq}", seq, AT) for seq in range(1, 301)]
        said = "INSERT INTO messages VALUES (?, 'aaa', ?, 'ann', 'message', NULL, 'a kitten', NULL, NULL, ?)"
        store.executemany(said, rows)
    model = small_model.make(tmp_path / "model")
    assert nexus(home, "topics", "import", str(database)).returncode == 0
    indexing = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "topics", "reindex"],
        env=environment(home, NEXUS_EMBEDDING_MODEL=model),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with indexing, indexing.stderr or StringIO() as progress:
        assert progress.readline() == "indexed by meaning 0, 300 to go\n"
        indexing.kill()
    ended = nexus(home, "topics", "reindex", NEXUS_EMBEDDING_MODEL=model)
    assert ended.stderr.splitlines()[-1].endswith(" 0 to go"), ended.stderr
    search = ["topics", "search", "feline", "--mode", "semantic", "--limit", "200", "--json"]
    answer = json.loads(nexus(home, *search, NEXUS_EMBEDDING_MODEL=model).stdout)
    assert (answer["count"], answer.get("warnings")) == (200, None)
    assert all(row["semantic_score"] > 0.9 for row in answer["results"])


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say which index is read
@pytest.mark.parametrize("where", ["one topic", "all topics", "what is pending"])
def test_what_it_costs_does_not_grow_with_what_it_is_not_about(ann: Client, cars: str, where: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        if where == "what is pending":
            EMBEDDING.claim("topics")
        else:
            answered(ann, "vehicle", topic_id=cars if where == "one topic" else None)
    plans = []
    with connection.cursor() as cursor:
        for query in captured.captured_queries:
            if "topic_embeddings" in query["sql"]:
                cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
                plans += [row[3] for row in cursor.fetchall()]
    read_whole = [plan for plan in plans if "SCAN" in plan or "model=?" in plan]
    assert plans and len(read_whole) == (1 if where == "all topics" else 0), plans


def test_what_changed_or_went_while_its_vector_was_made_gets_no_wrong_one(ann: Client, cars: str) -> None:
    ann.say(cars, "cat one", "cat two", "cat three")
    batch = EMBEDDING.claim("topics")
    assert batch
    outcome = EMBEDDING.act(batch)
    TopicMessage.objects.filter(content_markdown="cat one").update(content_markdown="money one")
    TopicMessage.objects.filter(content_markdown="cat two").delete()
    EMBEDDING.settle(batch, outcome)
    assert found(ann, "kitten") == ["cat three"]
    work_once(EMBEDDING)
    assert (found(ann, "kitten"), "money one" in found(ann, "payment")) == (["cat three"], True)


def _without_a_file(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _with_broken_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not weights")


def _of_another_family(folder: Path) -> None:
    save_file({"bert.embeddings.word_embeddings.weight": np.ones((3, 2), "f4")}, folder / "model.safetensors")


@pytest.mark.parametrize("breaks", [_without_a_file, _with_broken_weights, _of_another_family])
def test_a_model_that_cannot_be_loaded_is_told(
    ann: Client, topic: str, model: str, breaks: Callable[[Path], None]
) -> None:
    breaks(Path(model))
    ann.say(topic, "the car is broken")
    error = ann.refused("messages_search", query="car", mode="semantic")
    assert error["code"] == "INVALID_ARGUMENT" and "cannot be loaded" in error["message"]
    answer = answered(ann, "car", "hybrid")
    assert (answer["count"], warned(answer)) == (1, ["SEMANTIC_UNAVAILABLE"])
    assert work_once(EMBEDDING) == []


@pytest.mark.parametrize("named", ["nexus-no-such-model", "/nowhere/model", "pytest", "../model"])
def test_a_model_that_is_not_there_is_told(ann: Client, topic: str, configure: Configure, named: str) -> None:
    configure(embedding_model=named)
    ann.say(topic, "the car is broken")
    assert repr(named) in ann.refused("messages_search", query="car", mode="semantic")["message"]
    assert warned(answered(ann, "car", "hybrid")) == ["SEMANTIC_UNAVAILABLE"]


def test_a_model_that_failed_is_tried_again_after_a_while(ann: Client, topic: str, model: str) -> None:
    tokenizer = (Path(model) / "tokenizer.json").read_text()
    _without_a_file(Path(model))
    ann.say(topic, "the car is broken")
    with time_machine.travel(now(), tick=False) as clock:
        assert work_once(EMBEDDING) == [None]
        (Path(model) / "tokenizer.json").write_text(tokenizer)
        assert work_once(EMBEDDING) == []
        assert ann.code("messages_search", query="car", mode="semantic") == "INVALID_ARGUMENT"
        clock.shift(source.RETRY + timedelta(seconds=1))
        work_once(EMBEDDING)
        assert found(ann, "vehicle") == ["the car is broken"]


def test_another_setting_is_tried_at_once(ann: Client, cars: str, model: str, configure: Configure) -> None:
    configure(embedding_model="/nowhere")
    assert ann.code("messages_search", query="car", mode="semantic") == "INVALID_ARGUMENT"
    configure(embedding_model=model)
    assert found(ann, "vehicle") == ["the car is broken"]


def test_without_the_extra_it_says_how_to_get_it(
    ann: Client, topic: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in ("numpy", "model2vec"):
        monkeypatch.setitem(sys.modules, missing, None)
    for module in ("nexus.topics.embedding.local", "nexus.topics.embedding.vectors"):
        monkeypatch.delitem(sys.modules, module)
    ann.say(topic, "the car is broken")
    assert "extra semantic: " in ann.refused("messages_search", query="car", mode="semantic")["message"]
    answer = answered(ann, "car", "hybrid")
    assert (answer["count"], "extra semantic: " in answer["warnings"][0]["message"]) == (1, True)
    assert work_once(EMBEDDING) == []
    assert not source.is_enabled()


def test_a_query_for_another_model_is_told_which_there_is(ann: Client, cars: str, model: str) -> None:
    assert found(ann, "vehicle", model=model) == ["the car is broken"]
    error = ann.refused("messages_search", query="vehicle", mode="semantic", model="other")
    assert error["code"] == "INVALID_ARGUMENT" and "'other'" in error["message"] and model in error["message"]
    assert warned(answered(ann, "vehicle", "hybrid", model="other")) == ["SEMANTIC_UNAVAILABLE"]


@pytest.mark.parametrize("query", ["nobody knows this", "…", "\u0301", "a " * 400])
def test_any_text_is_a_query(ann: Client, cars: str, query: str) -> None:
    assert all(row["semantic_score"] is not None for row in answered(ann, query)["results"])


def test_reindexing_shows_how_far_it_is(ann: Client, topic: str, model: str) -> None:
    ann.say(topic, *(f"cat {number}" for number in range(background.BATCH + 3)))
    data, progress = reindexed()
    assert data == {"messages": background.BATCH + 3, "indexed_by_meaning": background.BATCH + 3}
    assert progress == [
        f"indexed by meaning 0, {background.BATCH + 3} to go",
        f"indexed by meaning {background.BATCH}, 3 to go",
        f"indexed by meaning {background.BATCH + 3}, 0 to go",
    ]


@pytest.mark.parametrize("everywhere", [False, True])
def test_the_newest_messages_are_compared_and_it_says_where_there_are_older_ones(
    ann: Client, topic: str, model: str, monkeypatch: pytest.MonkeyPatch, everywhere: bool
) -> None:
    ann.say(topic, *(f"cat {number}" for number in range(5)))
    other = ann.call("topic_create", name="other")["topic_id"]
    ann.join(other, "ann")
    ann.say(other, "a newer kitten")
    work_once(EMBEDDING)
    monkeypatch.setattr(vectors, "AT_ONCE", 2)
    monkeypatch.setattr(vectors, "COMPARED", 3)
    where = {} if everywhere else {"topic_id": topic}
    newest = ["a newer kitten", "cat 3", "cat 4"] if everywhere else ["cat 2", "cat 3", "cat 4"]
    answer = answered(ann, "feline", **where)
    assert (sorted(row["content_markdown"] for row in answer["results"]), warned(answer)) == (
        newest,
        ["SEMANTIC_NEWEST"],
    )
    monkeypatch.setattr(vectors, "COMPARED", 7)
    answer = answered(ann, "feline", **where)
    assert (answer["count"], warned(answer)) == (6 if everywhere else 5, [])


def unindexed() -> list[float]:
    """What /metrics tells of messages that wait to be indexed."""
    families = {family.name: family for family in metrics.collect()}
    return [sample.value for sample in families["nexus_topic_messages_unindexed"].samples]


def test_metrics_tell_how_many_messages_wait_to_be_indexed(
    ann: Client, topic: str, model: str, configure: Configure, tmp_path: Path
) -> None:
    ann.say(topic, "cat 1", "cat 2", "cat 3")
    assert unindexed() == [3], "before the model is loaded"
    work_once(EMBEDDING)
    assert unindexed() == [0]
    ann.say(topic, "cat 4")
    TopicMessage.objects.filter(content_markdown="cat 1").update(content_markdown="car")
    assert unindexed() == [2]
    configure(embedding_model=small_model.make(tmp_path / "other", width=16))
    assert unindexed() == [2], "whose the vectors are is known when it is loaded"
    source.current()
    assert unindexed() == [4]
    configure(embedding_model="")
    assert "nexus_topic_messages_unindexed" not in {family.name for family in metrics.collect()}


@pytest.mark.usefixtures("committed")
@pytest.mark.sqlite  # whose file doctor opens
def test_doctor_sees_vectors_that_are_out_of_step_and_reindexing_mends_them(model: str) -> None:
    ann = Client()
    topic = ann.call("topic_create", name="cache")["topic_id"]
    ann.join(topic, "ann")
    ann.say(topic, "cat", "kitten", "feline", "car", "vehicle")
    work_once(EMBEDDING)

    def problems() -> list[str]:
        with closing(sqlite3.connect(settings.NEXUS.database)) as store:
            examination = FileExamination(settings.NEXUS.home, settings.NEXUS.database, now(), store)
            found = [(check.name, each) for check in maintenance.CHECKS for each in check.check(examination)]
        assert all(name == "vectors of topics" and "`nexus topics reindex`" in each.advice for name, each in found)
        return [each.problem.partition(": ")[2] for _, each in found]

    assert problems() == []
    documents = list(TopicMessage.objects.order_by("seq").values_list("document", flat=True))
    Embedding.objects.filter(pk=documents[0]).update(vector=b"\0" * 6)
    Embedding.objects.filter(pk__in=documents[1:3]).delete()
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA foreign_keys = OFF")
        cursor.execute("UPDATE topic_embeddings SET document = 999 WHERE document = %s", [documents[3]])
        cursor.execute("PRAGMA foreign_keys = ON")
    assert problems() == [
        "1 vectors are of no message, 1 have not the dimension of their model, and 3 messages were passed over."
    ]
    reindexed()
    assert problems() == []
    assert sorted(found(ann, "cat")) == ["cat", "feline", "kitten"]
    assert sorted(found(ann, "automobile")) == ["car", "vehicle"]


@pytest.mark.usefixtures("committed")
async def test_a_server_indexes_what_is_said_beside_its_requests(
    ann: Client, topic: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    loading, embedding = local.Local.__init__, local.Local.embed

    def load(self: local.Local, folder: str) -> None:
        threads.append(threading.current_thread().name)
        loading(self, folder)

    def embed(self: local.Local, texts: Any) -> Any:
        threads.append(threading.current_thread().name)
        return embedding(self, texts)

    monkeypatch.setattr(local.Local, "__init__", load)
    monkeypatch.setattr(local.Local, "embed", embed)
    kept = asyncio.Event()
    loop, keep = asyncio.get_running_loop(), index.store_vectors

    def keep_and_tell(*given: Any) -> None:
        keep(*given)
        loop.call_soon_threadsafe(kept.set)

    monkeypatch.setattr(index, "store_vectors", keep_and_tell)
    outbox = [{"content_markdown": "the car is broken"}]
    working = asyncio.create_task(work_forever(EMBEDDING))
    try:
        await dispatch.arun(TOPICS, ann.caller, "sync", {"topic_id": topic, "outbox": outbox, "wait_seconds": 0})
        await asyncio.wait_for(kept.wait(), START_SECONDS)
        asked = {"query": "automobile", "mode": "semantic"}
        answer = await dispatch.arun(TOPICS, ann.caller, "messages_search", asked)
    finally:
        working.cancel()
    assert answer["results"][0]["snippet"] == "the car is broken"
    assert {name.rpartition("_")[0] for name in threads} == {"nexus-embedding", "nexus-slow"}


def test_full_text_does_not_queue_behind_models(model: str, configure: Configure) -> None:
    assert (search.slow("fts"), search.slow("hybrid"), search.slow("semantic")) == (False, True, True)
    configure(embedding_model="")
    assert not search.slow("hybrid")


def test_what_is_no_vector_is_refused() -> None:
    with pytest.raises(Unavailable):
        vectors.unit(np.array([[1.0, math.nan]]))
    assert not vectors.unit(np.zeros((1, 3))).any()
