"""Linux capabilities: Docker's defaults, its spellings, and those that amount to hardware. Pure.

Source: moby's default list (14 names) and its `CAP_` and `ALL` spellings, in any case; capabilities(7).
"""

DEFAULT_CAPABILITIES = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
    "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
"""What a container has without asking."""

HARDWARE_CAPABILITIES = frozenset({
    "ALL", "BPF", "DAC_READ_SEARCH", "PERFMON", "SYS_ADMIN", "SYS_BOOT", "SYS_MODULE", "SYS_RAWIO",
})  # fmt: skip
"""What no policy can give: each reaches devices, the device program or the raw socket by itself."""


def canonical_capability(name: str) -> str:
    """`cap_net_admin`, `CAP_NET_ADMIN` and `NET_ADMIN` are one; only ASCII letters change case."""
    upper = name.translate(_ASCII_UPPER)
    return upper.removeprefix("CAP_")


_ASCII_UPPER = {lower: lower - 32 for lower in range(ord("a"), ord("z") + 1)}
