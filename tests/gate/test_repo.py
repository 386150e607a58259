"""A repo's configuration: strict by default, and nothing in it opens a device."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import MalformedError
from gate.core.capability import HARDWARE_CAPABILITIES
from gate.core.repo import (
    MANAGED,
    GateConfig,
    Namespace,
    RepoConfig,
    RepoName,
    RepoPolicy,
    Trust,
    parse_repo_name,
)

MINIMAL = "schema_version: 1\nname: gpu-a\nguid: 0b6bd3ab-9e39-4bd4-9a83-6e8bb2ba4f5e\n"


def parse(text: str) -> RepoConfig:
    return RepoConfig.parse(text.encode())


def test_the_default_is_the_strict_set() -> None:
    repo = parse(MINIMAL)
    assert (repo.name, repo.upstream, repo.managed, repo.trust) == ("gpu-a", MANAGED, True, Trust.OWNER)
    assert repo.policy == RepoPolicy()
    assert repo.policy == RepoPolicy(
        bind_roots=(), runtimes=(), capabilities=(), network_host=False, namespaces=(), security_options=(),
        annotations=(), cgroup_parent=None, sysctls=(), log_drivers=(),
    )  # fmt: skip


def test_everything() -> None:
    repo = parse(
        MINIMAL + "upstream: unix:///srv/x//docker.sock\ntrust: stranger\nsocket_group: dev\n"
        "policy:\n  bind_roots: [/srv/data/, /home/x/../y]\n  runtimes: [runsc]\n"
        "  capabilities: [cap_net_admin]\n"
        "  network_host: true\n  namespaces: [ipc-host]\n  security_options: [apparmor=unconfined]\n"
        "  annotations: [mine]\n  cgroup_parent: /repo.slice\n  sysctls: [net.ipv4.ip_forward]\n"
        "  log_drivers: [syslog]\n"
    )
    assert (repo.upstream, repo.managed) == ("/srv/x/docker.sock", False)
    assert (repo.trust, repo.socket_group) == (Trust.STRANGER, "dev")
    assert repo.policy.bind_roots == ("/srv/data", "/home/y")
    assert repo.policy.capabilities == ("NET_ADMIN",)
    assert repo.policy.namespaces == (Namespace.IPC_HOST,)
    assert RepoConfig.parse(repo.to_yaml()) == repo


@pytest.mark.parametrize(
    "text",
    [
        "schema_version: 1\nname: a\n",
        "name: a\nguid: b\n",
        MINIMAL.replace("1", "2", 1),
        MINIMAL + "extra: 1\n",
        *(MINIMAL.replace("gpu-a", name) for name in ("a@b", "a:b", "../x", "''")),
        MINIMAL.replace("0b6bd3ab", "../0b6bd3ab"),
        MINIMAL + "upstream: tcp://x:2375\n",
        MINIMAL + "upstream: /run/docker.sock\n",
        MINIMAL + "trust: friend\n",
        MINIMAL + "socket_group: ../x\n",
        *(
            MINIMAL + f"policy: {{{entry}}}\n"
            for entry in (
                "devices: [x]",
                "device_cgroup_rules: [x]",
                "privileged: true",
                "network_host: 1",
                "bind_roots: /srv",
                "namespaces: [pid-host]",
            )
        ),
    ],
)
def test_refused_shapes(text: str) -> None:
    with pytest.raises(MalformedError):
        parse(text)


@pytest.mark.parametrize(
    "policy",
    [
        *(f"capabilities: [{name}]" for name in sorted(HARDWARE_CAPABILITIES)),
        "capabilities: [cap_sys_admin]",
        *(
            f"bind_roots: [{root}]"
            for root in ("/", "/dev", "/dev/shm", "/proc", "/sys", "/run", "/var", "/etc", "rel")
        ),
        "bind_roots: [/srv/../dev]",
        "bind_roots: [/var/lib/docker/volumes]",
        *(
            f"runtimes: [{name}]"
            for name in ("nvidia", "nvidia-cdi", "NVIDIA", "kata", "/usr/bin/runc", "a b")
        ),
        *(f"annotations: [{key}]" for key in ("cdi.k8s.io/x", "run.oci.handler", "dev.gvisor.spec")),
        "sysctls: ['*']",
        "sysctls: [vm.overcommit_memory]",
    ],
)
def test_no_policy_opens_hardware(policy: str) -> None:
    with pytest.raises(MalformedError):
        parse(MINIMAL + f"policy:\n  {policy}\n")


def test_every_fault_of_a_policy_is_told_at_once() -> None:
    with pytest.raises(MalformedError) as caught:
        parse(MINIMAL + "policy: {capabilities: [SYS_ADMIN], bind_roots: [/srv, /dev], runtimes: [nvidia]}\n")
    assert all(word in caught.value.message for word in ("SYS_ADMIN", "bind_roots[1]", "nvidia"))


@pytest.mark.parametrize("text", ["", "-a", "a/b", "a@b", "a:b", "a b", "a" * 64, ".a", "a\n", "\u00e4"])
def test_names(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_repo_name(text)


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
words = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), max_size=3, unique=True)


@given(
    st.builds(
        RepoConfig,
        name=names.map(RepoName),
        guid=st.uuids().map(str),
        upstream=st.just(MANAGED) | words.map(lambda parts: "/" + "/".join(["s", *parts])),
        trust=st.sampled_from(Trust),
        socket_group=st.none() | st.sampled_from(["docker", "100", "a_b"]),
        policy=st.builds(
            RepoPolicy,
            bind_roots=words.map(lambda parts: tuple(f"/srv/{part}" for part in parts)),
            capabilities=st.sampled_from([(), ("NET_ADMIN",), ("MKNOD", "SYS_PTRACE")]),
            network_host=st.booleans(),
            namespaces=st.lists(st.sampled_from(Namespace), unique=True).map(tuple),
            security_options=words.map(lambda parts: tuple(f"seccomp={part}: #" for part in parts)),
            annotations=words.map(lambda parts: tuple(f"org.{part}" for part in parts)),
            cgroup_parent=st.none() | st.just("/repo"),
        ),
    )
)
def test_a_repos_file_reads_back(repo: RepoConfig) -> None:
    assert RepoConfig.parse(repo.to_yaml()) == repo


def test_gate_config() -> None:
    assert GateConfig.parse(b"schema_version: 1\n") == GateConfig()
    raw = b"schema_version: 1\nprotected_paths: [/srv/x/]\nlimits: {connections: 5, head_s: 2.5, body_s: 3}\n"
    found = GateConfig.parse(raw)
    assert (found.protected_paths, found.connections, found.head_s, found.body_s) == (("/srv/x",), 5, 2.5, 3)
    with pytest.raises(MalformedError):
        GateConfig.parse(b"schema_version: 1\nlimits: {inspected_body_bytes: 2000000}\n")
