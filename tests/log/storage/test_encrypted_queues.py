"""Encrypted queues: their events and dead letters are stored encrypted, and keys can be rotated."""

from __future__ import annotations

import base64
import logging
import os

import psycopg
import pytest
from msgspec import Raw
from psycopg import sql

from penstock.core.encryption import FILE_VARIABLE, KEYS_VARIABLE
from penstock.core.errors import ConfigurationError, CorruptChunk, InvalidOption
from penstock.log.coordination.timers import TimerOperation
from penstock.log.dead_letters.dead_letter import DAMAGED_STAGE, DeadLetterFilter
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from penstock.log.storage import chunk
from penstock.log.storage.chunk import ChunkColumns
from penstock.log.write.encode.batch import Batch
from tests.log.logs import GROUP, QUEUE, data, drain, letters, pop, push

CONTENT = "the name of the customer"


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    key = new_key()
    monkeypatch.setenv(KEYS_VARIABLE, key)
    return key


def stored_bytes(database_url: str) -> str:
    """Return everything that the tables of the log contain, binary values as text."""
    texts: list[str] = []
    with psycopg.connect(database_url) as conn:
        tables = conn.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname LIKE 'penstock%'"
        ).fetchall()
        for (table,) in tables:
            with conn.cursor(binary=True).copy(f"COPY {table} TO STDOUT (FORMAT binary)") as rows:
                texts += [bytes(row).decode("latin-1") for row in rows]
    return "".join(texts)


async def test_events_and_dead_letters_are_stored_encrypted(log: Log, database_url: str) -> None:
    await log.configure(QUEUE, {"encrypted": True})
    await push(log, [CONTENT, CONTENT * 100], key="ada")
    await log.push([Batch(QUEUE, b'{"%b": ' % CONTENT.encode())], partial=True)
    await log.ack((await pop(log))[:1], "dead_letter")
    assert CONTENT not in stored_bytes(database_url)
    assert data(await drain(log, group="another")) == [CONTENT, CONTENT * 100]
    assert {str(letter.data) for letter in await letters(log)} >= {CONTENT}
    done = await log.redrive(DeadLetterFilter(queue=QUEUE, group=GROUP), edit=lambda letter: b'"%b"' % CONTENT.encode())
    assert done.replayed == 1
    assert CONTENT not in stored_bytes(database_url)
    await log.configure(QUEUE, {"encrypted": False})
    await push(log, [CONTENT[::-1]], key="ada")
    assert CONTENT[::-1] in stored_bytes(database_url)
    assert data(await drain(log, group="a third")) == [CONTENT, CONTENT * 100, CONTENT[::-1]]


async def test_headers_and_edited_data_of_dead_letters_are_stored_encrypted(log: Log, database_url: str) -> None:
    await log.configure(QUEUE, {"encrypted": True})
    await log.push([Batch(QUEUE, [{"data": CONTENT, "headers": {"about": CONTENT}}])])
    await log.ack(await pop(log), "dead_letter")
    (letter,) = await letters(log)
    assert letter.headers == {"about": CONTENT}
    await log.redrive(DeadLetterFilter(queue=QUEUE), edit=lambda letter: b'"new"')
    await log.ack(await pop(log), "dead_letter")
    assert CONTENT not in stored_bytes(database_url)
    (letter,) = await letters(log)
    assert [change["data"] for change in letter.history if "data" in change] == [f'"{CONTENT}"']


def damage_dead_letter(database_url: str, id: int, column: str = "data") -> None:
    """Replace a character in the ciphertext of a dead letter."""
    statement = sql.SQL(
        "UPDATE penstock.dead_letters SET {column} = overlay({column} PLACING "
        "CASE substr({column}, 60, 1) WHEN 'A' THEN 'B' ELSE 'A' END FROM 60) WHERE id = %s"
    ).format(column=sql.Identifier(column))
    with psycopg.connect(database_url, autocommit=True) as conn:
        assert conn.execute(statement, (id,)).rowcount == 1


@pytest.mark.parametrize("column", ["data", "headers"])
async def test_a_damaged_dead_letter_is_listed_and_redriven_from_its_chunk(
    column: str, log: Log, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await log.configure(QUEUE, {"encrypted": True})
    events = [{"data": f"{CONTENT} {number}", "headers": {"about": CONTENT}} for number in range(3)]
    await log.push([Batch(QUEUE, events)])
    await log.ack(await pop(log), "dead_letter", error="broken")
    first, second, third = sorted(await letters(log), key=lambda letter: letter.offset)
    damage_dead_letter(database_url, second.id, column)
    with caplog.at_level(logging.ERROR, "penstock.log"):
        listed = {letter.id: letter for letter in await letters(log)}
        await letters(log)
    assert (listed[first.id], listed[third.id]) == (first, third)
    damaged = listed[second.id]
    assert (damaged.stage, damaged.data, damaged.headers, damaged.offset) == (DAMAGED_STAGE, None, {}, second.offset)
    assert "broken; its encrypted data cannot be read" in damaged.error
    assert caplog.text.count(f"dead letter {second.id} of queue {QUEUE!r}") == 1, "it is logged once"
    assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 3
    assert sorted(data(await drain(log))) == [f"{CONTENT} {number}" for number in range(3)]


async def test_damaged_data_that_an_edit_has_replaced_is_left_out(log: Log, database_url: str) -> None:
    await log.configure(QUEUE, {"encrypted": True})
    await push(log, [CONTENT])
    await log.ack(await pop(log), "dead_letter")
    (letter,) = await letters(log)
    damage_dead_letter(database_url, letter.id)
    await log.redrive(DeadLetterFilter(queue=QUEUE), edit=lambda letter: b'"new"')
    await log.ack(await pop(log), "dead_letter")
    (letter,) = await letters(log)
    assert letter.data == "new"
    assert [change["data"] for change in letter.history if "data" in change] == [None]


async def test_damaged_input_that_was_rejected_is_purged(log: Log, database_url: str) -> None:
    await log.configure(QUEUE, {"encrypted": True})
    await log.push([Batch(QUEUE, b'{"%b": ' % CONTENT.encode())], partial=True)
    (letter,) = await letters(log)
    damage_dead_letter(database_url, letter.id)
    done = await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert done.problems == {letter.id: "it was never an event: purge it"}
    assert await log.purge(DeadLetterFilter(queue=QUEUE)) == 1


async def test_old_keys_decrypt_after_a_rotation(log: Log, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await log.configure(QUEUE, {"encrypted": True})
    await push(log, ["old"], key="ada")
    newer = new_key()
    monkeypatch.setenv(KEYS_VARIABLE, f"{newer}\n{key}")
    await push(log, ["new"], key="bob")
    assert set(data(await drain(log))) == {"old", "new"}
    monkeypatch.setenv(KEYS_VARIABLE, newer)
    assert data(await log.fetch(QUEUE, "bob", 0, 10)) == ["new"]
    with pytest.raises(ConfigurationError, match="is not among the keys of this process"):
        await log.fetch(QUEUE, "ada", 0, 10)


async def test_missing_key_is_reported_and_does_not_affect_other_queues(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.configure(QUEUE, {"encrypted": True})
    monkeypatch.delenv(KEYS_VARIABLE)
    with pytest.raises(InvalidOption, match=FILE_VARIABLE):
        await log.configure("another", {"encrypted": True})
    with pytest.raises(ConfigurationError, match="no key to encrypt"):
        await push(log, ["lost"])
    await log.configure("plain")
    await push(log, ["kept"], queue="plain")
    assert data(await drain(log, queue="plain")) == ["kept"]
    monkeypatch.setenv(KEYS_VARIABLE, "short")
    with pytest.raises(ConfigurationError, match="base64 of 32 bytes"):
        await push(log, ["lost"])


def test_keys_of_a_file_are_read_again_for_an_unknown_key(
    key: str, tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = chunk.encode(ChunkColumns(b"1", 1), encrypted=True)
    file = os.path.join(tmp_path, "keys")
    monkeypatch.setenv(FILE_VARIABLE, file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        chunk.decode(body)
    with open(file, "w") as keys:
        keys.write(new_key())
    with pytest.raises(ConfigurationError, match="is not among the keys"):
        chunk.decode(body)
    with open(file, "a") as keys:
        keys.write(f"\n{key}\n")
    assert chunk.decode(body).data == b"1"


@pytest.mark.parametrize("position", [1, 30, -1])
def test_changed_chunks_are_damaged(position: int) -> None:
    columns = ChunkColumns(b"1" * 1000, 1)
    body = chunk.encode(columns, encrypted=True)
    assert (chunk.decode(body).data, chunk.decoded_size(body) > 1000) == (columns.data, True)
    changed = bytearray(body)
    changed[position] ^= 1
    with pytest.raises(CorruptChunk, match="changed or damaged"):
        chunk.decode(bytes(changed))


async def test_timers_are_stored_encrypted_and_wait_for_the_key(
    log: Log, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.configure(QUEUE, {"encrypted": True})
    await log.configure("plain")
    for queue in (QUEUE, "plain"):
        headers = {"about": f"{CONTENT} of {queue}"}
        operation = TimerOperation(
            "schedule", queue, "a", Raw(f'"{CONTENT} of {queue}"'.encode()), 0.2, headers=headers
        )
        await log.timers.apply([operation])
    assert f"{CONTENT} of {QUEUE}" not in stored_bytes(database_url)
    timer = await log.timers.find(QUEUE, "a")
    assert timer is not None
    assert (timer.data, timer.headers) == (f'"{CONTENT} of {QUEUE}"', {"about": f"{CONTENT} of {QUEUE}"})
    keys = os.environ[KEYS_VARIABLE]
    monkeypatch.setenv(KEYS_VARIABLE, "")
    request = PopRequest("plain", GROUP, wait_seconds=20, auto_ack=True)
    assert data(await log.pop(request)) == [f"{CONTENT} of plain"], "other queues do not wait"
    monkeypatch.setenv(KEYS_VARIABLE, keys)
    await log.due_timers.fire()
    (event,) = await drain(log)
    assert (event.data, event.headers) == (f"{CONTENT} of {QUEUE}", {"about": f"{CONTENT} of {QUEUE}"})
