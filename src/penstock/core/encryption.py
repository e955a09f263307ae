"""Encryption of stored events with AES-256-GCM.

The keys are in the file that ``PENSTOCK_ENCRYPTION_KEY_FILE`` names, or in ``PENSTOCK_ENCRYPTION_KEYS``: base64 of 32
bytes each, separated by white space. The first key encrypts, and all of them decrypt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    # Imported where it is used: executors without encrypted queues need not have it.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEYS_VARIABLE = "PENSTOCK_ENCRYPTION_KEYS"
FILE_VARIABLE = "PENSTOCK_ENCRYPTION_KEY_FILE"

_KEY_BYTES = 32
_ID_BYTES = 8
_CHECKSUM_BYTES = 4
_NONCE_BYTES = 12
_DAMAGED = "it was changed or damaged since it was encrypted"
_HINT = f"put 32 random bytes as base64 (`openssl rand -base64 32`) into a file and name it in {FILE_VARIABLE}"
#: Starts an encrypted text. No JSON text starts so.
_TEXT_PREFIX = "encrypted:"


def check_key() -> None:
    """Raise ConfigurationError unless there is a key to encrypt with."""
    _encrypting_key()


def encrypt(plain: bytes, head: bytes = b"") -> bytes:
    """Return the data encrypted with the first key, after ``head``, which is authenticated but not encrypted."""
    key_id, cipher = _encrypting_key()
    nonce = os.urandom(_NONCE_BYTES)
    head += key_id
    head = b"".join((head, _checksum(head), nonce))
    return head + cipher.encrypt(nonce, plain, head)


def decrypt(body: bytes, head_bytes: int = 0) -> bytes:
    """Return the data that was encrypted.

    Raises ConfigurationError if its key is missing, and ValueError if it is damaged.
    """
    id_end = head_bytes + _ID_BYTES
    nonce_start = id_end + _CHECKSUM_BYTES
    start = nonce_start + _NONCE_BYTES
    key_id = body[head_bytes:id_end]
    if body[id_end:nonce_start] != _checksum(body[:id_end]):
        # Otherwise damage of the id would look like a missing key.
        raise ValueError(_DAMAGED)
    cipher = _ciphers().get(key_id)
    if cipher is None:
        _load_file.cache_clear()  # the key may be a new one
        cipher = _ciphers().get(key_id)
    if cipher is None:
        raise ConfigurationError(
            f"events are encrypted with the key {key_id.hex()}, which is not among the keys of this process: add it to "
            f"the file in {FILE_VARIABLE}"
        )
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(body[nonce_start:start], body[start:], body[:start])
    except InvalidTag:
        raise ValueError(_DAMAGED) from None


def encrypt_text(text: bytes) -> str:
    return _TEXT_PREFIX + base64.b64encode(encrypt(text)).decode()


def decrypt_text(text: str) -> bytes:
    """Return a text that may be encrypted."""
    if not text.startswith(_TEXT_PREFIX):
        return text.encode()
    return decrypt(base64.b64decode(text.removeprefix(_TEXT_PREFIX)))


def _checksum(head: bytes) -> bytes:
    return zlib.crc32(head).to_bytes(_CHECKSUM_BYTES, "little")


def _encrypting_key() -> tuple[bytes, AESGCM]:
    for key_id, cipher in _ciphers().items():
        return key_id, cipher
    raise ConfigurationError(f"this process has no key to encrypt events with: {_HINT}")


def _ciphers() -> Mapping[bytes, AESGCM]:
    """Return the keys by id, the first one first. The id is a part of the key's hash."""
    file = os.environ.get(FILE_VARIABLE)
    return _load_file(file) if file else _parse_keys(os.environ.get(KEYS_VARIABLE, ""), KEYS_VARIABLE)


@lru_cache(1)
def _load_file(path: str) -> Mapping[bytes, AESGCM]:
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigurationError(f"{FILE_VARIABLE}: {path} cannot be read ({error.strerror}): {_HINT}") from None
    return _parse_keys(text, FILE_VARIABLE)


@lru_cache(1)
def _parse_keys(text: str, source: str) -> Mapping[bytes, AESGCM]:
    if not text.strip():
        return {}
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    ciphers: dict[bytes, AESGCM] = {}
    for word in text.split():
        try:
            key = base64.b64decode(word, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != _KEY_BYTES:
            raise ConfigurationError(f"a key of {source} is not base64 of {_KEY_BYTES} bytes: {_HINT}")
        ciphers[hashlib.sha256(key).digest()[:_ID_BYTES]] = AESGCM(key)
    return ciphers
