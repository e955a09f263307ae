"""Resolves the host of a webhook and refuses addresses that are not public."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from penstock.core.errors import InvalidRequest, SinkBusy, short_repr

Address = IPv4Address | IPv6Address

# IPv6 addresses that contain an IPv4 address.
_NAT64 = IPv6Network("64:ff9b::/96")
# The allocated global unicast addresses.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# Networks that ``ipaddress`` counts as public in some versions of Python: Teredo, documentation, 6to4 relays, protocol
# assignments (with the metadata service of Oracle's cloud, 192.0.0.192), and the metadata service of Azure.
_NOT_PUBLIC = tuple(map(ip_network, ("2001::/32", "3fff::/20", "192.88.99.0/24", "192.0.0.0/24", "168.63.129.16/32")))


def is_public(address: Address) -> bool:
    """Return whether the address is on the internet, and not of a machine, a private network or a cloud service."""
    if isinstance(address, IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if embedded is None and address in _NAT64:
            embedded = IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return is_public(embedded)
        if address not in _GLOBAL_UNICAST:
            return False
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast


async def resolve(host: str, port: int, allowed: Sequence[str]) -> list[str]:
    """Return the addresses of a host that are public or in one of the ``allowed`` networks, such as ``10.0.0.0/8``.

    The caller must connect to one of these addresses: resolving the name again can return another address.
    """
    try:
        results = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise SinkBusy(f"the name {host} cannot be resolved: {error.strerror}", is_sent=False) from None
    addresses = [ip_address(str(socket_address[0]).partition("%")[0]) for *_, socket_address in results]
    networks = [ip_network(network) for network in allowed]
    usable = [a for a in addresses if is_public(a) or any(a in n for n in networks if n.version == a.version)]
    if not usable:
        raise InvalidRequest(
            f"the address of {host} is {addresses[0]}, which is not a public address: allow it if you want that "
            f"(allow=['{addresses[0]}/{addresses[0].max_prefixlen}'], --allow on the command line)"
        )
    return [str(address) for address in usable]


def check_networks(allowed: Sequence[str]) -> tuple[str, ...]:
    """Return the networks in their usual notation, or raise InvalidRequest."""
    given: object = allowed
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(item, str) for item in given):
        raise InvalidRequest(f"allow must be a list of networks such as ['10.0.0.0/8'], not {short_repr(given)}")
    try:
        return tuple(str(ip_network(network)) for network in allowed)
    except ValueError as error:
        raise InvalidRequest(f"{error}: give a network such as 10.0.0.0/8, or an address") from None
