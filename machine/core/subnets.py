"""Which IPv4 networks a repo's containers use: a piece of the machine's pool of its own. Pure.

Repos keep their piece for as long as they live. Which piece a new repo gets depends on its GUID first, so
that two roots on one machine rarely want the same; pieces in use, by repos or by the machine's own routes,
are passed over.
"""

import hashlib
import ipaddress
from collections.abc import Iterable

from base.errors import RefusedError

PIECE_PREFIX = 20
"""Each repo gets a /20: a /24 for its default bridge, the rest for networks that it makes."""
DEFAULT_POOL = ipaddress.IPv4Network("10.128.0.0/9")
"""Room for 2048 repos, clear of what Docker itself and most home networks use."""


def choose_pool(
    guid: str, base: ipaddress.IPv4Network, taken: Iterable[ipaddress.IPv4Network]
) -> ipaddress.IPv4Network:
    """The /20 of `base` for this repo.

    Args:
        guid: decides where the search begins.
        base: the machine's pool, a /20 or larger.
        taken: networks that must not overlap the result.

    Raises:
        RefusedError: every piece overlaps something.
    """
    if base.prefixlen > PIECE_PREFIX:
        raise RefusedError(f"address pool {base} is smaller than the /{PIECE_PREFIX} that one repo needs")
    count = 1 << (PIECE_PREFIX - base.prefixlen)
    size = 1 << (base.max_prefixlen - PIECE_PREFIX)
    busy = _busy_pieces(base, taken, size)
    start = int.from_bytes(hashlib.sha256(guid.encode()).digest()[:8], "big") % count
    for step in range(count):
        piece = (start + step) % count
        if piece not in busy:
            return ipaddress.IPv4Network((int(base.network_address) + piece * size, PIECE_PREFIX))
    raise RefusedError(
        f"no free /{PIECE_PREFIX} is left in the address pool {base}",
        hint="delete repos that are not needed, or set a larger engine.address_pool in gate.yaml",
    )


def gateway(pool: ipaddress.IPv4Network) -> str:
    """The default bridge's own address: the first of the pool's first /24, as `ip/24`."""
    return f"{pool.network_address + 1}/24"


def user_pools(pool: ipaddress.IPv4Network) -> tuple[ipaddress.IPv4Network, ...]:
    """What networks made by the repo's users are cut from: the pool without its first /24."""
    first = ipaddress.IPv4Network((pool.network_address, 24))
    return tuple(sorted(pool.address_exclude(first)))


def bridge_name(guid: str) -> str:
    """The repo's bridge device: `rd-` and twelve digits of the GUID, 15 bytes, the kernel's limit."""
    return "rd-" + guid.replace("-", "")[:12]


def addresses(listing: str) -> tuple[tuple[str, ipaddress.IPv4Address], ...]:
    """Device and address of every line of `ip -o -4 addr show`; lines of another form are passed over."""
    found = []
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[2] == "inet":  # 3: br0 inet 10.0.0.1/24 ...
            found.append((fields[1], ipaddress.IPv4Interface(fields[3]).ip))
    return tuple(found)


def networks_in_routes(table: str) -> tuple[ipaddress.IPv4Network, ...]:
    """The destination networks in the text of `/proc/net/route`, default routes left out."""
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        destination = int.from_bytes(bytes.fromhex(fields[1]), "little")
        mask = int.from_bytes(bytes.fromhex(fields[7]), "little")
        if mask:
            found.append(ipaddress.IPv4Network((destination & mask, mask.bit_count())))
    return tuple(found)


def _busy_pieces(
    base: ipaddress.IPv4Network, taken: Iterable[ipaddress.IPv4Network], size: int
) -> frozenset[int]:
    busy: set[int] = set()
    for network in taken:
        if network.overlaps(base):
            first = max(int(network.network_address), int(base.network_address)) - int(base.network_address)
            last = min(int(network.broadcast_address), int(base.broadcast_address)) - int(
                base.network_address
            )
            busy.update(range(first // size, last // size + 1))
    return frozenset(busy)
