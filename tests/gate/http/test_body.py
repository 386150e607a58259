"""Bodies: where they end, what is payload, and that no way of cutting the bytes matters."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.http.body import (
    EMPTY,
    MAX_CHUNK_LINE_BYTES,
    MAX_TRAILER_BYTES,
    BodyReader,
    ChunkedReader,
    EmptyReader,
    LengthReader,
    reader_for,
)
from gate.http.encode import LAST_CHUNK, encode_chunk
from gate.http.message import HttpCode, HttpError


def read(reader: BodyReader, pieces: list[bytes]) -> tuple[str, bytes, bytes]:
    """Verdict, payload, and what was left over."""
    payload = b""
    for index, piece in enumerate(pieces):
        try:
            parts, used = reader.feed(memoryview(piece))
        except HttpError as error:
            return ("refused" if error.rule is HttpCode.CHUNK else error.rule), b"", b""
        payload += b"".join(bytes(part) for part in parts)
        if reader.done:
            return "done", payload, piece[used:] + b"".join(pieces[index + 1 :])
        assert used == len(piece)
    return "waiting", payload, b""


@pytest.mark.parametrize(
    ("raw", "payload", "rest"),
    [
        (b"0\r\n\r\n", b"", b""),
        (b"5\r\nhello\r\n0\r\n\r\nGET", b"hello", b"GET"),
        (b"a;x=y;z\r\n0123456789\r\n00\r\n\r\n", b"0123456789", b""),
        (b"5 ; x\r\nhello\r\n0\r\nTrailer: x\r\nB: c\r\n\r\n", b"hello", b""),
        (b"000000000000000A\r\n0123456789\r\n0;e\r\n\r\n\r\n", b"0123456789", b"\r\n"),
    ],
)
def test_chunked(raw: bytes, payload: bytes, rest: bytes) -> None:
    assert read(ChunkedReader(), [raw]) == ("done", payload, rest)


@pytest.mark.parametrize(
    "raw",
    [
        b"5\nhello\n0\n\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\rX",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"\r\n",
        b";x\r\n",
        b"00000000000000005\r\nhello\r\n0\r\n\r\n",
        b"8000000000000000\r\n",
        b"ffffffffffffffff\r\n",
        b"5;a\rb\r\nhello\r\n",
        b"5;a\x00\r\nhello\r\n",
        b"5;" + b"a" * MAX_CHUNK_LINE_BYTES + b"\r\nhello\r\n",
        b"5;" + b"a" * MAX_CHUNK_LINE_BYTES * 2,
        b"0\r\nA : b\r\n\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\n" + b"A: bbbbbbbbbbbbb\r\n" * (MAX_TRAILER_BYTES // 17 + 1),
    ],
)
def test_chunked_refused(raw: bytes) -> None:
    assert read(ChunkedReader(), [raw])[0] == "refused"
    assert read(ChunkedReader(), [raw[i : i + 1] for i in range(len(raw))])[0] == "refused"


chunked_like = st.one_of(
    st.lists(
        st.sampled_from(
            [
                b"5\r\nhello\r\n",
                b"1\r\nx\r\n",
                b"0\r\n",
                b"\r\n",
                b"\n",
                b"A: b\r\n",
                b"2;q=1\r\nab\r\n",
                b"z",
                b"\r",
            ]
        ),
        max_size=8,
    ).map(b"".join),
    st.binary(max_size=60),
)


@given(chunked_like, st.lists(st.integers(0, 80), max_size=6))
def test_cutting_a_chunked_body_changes_nothing(raw: bytes, cuts: list[int]) -> None:
    points = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    pieces = [raw[start:end] for start, end in pairwise(points)]
    whole = read(ChunkedReader(), [raw])
    cut = read(ChunkedReader(), pieces)
    single = read(ChunkedReader(), [raw[i : i + 1] for i in range(len(raw))])
    assert whole == cut == single


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.binary(max_size=10))
def test_decode_is_the_inverse_of_encode(chunks: list[bytes], rest: bytes) -> None:
    raw = b"".join(b"".join(encode_chunk(chunk)) for chunk in chunks) + LAST_CHUNK
    assert read(ChunkedReader(), [raw + rest]) == ("done", b"".join(chunks), rest)


@given(st.integers(0, 50), st.binary(max_size=80), st.integers(1, 20))
def test_length(length: int, raw: bytes, size: int) -> None:
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    reader = LengthReader(length)
    if length == 0:
        assert reader.done
    elif len(raw) >= length:
        assert read(reader, pieces) == ("done", raw[:length], raw[length:])
    else:
        assert read(reader, pieces) == ("waiting", raw, b"")


def test_reader_for() -> None:
    assert isinstance(reader_for(None, chunked=True), ChunkedReader)
    assert isinstance(reader_for(3, chunked=False), LengthReader)
    assert isinstance(reader_for(0, chunked=False), EmptyReader)
    assert isinstance(reader_for(None, chunked=False), EmptyReader)
    assert EMPTY.feed(b"x") == ([], 0)


def test_a_huge_chunk_needs_no_memory() -> None:
    reader = ChunkedReader()
    assert reader.feed(b"7fffffffffffffff\r\n") == ([], 18)
    data = bytes(1 << 16)
    for _ in range(4):
        parts, used = reader.feed(memoryview(data))
        assert (sum(map(len, parts)), used) == (len(data), len(data))
    assert not reader.done
