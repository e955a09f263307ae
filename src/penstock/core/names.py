"""Validation of the names of queues and groups, of keys and of stored text."""

from __future__ import annotations

from penstock.core.errors import InvalidName, InvalidRequest

MAX_NAME = 200
MAX_KEY_BYTES = 1024
#: The most bytes of the key of a window, a join or a view: PostgreSQL can index it, however well it is compressed.
MAX_WINDOW_KEY_BYTES = 2600


def check_name(name: object, what: str) -> str:
    """Return a valid name of a ``what`` (queue, group, ...) or raise InvalidName."""
    if not isinstance(name, str):
        raise InvalidName(f"the name of a {what} must be text, not {type(name).__name__}")
    if not name:
        raise InvalidName(f"the name of a {what} must not be empty")
    if len(name) > MAX_NAME:
        raise InvalidName(f"the name of a {what} may have up to {MAX_NAME} characters; this one has {len(name)}")
    if not name.isprintable() or name != name.strip():
        raise InvalidName(f"the name of a {what} must be printable, without spaces at its ends: {name!r} is not")
    return name


def find_text_problem(text: object) -> str | None:
    """Return why PostgreSQL cannot store or compare the text, or None if it can."""
    if not isinstance(text, str):
        return f"must be text, not {type(text).__name__}"
    if "\x00" in text:
        return "must not contain the character U+0000, which PostgreSQL cannot store"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains a lone surrogate, which UTF-8 cannot encode"
    return None


def check_text(text: object, what: str) -> str:
    """Return text that PostgreSQL can store, or raise InvalidRequest."""
    problem = find_text_problem(text)
    if problem is not None:
        raise InvalidRequest(f"{what} {problem}")
    assert isinstance(text, str)  # noqa: S101 - for mypy
    return text


def find_key_problem(key: object) -> str | None:
    """Return why an event cannot have the key, or None if it can."""
    problem = find_text_problem(key)
    if problem is not None:
        return problem
    assert isinstance(key, str)  # noqa: S101 - for mypy
    if not key:
        return "must not be empty; leave it out for an event without a key"
    size = len(key.encode())
    if size > MAX_KEY_BYTES:
        return f"may have up to {MAX_KEY_BYTES} bytes; this one has {size}"
    return None


def check_key(key: object) -> str:
    """Return a valid key or raise InvalidName."""
    problem = find_key_problem(key)
    if problem is not None:
        raise InvalidName(f"the key {problem}")
    assert isinstance(key, str)  # noqa: S101 - for mypy
    return str.__str__(key)
