"""Times, sizes and rates as text for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
_YEAR_MS = 31_556_952_000
_SIZES = ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def utc_text(time_ms: int) -> str:
    """A time (ms since the epoch) in UTC; before 1970 and after 9999, the number.

    >>> utc_text(1_700_000_000_000), utc_text(1_700_000_000_042), utc_text(-1)
    ('2023-11-14 22:13:20Z', '2023-11-14 22:13:20.042Z', '-1 ms')
    """
    if not 0 <= time_ms <= _LAST_MS:
        return f"{time_ms} ms"
    text = (_EPOCH + timedelta(milliseconds=time_ms)).replace(tzinfo=None).isoformat(" ", "milliseconds")
    return text.removesuffix(".000") + "Z"


def date_text(time_ms: int) -> str:
    """A time (ms since the epoch), however far away.

    >>> date_text(1_700_000_000_000), date_text(1_700_000_000_000_000), date_text(2**62)
    ('2023-11-14 22:13:20Z', 'the year 55840', 'the year 146140482')
    """
    return utc_text(time_ms) if time_ms <= _LAST_MS else f"the year {1970 + time_ms // _YEAR_MS}"


def clock_text(clock_ms: int) -> str:
    """A clock in UTC; 0 means that it has not begun.

    >>> clock_text(1_700_000_000_000), clock_text(0)
    ('2023-11-14 22:13:20Z', 'not begun')
    """
    return utc_text(clock_ms) if clock_ms else "not begun"


def count_text(count: int, singular: str) -> str:
    """A number of things, given their singular.

    >>> count_text(1, "dead letter"), count_text(2_000, "row")
    ('1 dead letter', '2,000 rows')
    """
    return f"{count:,} {singular}{'s' * (count != 1)}"


def bytes_text(size: int) -> str:
    """A size in bytes.

    >>> bytes_text(900), bytes_text(123_456), bytes_text(5 << 30)
    ('900 B', '120.6 kB', '5.0 GB')
    """
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def span_text(span_ms: int) -> str:
    """A length of time.

    >>> span_text(300), span_text(90_000), span_text(90_000_000), span_text(2_275_058_880_000)
    ('0.3 s', '1.5 min', '1.0 d', '72.1 years')
    """
    if span_ms >= 2 * _YEAR_MS:
        return f"{span_ms / _YEAR_MS:,.1f} years"
    seconds = span_ms / 1000
    for unit, name in _SPANS:
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"
