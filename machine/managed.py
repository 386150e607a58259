"""Which daemons are ours to run: from repo files to managed daemons."""

from collections.abc import Hashable, Mapping

from base.layout import Layout
from gate.core.repo import RepoConfig
from gate.repos import RepoFiles
from machine.config import load_machine_config
from machine.daemon import ManagedDaemon


def managed_daemon(layout: Layout, config: RepoConfig, environ: Mapping[str, str]) -> ManagedDaemon:
    """The repo's own daemon with the machine's settings of now."""
    return ManagedDaemon(
        layout=layout,
        guid=config.guid,
        name=config.name,
        settings=load_machine_config(layout).engine,
        environ=environ,
        runtimes=tuple(name for name in config.policy.runtimes if name != "runc"),
    )


class ManagedDaemons:
    """The daemons that `renet up` keeps, as the repo files say now.

    A file that can no longer be read keeps its daemon as it was: a typing error must not stop tenants.
    """

    def __init__(self, layout: Layout, environ: Mapping[str, str]) -> None:
        self._layout = layout
        self._environ = environ
        self._last: dict[str, ManagedDaemon] = {}

    def __call__(self) -> tuple[ManagedDaemon, ...]:
        """Read the files.

        Raises:
            RdcError: gate.yaml cannot be understood.
        """
        listing = RepoFiles(self._layout).list()
        now = {
            str(config.name): managed_daemon(self._layout, config, self._environ)
            for config in listing.repos
            if config.managed
        }
        for path in listing.problems:
            name = path.name.removesuffix(path.suffix)
            if name in self._last:
                now.setdefault(name, self._last[name])
        self._last = now
        return tuple(now.values())

    def fingerprint(self) -> Hashable:
        """Changes whenever the daemons may have."""
        try:
            configured = self._layout.gate_config.stat().st_mtime_ns
        except OSError:
            configured = None
        return configured, RepoFiles(self._layout).fingerprint()
