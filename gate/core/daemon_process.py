"""What a daemon's command line and configuration file say that its API does not. Pure.

Source: dockerd's command line and configuration file references; facts page on gates, section 0 item 5 and
section 6 (engine 29 gives its builder `device` unless told not to).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

DEVICE_HOOKS = ("nvidia-container-runtime-hook", "amd-container-runtime")
"""Programs that make a daemon which finds them in its PATH offer GPUs to `--gpus`."""

DEFAULT_CONFIG_FILE = "/etc/docker/daemon.json"

ENTITLEMENTS = ("network-host", "security-insecure", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonProcess:
    """A dockerd of this machine.

    `hosts` are the listeners of command line and configuration; `hooks` what it finds of `DEVICE_HOOKS`;
    `entitlements` what the configuration says of `ENTITLEMENTS`, None when it could not be read.
    """

    hosts: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    entitlements: Mapping[str, bool] | None = None

    @classmethod
    def of(cls, words: Sequence[str], config: bytes | None, hooks: Sequence[str]) -> "DaemonProcess":
        """From its command line and configuration file (None: unreadable; empty: there is none). Total."""
        document = _document(config)
        hosts = document.get("hosts") if document is not None else None
        listed = [each for each in hosts if isinstance(each, str)] if isinstance(hosts, list) else []
        return cls(
            hosts=(*option_values(words, "--host", "-H"), *listed),
            hooks=tuple(hooks),
            entitlements=None if document is None else _entitlements(document),
        )

    @property
    def network_hosts(self) -> tuple[str, ...]:
        """The listeners that are no unix socket and were not handed over by systemd."""
        return tuple(host for host in self.hosts if not host.startswith(("unix://", "fd://", "/")))


def config_file(words: Sequence[str]) -> str:
    """Where its configuration lies."""
    named = tuple(option_values(words, "--config-file"))
    return named[-1] if named else DEFAULT_CONFIG_FILE


def option_values(words: Sequence[str], long: str, short: str = "") -> Iterator[str]:
    """The values of an option in every spelling of Go's pflag: `--host V`, `--host=V`, `-H V`, `-HV`."""
    for index, word in enumerate(words):
        if word == long or (short and word == short):
            yield from words[index + 1 : index + 2]
        elif word.startswith(f"{long}="):
            yield word[len(long) + 1 :]
        elif short and word.startswith(short) and not word.startswith("--"):
            yield word[len(short) :].removeprefix("=")


def _document(config: bytes | None) -> Mapping[str, object] | None:
    if config is None:
        return None
    if not config.strip():
        return {}
    try:
        value: object = json.loads(config)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _entitlements(document: Mapping[str, object]) -> Mapping[str, bool]:
    builder = document.get("builder")
    given = builder.get("entitlements") if isinstance(builder, Mapping) else None
    if not isinstance(given, Mapping):
        return {}
    return {name: given[name] is True for name in ENTITLEMENTS if isinstance(given.get(name), bool)}
