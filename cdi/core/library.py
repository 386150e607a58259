"""Which release of the CDI library a Docker engine vendors, and which `cdiVersion` each feature needs. Pure.

Source: measured with the library's releases 0.6.2 to 1.1.0 and the Docker releases that contain them.
"""

import re
from enum import StrEnum


class Library(StrEnum):
    """The releases of the Go library whose rules are known, oldest first."""

    V0_6_2 = "0.6.2"
    V0_7_2 = "0.7.2"
    V0_8_0 = "0.8.0"
    V1_0_1 = "1.0.1"
    V1_1_0 = "1.1.0"

    def at_least(self, other: "Library") -> bool:
        """Whether this release is `other` or a later one."""
        return _ORDER[self] >= _ORDER[other]

    @property
    def spec_versions(self) -> tuple[str, ...]:
        """The `cdiVersion`s that this release knows, oldest first, without the optional `v`."""
        return SPEC_VERSIONS[: SPEC_VERSIONS.index(_NEWEST_SPEC_VERSION[self]) + 1]

    @property
    def engine(self) -> str:
        """The first Docker release that loads specs by these rules, for messages."""
        return _FIRST_ENGINE[self]


SPEC_VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
LOWEST_SPEC_VERSION = "0.3.0"
"""The least that the library ever requires: files that declare 0.1.0 or 0.2.0 are known, and refused."""

_ORDER = {library: index for index, library in enumerate(Library)}
_NEWEST_SPEC_VERSION = {
    Library.V0_6_2: "0.6.0",
    Library.V0_7_2: "0.7.0",
    Library.V0_8_0: "0.8.0",
    Library.V1_0_1: "1.0.0",
    Library.V1_1_0: "1.1.0",
}
_FIRST_ENGINE = {
    Library.V0_6_2: "Docker 25.0",
    Library.V0_7_2: "Docker 26.1",
    Library.V0_8_0: "Docker 27.5",
    Library.V1_0_1: "Docker 28.2",
    Library.V1_1_0: "Docker 29.7",
}
_ENGINES: tuple[tuple[tuple[int, int, int], Library], ...] = (
    ((25, 0, 0), Library.V0_6_2),
    ((25, 0, 17), Library.V0_8_0),
    ((26, 0, 0), Library.V0_7_2),
    ((27, 5, 0), Library.V0_8_0),
    ((28, 2, 0), Library.V1_0_1),
    ((29, 7, 0), Library.V1_1_0),
)
"""Lowest engine release of each stretch; those that vendor 0.8.1 are judged by 0.8.0's rules."""

_ENGINE_VERSION = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?(?![0-9])", re.ASCII)


def library_of_engine(engine_version: str) -> Library:
    """The library that a Docker engine of this version vendors (`28.5.2`, `28.5.2+dfsg3`).

    A release newer than all known ones gets the newest rules. An engine older than 25, which cannot do CDI,
    gets the oldest rules, and text that is no version gets 1.0.1's, those of the engine that the project
    brings along.
    """
    match = _ENGINE_VERSION.match(engine_version.strip())
    if match is None:
        return Library.V1_0_1
    version = (int(match[1]), int(match[2] or 0), int(match[3] or 0))
    found = Library.V0_6_2
    for lowest, library in _ENGINES:
        if version >= lowest:
            found = library
    return found
