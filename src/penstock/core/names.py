"""What a queue, a group or a key may be called."""

from __future__ import annotations

from penstock.core.errors import InvalidName, InvalidRequest

MAX_NAME = 200
MAX_KEY_BYTES = 1024


def check_name(name: object, what: str) -> str:
    """Return the name of a queue or group if it can be one."""
    if not isinstance(name, str):
        raise InvalidName(f"the name of a {what} must be text, not {type(name).__name__}")
    if not name:
        raise InvalidName(f"the name of a {what} must not be empty")
    if len(name) > MAX_NAME:
        raise InvalidName(f"the name of a {what} may have {MAX_NAME} characters; this one has {len(name)}")
    if not name.isprintable() or name != name.strip():
        raise InvalidName(f"the name of a {what} must be printable, without spaces at its ends: {name!r} is not")
    return name


def text_problem(text: object) -> str | None:
    """Say what is wrong with a text that the database is to store or to look for, or None if nothing is."""
    if not isinstance(text, str):
        return f"must be text, not {type(text).__name__}"
    if "\x00" in text:
        return "must not hold the character U+0000, which PostgreSQL cannot store"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate, which UTF-8 cannot carry"
    return None


def check_text(text: object, what: str) -> str:
    """Return a text if the database can look for it."""
    problem = text_problem(text)
    if problem is not None:
        raise InvalidRequest(f"{what} {problem}")
    assert isinstance(text, str)  # noqa: S101 - text_problem has just said so
    return text


def key_problem(key: object) -> str | None:
    """Say what is wrong with an event's key, or None if nothing is."""
    problem = text_problem(key)
    if problem is not None:
        return problem
    assert isinstance(key, str)  # noqa: S101 - text_problem has just said so
    if not key:
        return "must not be empty; leave it out for an event without a key"
    size = len(key.encode())
    if size > MAX_KEY_BYTES:
        return f"may have {MAX_KEY_BYTES} bytes; this one has {size}"
    return None


def check_key(key: object) -> str:
    """Return a key if it can be one."""
    problem = key_problem(key)
    if problem is not None:
        raise InvalidName(f"the key {problem}")
    assert isinstance(key, str)  # noqa: S101 - key_problem has just said so
    return str.__str__(key)
