import ipaddress
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from base.errors import RefusedError, UnreachableError
from base.layout import Layout
from machine import network
from machine.core.subnets import DEFAULT_POOL
from machine.network import Network, pool_of

POOL = ipaddress.IPv4Network("10.130.16.0/20")


FAKE = """\
#!/bin/sh
echo {name} "$@" >>{folder}/calls
case " $* " in
*' -C '* | *' -L '* | *' -S RD-'* | *' link show '*) exit 1 ;;
*"{failing}"*) echo refused >&2; exit 1 ;;
esac
[ "$1" != -o ] || cat {folder}/listing
"""


def fake_tools(folder: Path, *, failing: str = "no such call", listing: str = "") -> dict[str, Path]:
    """Tools that write down how they were called; looking finds nothing, `failing` calls fail."""
    (folder / "listing").write_text(listing)
    tools = {}
    for name in ("ip", "iptables", "docker-proxy"):
        path = folder / name
        path.write_text(FAKE.format(name=name, folder=folder, failing=failing))
        path.chmod(0o755)
        tools[name] = path
    return tools


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def own(tools: dict[str, Path]) -> Network:
    return Network(guid="6af613b6-569c-4c22-9c37-2ed93f31d3af", base=DEFAULT_POOL, pool=POOL, tools=tools)


def test_a_bridge_with_its_rules_is_made(tmp_path: Path) -> None:
    own(fake_tools(tmp_path)).up()
    done = calls(tmp_path)
    assert "ip link add name rd-6af613b6569c type bridge" in done
    assert "ip addr replace 10.130.16.1/24 dev rd-6af613b6569c" in done
    assert "iptables -w -t nat -I POSTROUTING -s 10.130.16.0/20 ! -d 10.130.16.0/20 -j MASQUERADE" in done
    assert "iptables -w -t filter -I FORWARD -j RD-6AF613B6569C" in done


def test_a_chain_that_is_right_is_never_emptied(tmp_path: Path) -> None:
    tools = fake_tools(tmp_path)
    own(tools).up()
    rules = [each.removeprefix("iptables -w ") for each in calls(tmp_path) if " -A RD-" in each]
    (tmp_path / "chain").write_text("\n".join(["-N RD-6AF613B6569C", *rules]) + "\n")
    (tmp_path / "calls").unlink()
    tools["iptables"].write_text(
        f'#!/bin/sh\necho iptables "$@" >>{tmp_path}/calls\n[ "$2" != -S ] || cat {tmp_path}/chain\n'
    )
    own(tools).up()
    assert not [each for each in calls(tmp_path) if " -F " in each or " -A " in each or " -N " in each]


def test_other_repos_are_cut_off_before_the_world_is_let_in(tmp_path: Path) -> None:
    own(fake_tools(tmp_path)).up()
    rules = [each.split(" RD-6AF613B6569C ")[1] for each in calls(tmp_path) if " -A RD-" in each]
    assert rules == [
        "-s 10.130.16.0/20 -d 10.130.16.0/20 -j ACCEPT",
        "-s 10.130.16.0/20 -d 10.128.0.0/9 -j DROP",
        "-s 10.130.16.0/20 -j ACCEPT",
        "-d 10.130.16.0/20 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-d 10.130.16.0/20 -j DROP",
    ]


@pytest.mark.parametrize("failing", ["link add", "MASQUERADE", "conntrack"])
def test_a_tool_that_refuses_is_told(tmp_path: Path, failing: str) -> None:
    with pytest.raises(UnreachableError) as caught:
        own(fake_tools(tmp_path, failing=failing)).up()
    assert "refused" in caught.value.message


def test_tools_that_are_missing_or_broken_rule_bridges_out(tmp_path: Path) -> None:
    tools = fake_tools(tmp_path)
    assert "docker-proxy" in network.usable({name: tools[name] for name in ("ip", "iptables")})
    assert "refused" in network.usable(fake_tools(tmp_path, failing="-S POSTROUTING"))


def test_a_repo_keeps_its_addresses(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first = pool_of(layout, "a", DEFAULT_POOL)
    assert network.kept_pool(layout, "a") == first
    assert pool_of(layout, "a", DEFAULT_POOL) == first
    assert network.kept_pool(layout, "b") is None


def test_a_new_pool_means_new_addresses(tmp_path: Path) -> None:
    layout, other = Layout(tmp_path), ipaddress.IPv4Network("172.16.0.0/12")
    pool_of(layout, "a", DEFAULT_POOL)
    assert pool_of(layout, "a", other).subnet_of(other)


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    pool_of(layout, "a", DEFAULT_POOL)
    (layout.repo("a").state / "network").write_text("nonsense")
    assert network.kept_pool(layout, "a") is None
    assert pool_of(layout, "a", DEFAULT_POOL) == network.kept_pool(layout, "a")


def test_repos_that_choose_at_once_never_get_the_same(tmp_path: Path) -> None:
    layout, small = Layout(tmp_path), ipaddress.IPv4Network("10.200.0.0/16")  # sixteen pieces
    found: list[ipaddress.IPv4Network] = []
    threads = [
        threading.Thread(target=lambda guid=str(number): found.append(pool_of(layout, guid, small)))
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 16
    with pytest.raises(RefusedError):
        pool_of(layout, "one too many", small)


def test_bridges_of_the_repos_own_networks_go_with_it(tmp_path: Path) -> None:
    listing = "9: br-1 inet 10.130.17.1/25 scope global br-1\n8: br-2 inet 10.131.0.1/25 scope global br-2\n"
    tools = fake_tools(tmp_path, listing=listing)
    own(tools).down()
    assert [each for each in calls(tmp_path) if "link del" in each] == ["ip link del dev br-1"]


def _namespaces() -> bool:
    return subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


IN_A_NAMESPACE = """\
import ipaddress, os, subprocess
from machine.core.subnets import DEFAULT_POOL
from machine.engine import find_tool
from machine.network import Network, usable

tools = {name: find_tool(name, None, os.environ) for name in ("ip", "iptables", "docker-proxy")}
assert all(tools.values()), tools
assert usable(tools) == "", usable(tools)
pool = ipaddress.IPv4Network("10.130.16.0/20")
own = Network(guid="6af613b6-569c-4c22", base=DEFAULT_POOL, pool=pool, tools=tools)


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def state():
    rules = [said(tools["iptables"], "-w", "-t", table, "-S") for table in ("filter", "nat")]
    return rules, said("ip", "-o", "link").count("rd-")


said(tools["iptables"], "-w", "-S"), said(tools["iptables"], "-w", "-t", "nat", "-S")
before = state()
own.up()
once = state()
assert once[1] and once[0][0].count("DROP") == 2 and "MASQUERADE" in once[0][1], once
own.up()
assert state() == once
own.down()
assert state() == before
own.down()
"""


@pytest.mark.dockerd
@pytest.mark.skipif(not _namespaces(), reason="no network namespaces")
def test_the_real_kernel_takes_bridge_and_rules_and_gives_them_back(tmp_path: Path) -> None:
    """In a network namespace of its own, so that the machine's is left alone."""
    script = tmp_path / "try.py"
    script.write_text(IN_A_NAMESPACE)
    done = subprocess.run(
        ["unshare", "-n", sys.executable, str(script)], capture_output=True, text=True, check=False,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
