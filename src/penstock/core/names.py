"""What a queue, a group or a key may be called."""

from __future__ import annotations

from penstock.core.errors import InvalidName

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


def key_problem(key: object) -> str | None:
    """Say what is wrong with an event's key, or None if nothing is."""
    if not isinstance(key, str):
        return f"must be text, not {type(key).__name__}"
    if not key:
        return "must not be empty; leave it out for an event without a key"
    if "\x00" in key:
        return "must not hold the character U+0000"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "holds a lone surrogate, which UTF-8 cannot carry"
    if size > MAX_KEY_BYTES:
        return f"may have {MAX_KEY_BYTES} bytes; this one has {size}"
    return None


def check_key(key: object) -> str:
    """Return a key if it can be one."""
    problem = key_problem(key)
    if problem is not None:
        raise InvalidName(f"the key {problem}")
    assert isinstance(key, str)  # noqa: S101 - key_problem has just said so
    return key
