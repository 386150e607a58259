"""Which daemons are ours to run: from repo files to managed daemons."""

import os
from collections.abc import Hashable, Iterable, Mapping

from base.layout import Layout
from base.mountinfo import covers
from gate.core.repo import RepoConfig
from gate.repos import RepoFiles
from machine.config import load_machine_config
from machine.daemon import ManagedDaemon


def managed_daemon(
    layout: Layout, config: RepoConfig, environ: Mapping[str, str], others: Iterable[RepoConfig] = ()
) -> ManagedDaemon:
    """The repo's own daemon with the machine's settings of now; `others` are the machine's other repos."""
    roots = config.policy.bind_roots
    # Whoever may write above a bind root may exchange it for a link.
    above = {
        theirs
        for other in others
        for theirs in other.policy.bind_roots
        if any(covers(os.path.realpath(theirs), os.path.realpath(root)) for root in roots)
    }
    return ManagedDaemon(
        layout=layout,
        guid=config.guid,
        name=config.name,
        settings=load_machine_config(layout).engine,
        environ=environ,
        runtimes=tuple(name for name in config.policy.runtimes if name != "runc"),
        bind_roots=tuple(sorted({*roots, *above})),
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
            str(config.name): managed_daemon(self._layout, config, self._environ, listing.repos)
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
