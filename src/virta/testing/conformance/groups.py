"""Consumer groups: who reads what, what is committed when, and what comes again."""

from __future__ import annotations

from typing import Any

import pytest

from virta.errors import Closed, Conflict, Fenced, NotFound, UsageError
from virta.testing.conformance.base import Conformance, up_to
from virta.topics.groups.retry import Retry

PARTITIONS = 4


def read(reader: Any, max_rows: int = 10_000) -> list[int]:
    """All that is there for this reader now."""
    return [n for batch in reader.batches(max_rows, stop_when_idle=0) for n in batch.column("n").to_pylist()]


class GroupConformance(Conformance):
    @pytest.fixture
    def spread(self, log: Any) -> Any:
        topic = log.create_topic("spread", {"n": int}, partitions=PARTITIONS)
        for number in range(PARTITIONS):
            topic.append([{"n": 100 * number + n} for n in range(10)], partition=number)
        return topic

    # -- one reader ----------------------------------------------------------------------------

    def test_a_group_remembers_how_far_it_came(self, numbers: Any, other: Any) -> None:
        numbers.append(up_to(10))
        with numbers.reader(group="billing") as reader:
            assert read(reader, 4) == list(range(10))
        numbers.append(up_to(15, 10))
        with other.topic("numbers").reader(group="billing") as reader:
            assert read(reader) == list(range(10, 15))
        with numbers.reader(group="another") as reader:
            assert read(reader) == list(range(15))

    def test_what_a_body_did_not_finish_comes_again(self, numbers: Any) -> None:
        numbers.append(up_to(10))
        with pytest.raises(ZeroDivisionError), numbers.reader(group="g") as reader:
            for count, _ in enumerate(reader.batches(4, stop_when_idle=0)):
                if count == 1:
                    raise ZeroDivisionError
        with numbers.reader(group="g") as reader:
            assert read(reader) == list(range(4, 10))

    def test_leaving_the_loop_finishes_nothing(self, numbers: Any) -> None:
        numbers.append(up_to(10))
        with numbers.reader(group="g") as reader:
            for _ in reader.batches(4):
                break
        with numbers.reader(group="g") as reader:
            for _ in reader.batches(4):
                reader.commit()
                break
        with numbers.reader(group="g") as reader:
            assert read(reader) == list(range(4, 10))

    def test_row_by_row(self, numbers: Any) -> None:
        numbers.append(up_to(10))
        numbers.append(up_to(20, 10))
        with pytest.raises(ZeroDivisionError), numbers.reader(group="g") as reader:
            for row in reader:
                if row["n"] == 13:
                    raise ZeroDivisionError
        with numbers.reader(group="g") as reader:
            assert [row["n"] for row in reader.rows(stop_when_idle=0)] == list(range(13, 20))

    def test_at_most_once(self, numbers: Any) -> None:
        numbers.append(up_to(10))
        with pytest.raises(ZeroDivisionError), numbers.reader(group="g", delivery="at_most_once") as reader:
            for _ in reader.batches(4):
                raise ZeroDivisionError
        with numbers.reader(group="g", delivery="at_most_once") as reader:
            assert read(reader) == list(range(4, 10))

    def test_where_a_new_group_begins(self, numbers: Any) -> None:
        numbers.append(up_to(5))
        with numbers.reader(group="late", start="newest") as reader:
            assert read(reader) == []
        numbers.append(up_to(10, 5))
        with numbers.reader(group="late", start="newest") as reader:
            assert read(reader) == list(range(5, 10))
        with numbers.reader(group="since", start="-1h") as reader:
            assert read(reader) == list(range(10))

    def test_rows_that_come_later(self, numbers: Any, other: Any) -> None:
        with numbers.reader(group="g") as reader:
            batches = reader.batches(stop_when_idle=5)
            for n in range(3):
                other.topic("numbers").append({"n": n})
                assert next(batches).column("n").to_pylist() == [n]

    def test_small_blocks_are_handed_out_together(self, numbers: Any) -> None:
        for n in range(10):
            numbers.append({"n": n})
        with numbers.reader(group="g") as reader:
            sizes = [batch.num_rows for batch in reader.batches(7, stop_when_idle=0)]
        assert sizes == [7, 3]

    def test_the_place_and_the_lag(self, numbers: Any) -> None:
        numbers.append(up_to(10))
        with numbers.reader(group="g") as reader:
            assert reader.lag.rows == 10
            assert 0 <= reader.lag.seconds < 60
            for _ in reader.batches(4, stop_when_idle=0):
                assert reader.partition == 0
            assert (reader.lag.rows, reader.lag.seconds) == (0, 0)
            assert reader.position[0].offset == reader.committed[0].offset == 10
            assert (reader.group, reader.topic, reader.partitions) == ("g", "numbers", [0])
        with pytest.raises(Closed):
            read(reader)

    # -- several readers -----------------------------------------------------------------------

    def test_readers_share_the_partitions(self, spread: Any, other: Any) -> None:
        with spread.reader(group="g") as one:
            assert one.partitions == [0, 1, 2, 3]
            with other.topic("spread").reader(group="g") as two:
                first = read(one, 3)
                second = read(two, 3)
                assert (one.partitions, two.partitions) == ([0, 1], [2, 3])
                first += read(one)
                assert sorted(first + second) == [100 * p + n for p in range(4) for n in range(10)]
            spread.append(up_to(7), partition=3)
            assert read(one) == list(range(7))
            assert one.partitions == [0, 1, 2, 3]

    def test_nothing_is_lost_or_doubled_when_partitions_move(self, spread: Any, other: Any) -> None:
        """What was finished is committed before a partition is given up."""
        seen: list[int] = []
        with spread.reader(group="g") as one:
            batches = one.batches(3, stop_when_idle=0)
            for _ in range(5):
                seen += next(batches).column("n").to_pylist()
            with other.topic("spread").reader(group="g") as two:
                seen += [n for batch in batches for n in batch.column("n").to_pylist()]
                seen += read(two, 3)
        assert sorted(seen) == [100 * p + n for p in range(4) for n in range(10)]

    def test_a_member_that_was_silent_is_fenced(self, spread: Any, other: Any) -> None:
        with spread.reader(group="g", session_timeout=0.3, processing_timeout=0) as one:
            batches = one.batches(100)
            next(batches)
            with other.topic("spread").reader(group="g", session_timeout=5) as two:
                seen: list[int] = []
                for batch in two.batches(100):  # one says nothing any more, and loses them all
                    seen += batch.column("n").to_pylist()
                    if len(seen) == 40:
                        two.commit()
                        break
                with pytest.raises(Fenced):
                    one.commit()
        assert sorted(seen) == [100 * p + n for p in range(4) for n in range(10)]

    def test_a_named_member_gets_its_own_back(self, spread: Any) -> None:
        with spread.reader(group="g", member="pod-0") as one, spread.reader(group="g", member="pod-1") as two:
            for _ in range(2):
                read(one)
                read(two)
            mine, yours = one.partitions, two.partitions
            assert sorted(mine + yours) == [0, 1, 2, 3]
            one.close()
            read(two)
            assert two.partitions == yours
            with spread.reader(group="g", member="pod-0") as again:
                assert again.partitions == mine

    def test_more_readers_than_partitions(self, numbers: Any) -> None:
        numbers.append(up_to(3))
        with numbers.reader(group="g") as one, numbers.reader(group="g") as two:
            assert read(one) == [0, 1, 2]
            assert (read(two), two.partitions) == ([], [])
            assert two.lag.rows == 0

    # -- from outside ---------------------------------------------------------------------------

    def test_a_group_is_described(self, log: Any, spread: Any) -> None:
        with spread.reader(group="g", member="pod-0") as reader:
            for _ in reader.batches(10, stop_when_idle=0):
                pass
            spread.append(up_to(5), partition=2)
            (found,) = log.groups()
            assert (found.group, found.topic, found.lag.rows) == ("g", "spread", 5)
            assert [member.instance for member in found.members] == ["pod-0"]
            assert found.members[0].partitions == (0, 1, 2, 3)
            assert [part.offset for part in found.partitions] == [10] * 4
            assert [part.lag.rows for part in found.partitions] == [0, 0, 5, 0]
            assert {part.owner for part in found.partitions} == {reader.member}
            assert spread.groups() == ["g"]
            assert spread.group("g").describe() == found or spread.group("g").describe().lag.rows == 5
        with pytest.raises(NotFound, match="no group"):
            spread.group("nobody").describe()

    def test_offsets_are_rows(self, log: Any, spread: Any) -> None:
        with spread.reader(group="g") as reader:
            read(reader)
        rows = list(log.topic("__offsets"))
        assert {row["partition"]: row["offset"] for row in rows} == dict.fromkeys(range(4), 10)
        assert {(row["group"], row["topic"], row["topic_id"]) for row in rows} == {("g", "spread", spread.id)}

    def test_a_reset_tells_first(self, spread: Any) -> None:
        with spread.reader(group="g") as reader:
            read(reader)
        group = spread.group("g")
        plans = group.reset("oldest", dry_run=True)
        assert [(plan.before, plan.after, plan.again, plan.skipped) for plan in plans] == [(10, 0, 10, 0)] * 4
        assert group.describe().lag.rows == 0
        group.reset({1: 4})
        assert group.describe().lag.rows == 6
        with spread.reader(group="g") as reader:
            assert read(reader) == [104, 105, 106, 107, 108, 109]
            with pytest.raises(UsageError, match="being read") as caught:
                group.reset("oldest")
            assert caught.value.code == Conflict.code
        group.reset("-1h")
        assert group.describe().lag.rows == 40
        group.reset("newest")
        assert group.describe().lag.rows == 0
        with pytest.raises(UsageError, match="partition"):
            group.reset(5)
        with pytest.raises(NotFound):
            group.reset({0: 1000})

    def test_a_group_is_forgotten(self, log: Any, numbers: Any) -> None:
        numbers.append(up_to(3))
        with numbers.reader(group="g") as reader:
            read(reader)
            with pytest.raises(UsageError, match="being read"):
                numbers.group("g").remove()
        numbers.group("g").remove()
        assert log.groups() == []
        with pytest.raises(NotFound):
            numbers.group("g").remove()
        with numbers.reader(group="g") as reader:
            assert read(reader) == [0, 1, 2]

    def test_a_topic_made_again_begins_anew(self, log: Any) -> None:
        for _ in range(2):
            topic = log.create_topic("t", {"n": int})
            topic.append(up_to(3))
            with topic.reader(group="g") as reader:
                assert read(reader) == [0, 1, 2]
            log.drop_topic("t")
        assert log.groups() == []

    # -- exactly once ------------------------------------------------------------------------------

    def test_what_rows_cause_goes_into_another_topic(self, log: Any, numbers: Any) -> None:
        doubled = log.create_topic("doubled", {"m": int})
        numbers.append(up_to(10))
        with numbers.reader(group="g", into=doubled) as reader:
            for row in reader.rows(stop_when_idle=0):
                if row["n"] % 3:
                    reader.send({"m": 2 * row["n"]})
        with numbers.reader(group="g", into=doubled) as reader:
            assert read(reader) == []
        numbers.append(up_to(14, 10))
        with numbers.reader(group="g", into=doubled) as reader:
            for batch in reader.batches(3, stop_when_idle=0):
                reader.send([{"m": 2 * n} for n in batch.column("n").to_pylist()])
        expected = [2 * n for n in range(10) if n % 3] + [2 * n for n in range(10, 14)]
        assert [row["m"] for row in doubled] == expected

    def test_what_a_body_did_not_finish_causes_nothing(self, log: Any, numbers: Any) -> None:
        doubled = log.create_topic("doubled", {"m": int})
        numbers.append(up_to(6))
        with pytest.raises(ZeroDivisionError), numbers.reader(group="g", into=doubled) as reader:
            for row in reader.rows(stop_when_idle=0):
                reader.send({"m": row["n"]})
                if row["n"] == 3:
                    raise ZeroDivisionError
        assert [row["m"] for row in doubled] == [0, 1, 2]
        tries = iter(range(100))
        with numbers.reader(group="g", into=doubled, retry=Retry(attempts=2, delay=0)) as reader:
            for row in reader.rows(stop_when_idle=0.5):
                with reader.attempt():
                    reader.send({"m": row["n"]})
                    if row["n"] == 4 and next(tries) < 5:
                        raise ValueError("no")
        assert [row["m"] for row in doubled] == [0, 1, 2, 3, 5]

    @pytest.mark.parametrize("partitions", [1, 3])
    def test_a_target_that_is_ahead_of_the_group(self, log: Any, numbers: Any, partitions: int) -> None:
        """As after a death between the two writes: here the commit alone is taken back."""
        target = log.create_topic("target", {"m": int}, keys=["m"], partitions=partitions)
        numbers.append(up_to(30))
        with numbers.reader(group="g", into=target) as reader:
            for batch in reader.batches(7, stop_when_idle=0):
                reader.send(batch.select(["n"]).rename_columns(["m"]))
        for offset in (0, 7, 14, 28):
            numbers.group("g").reset({0: offset})
            with numbers.reader(group="g", into=target) as reader:
                for batch in reader.batches(1000, stop_when_idle=0):
                    reader.send(batch.select(["n"]).rename_columns(["m"]))
            assert sorted(row["m"] for row in target) == list(range(30))
            assert numbers.group("g").describe().lag.rows == 0

    def test_who_was_thought_dead_appends_no_more(self, log: Any, numbers: Any, other: Any) -> None:
        target = log.create_topic("target", {"m": int})
        numbers.append(up_to(10))
        with numbers.reader(group="g", into=target, session_timeout=0.3, processing_timeout=0) as one:
            first = one.batches(4, stop_when_idle=0)
            one.send([{"m": n} for n in next(first).column("n").to_pylist()])
            into = other.topic("target")
            with other.topic("numbers").reader(group="g", into=into, session_timeout=1) as two:
                for batch in two.batches(stop_when_idle=1.5):
                    two.send([{"m": n} for n in batch.column("n").to_pylist()])
                with pytest.raises(Fenced):
                    one.commit()
        assert [row["m"] for row in target] == list(range(10))

    def test_targets_that_cannot_be(self, log: Any, numbers: Any) -> None:
        hasty = log.create_topic("hasty", {"m": int}, durability="memory")
        target = log.create_topic("target", {"m": int, "data": bytes})
        numbers.append(up_to(2))
        with pytest.raises(UsageError, match="only are in memory"):
            numbers.reader(group="g", into=hasty)
        with pytest.raises(UsageError, match="exactly once"):
            numbers.reader(group="g", into=target, delivery="at_most_once")
        with numbers.reader(group="g") as reader, pytest.raises(UsageError, match="into=topic"):
            reader.send({"m": 1})
        with (
            pytest.raises(UsageError, match="smaller batches"),
            numbers.reader(group="g", into=target) as reader,
        ):
            with pytest.raises(UsageError, match="loop's body"):
                reader.send({"m": 1})
            for _ in reader.batches(stop_when_idle=0):
                for _ in range(3):
                    reader.send({"m": 1, "data": bytes(6_000_000)})
        assert target.count() == 0

    # -- rows that fail --------------------------------------------------------------------------

    def test_what_fails_is_tried_again_in_its_order(self, numbers: Any) -> None:
        numbers.append(up_to(6))
        seen, failures = [], iter((True, True))
        with numbers.reader(group="g", retry=Retry(attempts=4, delay=0.05)) as reader:
            for row in reader.rows(stop_when_idle=1):
                with reader.attempt():
                    if row["n"] == 3 and next(failures, False):
                        raise ConnectionError("not now")
                    seen.append(row["n"])
        assert seen == list(range(6))
        assert numbers.group("g").dead_letters().all() == []

    def test_other_partitions_go_on_meanwhile(self, spread: Any) -> None:
        seen = []
        with spread.reader(group="g", retry=Retry(attempts=2, delay=0.3)) as reader:
            for row in reader.rows(stop_when_idle=1):
                with reader.attempt():
                    if row["n"] == 102 and 102 not in seen:
                        seen.append(102)
                        raise ConnectionError("not now")
                    seen.append(row["n"])
        again = len(seen) - 1 - seen[::-1].index(102)
        assert seen.index(309) < again
        assert [n for n in seen[again:] if n // 100 == 1] == list(range(102, 110))
        assert sorted(set(seen)) == [100 * p + n for p in range(4) for n in range(10)]

    def test_what_keeps_failing_becomes_a_dead_letter(self, log: Any, numbers: Any) -> None:
        numbers.append(up_to(6))
        seen, tries = [], 0
        with numbers.reader(group="g", retry=Retry(attempts=3, delay=0)) as reader:
            for row in reader.rows(stop_when_idle=0):
                with reader.attempt():
                    if row["n"] == 2:
                        tries += 1
                        raise ValueError(f"cannot work on {row['n']}")
                    seen.append(row["n"])
        assert (seen, tries) == ([0, 1, 3, 4, 5], 3)
        letters = numbers.group("g").dead_letters()
        (letter,) = letters.all()
        assert (letter.group, letter.topic, letter.topic_id) == ("g", "numbers", numbers.id)
        assert (letter.partition, letter.offset, letter.attempts, letter.row) == (0, 2, 3, {"n": 2})
        assert (letter.error_type, letter.error) == ("ValueError", "cannot work on 2")
        assert "raise ValueError" in letter.traceback
        assert letter.failed_at >= letter.appended_at
        assert numbers.group("g").describe().lag.rows == 0
        (row,) = log.topic("numbers.dead").table().to_arrow().to_pylist()
        assert (row["group"], row["row"]) == ("g", '{"n": 2}')
        assert numbers.group("another").dead_letters().all() == []

    def test_hopeless_errors_are_not_tried_again(self, numbers: Any) -> None:
        numbers.append(up_to(3))
        with numbers.reader(group="g", retry=Retry(delay="1h", hopeless=(KeyError,))) as reader:
            for row in reader.rows(stop_when_idle=0):
                with reader.attempt():
                    row["nothing"]
        assert [letter.attempts for letter in numbers.group("g").dead_letters().all()] == [1, 1, 1]

    def test_of_a_batch_that_keeps_failing_only_the_bad_rows_are_set_aside(self, numbers: Any) -> None:
        numbers.append(up_to(12))
        done: list[int] = []
        with numbers.reader(group="g", retry=Retry(attempts=2, delay=0)) as reader:
            for batch in reader.batches(5, stop_when_idle=0):
                with reader.attempt():
                    found = batch.column("n").to_pylist()
                    if 3 in found or 7 in found:
                        raise ValueError("a bad one is among them")
                    done += found
        assert sorted(done) == [n for n in range(12) if n not in (3, 7)]
        assert [letter.row["n"] for letter in numbers.group("g").dead_letters().all()] == [3, 7]

    def test_attempts_are_counted_over_readers(self, numbers: Any) -> None:
        numbers.append(up_to(3))
        tries = 0
        for _ in range(3):
            with numbers.reader(group="g", retry=Retry(attempts=3, delay="1h")) as reader:
                for row in reader.rows(stop_when_idle=0):
                    with reader.attempt():
                        if row["n"] == 1:
                            tries += 1
                            raise ValueError("no")
        assert tries == 3
        (letter,) = numbers.group("g").dead_letters().all()
        assert (letter.attempts, letter.row) == (3, {"n": 1})
        assert numbers.group("g").describe().lag.rows == 0

    def test_dead_letters_are_sent_again(self, numbers: Any) -> None:
        numbers.append(up_to(4))
        with numbers.reader(group="g", retry=Retry(attempts=1)) as reader:
            for row in reader.rows(stop_when_idle=0):
                with reader.attempt():
                    if row["n"] % 2:
                        raise ValueError("odd")
        letters = numbers.group("g").dead_letters()
        one, three = letters.all()
        assert (one.row, three.row) == ({"n": 1}, {"n": 3})
        assert letters.resend([three]) == 1
        assert letters.resend([three]) == 1  # begun again: it is there already
        assert [letter.row for letter in letters.all()] == [{"n": 1}]
        with numbers.reader(group="g") as reader:
            assert read(reader) == [3]
        assert letters.discard() == 1
        assert letters.all() == []
        assert [row["n"] for row in numbers] == [0, 1, 2, 3, 3]
        with pytest.raises(UsageError):
            numbers.group("h").dead_letters().resend([one])

    def test_rows_of_update_topics_are_not_sent_again(self, log: Any) -> None:
        users = log.create_topic("users", {"id": int, "name": str}, kind="update", keys=["id"])
        users.append({"id": 1, "name": "ada"})
        with users.reader(group="g", retry=Retry(attempts=1)) as reader:
            for _ in reader.rows(stop_when_idle=0):
                with reader.attempt():
                    raise ValueError("no")
        letters = users.group("g").dead_letters()
        assert [letter.row["name"] for letter in letters.all()] == ["ada"]
        with pytest.raises(UsageError, match="older row"):
            letters.resend()

    def test_attempts_that_cannot_be(self, log: Any, numbers: Any) -> None:
        numbers.append(up_to(2))
        for options in ({"attempts": 0}, {"attempts": True}, {"delay": "-1s"}):
            with pytest.raises(UsageError):
                Retry(**options)
        with numbers.reader(group="g", delivery="at_most_once") as reader:
            next(iter(reader.batches()))
            with pytest.raises(UsageError, match="at most once"):
                reader.attempt()
        with numbers.reader(group="h") as reader, pytest.raises(UsageError, match="nothing to try"):
            reader.attempt()
        log.create_topic("numbers.dead", {"n": int})
        with numbers.reader(group="i", retry=Retry(attempts=1)) as reader:
            next(iter(reader.rows()))
            with pytest.raises(UsageError, match="not made for dead letters"), reader.attempt():
                raise ValueError("no")

    @pytest.mark.parametrize(
        "options",
        [
            {"group": ""},
            {"group": "g", "delivery": "sometimes"},
            {"group": "g", "session_timeout": 0.01},
            {"group": "g", "start": "yesterday-ish"},
        ],
        ids=str,
    )
    def test_readers_that_cannot_be(self, numbers: Any, options: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            numbers.reader(**options)
