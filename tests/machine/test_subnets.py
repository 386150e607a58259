import ipaddress
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import RefusedError
from machine.core import subnets

BASE = subnets.DEFAULT_POOL
SMALL = ipaddress.IPv4Network("10.200.0.0/18")  # four pieces


@given(st.uuids(version=4), st.lists(st.ip_addresses(v=4, network="10.0.0.0/8"), max_size=8))
def test_a_piece_lies_in_the_pool_and_overlaps_nothing_taken(
    guid: uuid.UUID, taken: list[ipaddress.IPv4Address]
) -> None:
    busy = [ipaddress.IPv4Network((address, 18), strict=False) for address in taken]
    pool = subnets.choose_pool(str(guid), BASE, busy)
    assert pool.prefixlen == subnets.PIECE_PREFIX
    assert pool.subnet_of(BASE)
    assert not any(pool.overlaps(each) for each in busy)


def test_every_piece_is_handed_out_once_and_then_it_is_refused() -> None:
    taken: list[ipaddress.IPv4Network] = []
    for number in range(4):
        taken.append(subnets.choose_pool(str(number), SMALL, taken))
    assert len(set(taken)) == 4
    with pytest.raises(RefusedError):
        subnets.choose_pool("5", SMALL, taken)


def test_networks_around_and_beside_the_pool() -> None:
    with pytest.raises(RefusedError):
        subnets.choose_pool("a", SMALL, [ipaddress.IPv4Network("10.0.0.0/8")])
    assert subnets.choose_pool("a", SMALL, [ipaddress.IPv4Network("192.168.0.0/16")]).subnet_of(SMALL)


def test_a_pool_that_is_too_small_is_refused() -> None:
    with pytest.raises(RefusedError):
        subnets.choose_pool("a", ipaddress.IPv4Network("10.0.0.0/24"), [])


def test_the_default_bridge_and_user_networks_share_a_piece_without_overlap() -> None:
    pool = subnets.choose_pool("a", BASE, [])
    gateway = ipaddress.IPv4Interface(subnets.gateway(pool))
    user = subnets.user_pools(pool)
    assert gateway.network.subnet_of(pool)
    assert not any(each.overlaps(gateway.network) for each in user)
    assert sum(each.num_addresses for each in user) + gateway.network.num_addresses == pool.num_addresses


@given(st.uuids(version=4))
def test_bridge_names_fit_the_kernel(guid: uuid.UUID) -> None:
    assert len(subnets.bridge_name(str(guid)).encode()) <= 15


def test_routes_of_the_kernel_are_read() -> None:
    table = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    assert subnets.networks_in_routes(table) == (ipaddress.IPv4Network("192.0.2.0/24"),)


def test_addresses_of_devices_are_read() -> None:
    listing = "3: rd-1    inet 10.1.2.1/24 scope global rd-1\\ valid\nodd line\n4: br-x inet6 fe80::1/64\n"
    assert subnets.addresses(listing) == (("rd-1", ipaddress.IPv4Address("10.1.2.1")),)
