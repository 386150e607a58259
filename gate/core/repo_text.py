"""A repo's file as text: written anew with comments and order kept, or read where it is broken. Pure."""

import contextlib
import dataclasses
import re

import yaml

from base.errors import MalformedError
from gate.core.repo import RepoConfig, RepoName

_WIDE = 1 << 16
_LINE = re.compile(
    r"""^(?P<key>name|guid|upstream):[ \t]*(?:"[^"\n]*"|'[^'\n]*'|[^\s#"']+)(?=[ \t]*(?:#[^\n]*)?$)""",
    re.MULTILINE,
)
_GUID = re.compile(
    r"""^[^#\n]*?(?<![\w-])["']?guid["']?[ \t]*:[ \t]*["']?([0-9A-Za-z][0-9A-Za-z_-]{0,63})(?![\w.-])""",
    re.MULTILINE,
)
_RENAMING = re.compile(r"^renaming_to:[^\n]*\n?", re.MULTILINE)


def edited(raw: bytes, repo: RepoConfig, *, renaming_to: RepoName | None = None) -> bytes:
    """A file that says `repo`, made from one that differs in `name`, `guid` and `upstream` at most.

    Where these three do not stand as plain lines the file is written anew, and comments are lost.

    Args:
        raw: the file to start from.
        repo: what the new one shall say.
        renaming_to: the second name of a file that is about to be renamed.
    """
    for start in (raw, repo.to_yaml()):
        text = _replaced(start, repo, renaming_to)
        if text is not None and _says(text, repo, renaming_to):
            return text
    message = f"repo {repo.name} cannot be written as YAML"
    raise MalformedError(message)


def claimed_guid(raw: bytes) -> str | None:
    """The GUID that a repo's file says, even when it cannot be understood; None when it says none, or two."""
    with contextlib.suppress(MalformedError):
        return RepoConfig.parse(raw).guid
    found = set(_GUID.findall(raw.decode(errors="replace")))
    return found.pop() if len(found) == 1 else None


def _replaced(raw: bytes, repo: RepoConfig, renaming_to: RepoName | None) -> bytes | None:
    try:
        text = _RENAMING.sub("", raw.decode())
    except UnicodeDecodeError:
        return None
    renaming = "" if renaming_to is None else _line("renaming_to", renaming_to) + "\n"
    lines = {
        "name": renaming + _line("name", repo.name),
        "guid": _line("guid", repo.guid),
        "upstream": _line("upstream", repo.upstream if repo.managed else f"unix://{repo.upstream}"),
    }
    return _LINE.sub(lambda found: lines[found["key"]], text).encode()


def _line(key: str, value: str) -> str:
    return yaml.safe_dump({key: value}, width=_WIDE).strip()


def _says(raw: bytes, repo: RepoConfig, renaming_to: RepoName | None) -> bool:
    """Whether the file says what it shall, under each name that it may lie under."""
    names = (repo.name,) if renaming_to is None else (repo.name, renaming_to)
    try:
        return all(
            RepoConfig.parse(raw, file_name=name) == dataclasses.replace(repo, name=name) for name in names
        )
    except MalformedError:
        return False
