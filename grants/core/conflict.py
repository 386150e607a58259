"""When two names are the same hardware, as far as exclusivity goes. Pure.

Source: design section 6. The same own device node is the same hardware, and so is the same UUID or PCI
address under other nodes: after cards changed places a pin's nodes are those of another card, its UUID is
not. Slices of one card (MIG) both open the card's node and have its PCI address; what tells them apart are
their capability nodes below `/dev/nvidia-caps`. A slice and its whole card are the same hardware.
"""

import re
from dataclasses import replace

from cdi.core.pin import Pin, overlap

_CAPABILITIES = "/nvidia-caps/"
_CARD = re.compile(r"(?:.*/)?nvidia[0-9]+", re.ASCII)


def same_hardware(a: Pin, b: Pin) -> tuple[str, ...]:
    """What both open, for messages: device nodes first, else UUIDs, else PCI addresses. Empty when nothing.

    Symmetric in being empty or not.
    """
    if _is_slice(a) and _is_slice(b):
        return overlap(_without_card(a), _without_card(b)) or _common(a.uuids, b.uuids)
    return overlap(a, b) or _common(a.uuids, b.uuids) or _common(a.pci, b.pci)


def _is_slice(pin: Pin) -> bool:
    """Capability nodes and one card: several cards, as `all` opens them, are no slice."""
    cards = sum(1 for node in pin.nodes if _CARD.fullmatch(node.path))
    return cards == 1 and any(_CAPABILITIES in node.path for node in pin.nodes)


def _without_card(pin: Pin) -> Pin:
    return replace(pin, nodes=tuple(node for node in pin.nodes if not _CARD.fullmatch(node.path)))


def _common(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(a) & set(b)))
