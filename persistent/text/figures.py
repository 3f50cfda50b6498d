"""Times, sizes and rates as text for people.

An address is where a server of ours listens: a host and a port, as one text.

A shell word is a place as a command in a message names it, quoted so that the command can be copied and run.
"""

from __future__ import annotations

import ipaddress
import shlex
from dataclasses import dataclass
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


_NAMES = frozenset({"localhost"})
_PORT_MAX = 65_535


@dataclass(frozen=True)
class Endpoint:
    """``port``: 0 asks for a free one.

    >>> str(Endpoint("::1", 9464)), str(Endpoint("127.0.0.1", 0))
    ('[::1]:9464', '127.0.0.1:0')
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str) -> Endpoint:
    """The address in ``HOST:PORT``, ``[HOST]:PORT`` or ``PORT``, which means loopback. ValueError for another text.

    >>> address_of("127.0.0.1:9464"), address_of("[::1]:9464"), address_of("9464")
    (Endpoint(host='127.0.0.1', port=9464), Endpoint(host='::1', port=9464), Endpoint(host='127.0.0.1', port=9464))
    """
    host, colon, port = text.strip().rpartition(":")
    host = host if colon else "127.0.0.1"
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT: give for example 127.0.0.1:9464, [::1]:9464, or 9464")
    return Endpoint(host, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host in _NAMES or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shell_word(text: str) -> str:
    """``text`` as one word of a shell: bare if possible, otherwise in double quotes, since a message has the command
    itself in single quotes.

    >>> shell_word("s3://bucket/job"), shell_word("my job/checkpoint"), shell_word("a $5 job")
    ('s3://bucket/job', '"my job/checkpoint"', "'a $5 job'")
    """
    quoted = shlex.quote(text)
    return f'"{text}"' if quoted != text and not set(text) & set('"$`\\!') else quoted


DURATION_UNITS = (
    (1, ("ms", "millisecond", "milliseconds")),
    (1_000, ("s", "sec", "second", "seconds")),
    (60_000, ("min", "minute", "minutes")),
    (3_600_000, ("h", "hour", "hours")),
    (86_400_000, ("d", "day", "days")),
    (604_800_000, ("w", "week", "weeks")),
)


def duration_text(duration: int) -> str:
    """A duration (ms) as text that ``duration_ms`` can read.

    >>> duration_text(60_000), duration_text(1_500), duration_text(0)
    ('1 min', '1500 ms', '0 ms')
    """
    unit, names = next(
        (unit, names) for unit, names in reversed(DURATION_UNITS) if (duration % unit == 0 and duration) or unit == 1
    )
    return f"{duration // unit} {names[0]}"
