"""Giving a repo another name; everything that it has is under its GUID and stays as it is."""

from base.clock import Clock
from base.layout import Layout
from gate.core.repo import RepoConfig
from gate.repos import RepoFiles
from machine.journal import Journal
from machine.repos import changing, check_free, find, new_name


def rename(layout: Layout, reference: str, name: str, clock: Clock) -> RepoConfig:
    """Rename a repo; returns it as it is now. Gate and daemons that run follow without stopping anything.

    Raises:
        UsageError: the name or the ref is malformed.
        NotFoundError: there is no such repo.
        RepoExistsError: the name is taken.
        MalformedError: the repo's file cannot be understood.
        AccessError: it cannot be written, or not be recorded in the audit log.
    """
    wanted = new_name(name)
    with changing(layout):
        config = find(layout, reference)
        files = RepoFiles(layout)
        check_free(files, wanted)
        with Journal(layout, clock).renaming(config, wanted):
            return files.rename(config, wanted)
