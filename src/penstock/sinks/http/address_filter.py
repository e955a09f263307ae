"""Which addresses a URL that somebody typed may lead to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from penstock.core.errors import InvalidRequest, SinkBusy, shown

Address = IPv4Address | IPv6Address

# Addresses of IPv6 that stand for one of IPv4.
_NAT64 = IPv6Network("64:ff9b::/96")
# All that is given out to anybody; what has other beginnings stands for something else, or for nothing.
_GIVEN_OUT = IPv6Network("2000::/3")
# What the ipaddress of some Python counts as public: examples, relays, and a cloud's own services.
_NOT_PUBLIC = tuple(map(ip_network, ("2001::/32", "3fff::/20", "192.88.99.0/24", "168.63.129.16/32")))


def is_public(address: Address) -> bool:
    """Whether it is an address of the internet, and no machine's, network's or cloud's inner one."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GIVEN_OUT:
            return False
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast


async def resolve(host: str, port: int, allowed: Sequence[str]) -> list[str]:
    """The addresses of a host that may be connected to.

    They are to be connected to as they are: a name that is looked up a second time may lead elsewhere. ``allowed`` are
    networks such as ``10.0.0.0/8`` that may be used although they are not public.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise SinkBusy(f"the address of {host} cannot be found: {error.strerror}") from None
    addresses = [ip_address(str(place[0]).partition("%")[0]) for *_, place in found]
    networks = [ip_network(network) for network in allowed]
    good = [a for a in addresses if is_public(a) or any(a in n for n in networks if n.version == a.version)]
    if not good:
        raise InvalidRequest(
            f"{host} is at {addresses[0]}, which is not a public address: allow it if you mean it "
            f"(allow=['{addresses[0]}/{addresses[0].max_prefixlen}'], --allow on the command line)"
        )
    return [str(address) for address in good]


def check_networks(allowed: Sequence[str]) -> tuple[str, ...]:
    """Return the networks, if they are some."""
    given: object = allowed
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise InvalidRequest(f"allow is a list of networks such as ['10.0.0.0/8'], not {shown(given)}")
    try:
        return tuple(str(ip_network(network)) for network in allowed)
    except ValueError as error:
        raise InvalidRequest(f"{error}: networks are given as 10.0.0.0/8 or as one address") from None
