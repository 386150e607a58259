r"""Text that go-yaml scans and libyaml refuses, masked so that libyaml reads it the same way. Pure.

Two habits of go-yaml (version 2) are known to differ: between brackets it takes a `:` that no blank follows
for part of a plain scalar, also before `,` or a bracket, and in double quotes it knows the escape `\'`.
Where libyaml stops at one of them, that one character is replaced by a private one of which the text has
none, and restored in the scalars that come out. Found by comparing random specs with a real daemon.
"""

import codecs

import yaml

MAX_REPAIRS = 32
"""Most characters that are masked; each costs another pass over the text."""

MAX_REPAIRED_BYTES = 1024 * 1024
"""Larger texts are not passed over again."""

_PRIVATE = tuple(chr(code) for code in range(0xF8D0, 0xF8F0))
_COLON = "found unexpected ':'"
_ESCAPE = "found unknown escape character"


class GoText:
    """UTF-8 bytes for libyaml, and how to restore the scalars that it finds in them.

    Args:
        raw: the document in UTF-8, or in UTF-16 with a byte order mark.

    Raises:
        UnicodeError: it has UTF-16's mark and is none.
    """

    def __init__(self, raw: bytes) -> None:
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raw = raw.decode("utf-16").encode()
        self.raw = raw
        self.repairs = 0
        self._text: str | None = None
        self._colon = self._escape = ""

    def written(self, start: int, end: int) -> str:
        """The text between two of libyaml's positions, which count characters without a byte order mark."""
        return self._decoded()[start:end]

    def restore(self, value: str) -> str:
        """A scalar's content with masked characters put back."""
        if not self.repairs:
            return value
        return value.replace(self._colon, ":").replace(self._escape, "")

    def repair(self, error: yaml.MarkedYAMLError) -> bool:
        """Mask the character that libyaml stopped at, if go-yaml would not have; whether that was done."""
        mark = error.problem_mark
        if mark is None or error.problem not in {_COLON, _ESCAPE}:
            return False
        if self.repairs >= MAX_REPAIRS or len(self.raw) > MAX_REPAIRED_BYTES:
            return False
        here = self.written(mark.index, mark.index + 2)
        if not self.repairs:
            free = [char for char in _PRIVATE if char not in self._decoded()]
            if len(free) < 2:
                return False
            self._colon, self._escape = free[:2]
        if error.problem == _COLON and here.startswith(":"):
            self._mask(mark.index, self._colon)
        elif error.problem == _ESCAPE and here == "\\'":
            self._mask(mark.index, self._escape)
        else:
            return False
        return True

    def _mask(self, index: int, char: str) -> None:
        text = self._decoded()
        self._text = text[:index] + char + text[index + 1 :]
        mark = codecs.BOM_UTF8 if self.raw.startswith(codecs.BOM_UTF8) else b""
        self.raw = mark + self._text.encode("utf-8", "surrogateescape")
        self.repairs += 1

    def _decoded(self) -> str:
        if self._text is None:
            self._text = self.raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
        return self._text
