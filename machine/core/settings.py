"""How managed daemons run on this machine: the `engine` section of gate.yaml, typed. Pure."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from base.errors import MalformedError
from machine.core.subnets import DEFAULT_POOL, PIECE_PREFIX

_KEYS = frozenset({"dir", "network", "address_pool", "storage_driver"})


class NetworkMode(StrEnum):
    """Whether containers get a default network.

    `auto` is `bridge` where the machine can do it, else `none`. Networks that users make work in all modes;
    without a bridge they do not reach the outside.
    """

    AUTO = "auto"
    BRIDGE = "bridge"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """`dir` is where dockerd and its tools are (None: search); the repos share out `address_pool`."""

    dir: str | None = None
    network: NetworkMode = NetworkMode.AUTO
    address_pool: ipaddress.IPv4Network = DEFAULT_POOL
    storage_driver: str | None = None

    @classmethod
    def parse(cls, section: Mapping[str, object]) -> "EngineSettings":
        """Read the section; a key that is left out has its default.

        Raises:
            MalformedError: an unknown key, or a value that means nothing.
        """
        unknown = sorted(set(section) - _KEYS)
        if unknown:
            raise MalformedError(
                f"unknown key 'engine.{unknown[0]}' in gate.yaml",
                hint=f"known are {', '.join(sorted(_KEYS))}",
            )
        directory = _text(section, "dir")
        if directory is not None and not directory.startswith("/"):
            raise MalformedError(f"engine.dir '{directory}' in gate.yaml is not an absolute path")
        return cls(
            dir=directory,
            network=_network(_text(section, "network") or NetworkMode.AUTO),
            address_pool=_pool(_text(section, "address_pool") or str(DEFAULT_POOL)),
            storage_driver=_text(section, "storage_driver"),
        )


def _text(section: Mapping[str, object], key: str) -> str | None:
    value = section.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise MalformedError(f"engine.{key} in gate.yaml must be text, not {value!r}")
    return value


def _network(text: str) -> NetworkMode:
    try:
        return NetworkMode(text)
    except ValueError as exc:
        raise MalformedError(
            f"engine.network '{text}' in gate.yaml is not a mode", hint=f"one of {', '.join(NetworkMode)}"
        ) from exc


def _pool(text: str) -> ipaddress.IPv4Network:
    hint = f"write it like {DEFAULT_POOL}, a private network with a prefix of at most {PIECE_PREFIX}"
    try:
        pool = ipaddress.IPv4Network(text)
    except ValueError as exc:
        raise MalformedError(
            f"engine.address_pool '{text}' in gate.yaml is not a network: {exc}", hint=hint
        ) from exc
    if pool.prefixlen > PIECE_PREFIX or not pool.is_private:
        raise MalformedError(f"engine.address_pool '{text}' in gate.yaml cannot be used", hint=hint)
    return pool
