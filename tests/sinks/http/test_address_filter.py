from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest
from penstock.sinks import Webhook
from penstock.sinks.conformance import make_events
from penstock.sinks.http.address_filter import is_public, resolve
from tests.sinks.http.webhook_receiver import run_receiver


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 - not listened on
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("fd00::1", False),
        ("fe80::1", False),
        ("224.0.0.1", False),
        ("168.63.129.16", False),
        ("192.88.99.1", False),
        ("192.0.0.192", False),
        ("192.0.0.9", False),
        ("::ffff:192.0.0.192", False),
        ("64:ff9b::c000:c0", False),
        ("2002:c000:c0::", False),
        ("::", False),
        ("::127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("64:ff9b:1::7f00:1", False),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", False),
        ("fd00:ec2::254", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("3fff::1", False),
        ("5f00::1", False),
    ],
)
def test_is_public(address: str, public: bool) -> None:
    from ipaddress import ip_address

    assert is_public(ip_address(address)) is public


async def test_private_addresses_are_refused_unless_allowed() -> None:
    async with run_receiver() as receiver:
        for url in (receiver.url, receiver.url.replace("127.0.0.1", "localhost"), "http://169.254.169.254/latest"):
            with pytest.raises(InvalidRequest, match="not a public address"):
                await Webhook(url).open()
        assert await resolve("127.0.0.1", 80, ["127.0.0.1/32"]) == ["127.0.0.1"]
        assert receiver.requests == []


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "localhost", "[::1]", "[::ffff:7f00:1]", "[::]"]
)
async def test_private_addresses_are_refused_in_any_notation(host: str) -> None:
    with pytest.raises(InvalidRequest, match=r"not a public address|cannot be read"):
        await Webhook(f"http://{host}:9/").open()


async def test_dns_rebinding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is held against the address that it goes to, not against one that was looked up before."""
    async with run_receiver() as receiver:
        answers = iter(["93.184.215.14", "127.0.0.1"])
        loop = asyncio.get_running_loop()

        async def look_up(host: str, port: int, **_: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

        monkeypatch.setattr(loop, "getaddrinfo", look_up)
        sink = Webhook(f"http://rebound.example:{receiver.url.rpartition(':')[2].strip('/')}/")
        await sink.open()
        with pytest.raises(InvalidRequest, match=r"127\.0\.0\.1, which is not a public address"):
            await sink.write(make_events([1]))
        await sink.close()
        assert not receiver.taken()
