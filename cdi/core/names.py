"""CDI names: `vendor/class=device`, compared byte for byte. Pure.

Source: CDI SPEC.md "Kind" and "CDI Devices", and the rules that the Go library applies (its parser package):
they are ASCII only, know no length limit and trim nothing.
"""

import re
from dataclasses import dataclass

from base.errors import MalformedError

_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_ALPHANUMERIC = _LETTERS | frozenset("0123456789")
_VENDOR_OR_CLASS = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)
_HINT = "write it as vendor/class=device, for example nvidia.com/gpu=0"


@dataclass(frozen=True, slots=True, order=True)
class QualifiedName:
    """One device of one kind, as it is requested; holding one means that it is well formed."""

    vendor: str
    class_: str
    device: str

    @classmethod
    def parse(cls, text: str) -> "QualifiedName":
        """Read `vendor/class=device`: split at the first `=`, what stands before it at the first `/`.

        Raises:
            MalformedError: not fully qualified, a part breaks the rules, or vendor or class is one letter
            long,
                on which released CDI libraries crash.
        """
        kind, equals, device = text.partition("=")
        vendor, slash, class_ = kind.partition("/")
        if not (equals and slash and vendor and class_ and device):
            raise MalformedError(f"unqualified CDI device {text!r}", hint=_HINT)
        reason = vendor_or_class_fault(vendor) or vendor_or_class_fault(class_) or device_fault(device)
        if reason:
            raise MalformedError(f"CDI device {text!r}: {reason}", hint=_HINT)
        return cls(vendor, class_, device)

    @property
    def kind(self) -> str:
        """`vendor/class`."""
        return f"{self.vendor}/{self.class_}"

    def __str__(self) -> str:
        return f"{self.vendor}/{self.class_}={self.device}"


def vendor_or_class_fault(text: str) -> str | None:
    """Why `text` is no vendor or class, or None: a letter, then letters, digits, `_ - .`, no sign last."""
    if _VENDOR_OR_CLASS.fullmatch(text):
        return None
    if not text:
        return "empty name"
    if text[0] not in _LETTERS:
        return f"{text!r} should start with a letter"
    if len(text) == 1:
        return f"{text!r} is one letter long, which crashes CDI libraries up to 1.1.0"
    if text[-1] not in _ALPHANUMERIC:
        return f"{text!r} should end with a letter or digit"
    return f"{text!r} may hold letters, digits, '_', '-' and '.' only"


def crashes_library(vendor_or_class: str) -> bool:
    """Whether libraries up to 1.1.0 panic on this vendor or class: a single letter."""
    return len(vendor_or_class) == 1 and vendor_or_class in _LETTERS


def device_fault(text: str) -> str | None:
    """Why `text` is no device name, or None: letter or digit at both ends, between also `_ - . :`."""
    if _DEVICE.fullmatch(text):
        return None
    if not text:
        return "empty device name"
    if text[0] not in _ALPHANUMERIC:
        return f"{text!r} should start with a letter or digit"
    if text[-1] not in _ALPHANUMERIC:
        return f"{text!r} should end with a letter or digit"
    return f"{text!r} may hold letters, digits, '_', '-', '.' and ':' only"
