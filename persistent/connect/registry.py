"""A client of a schema registry over HTTP: it retries until a timeout, then reports the cause.

At the start of a run it waits ``connect_timeout``; once the registry has answered, ``server_away``. An unknown id may
just have been registered with another of its servers, so it is requested again for some seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from persistent.connect.secrets import without
from persistent.errors import InvalidPipeline, SourceError, StorageError
from persistent.storage.failures import FaultKind, Patience, Retrying, StoreFailure, without_secrets
from persistent.time.clock import monotonic_s

_DIGEST_CHARACTERS: Final = 16
_TRIES_MAX: Final = 1_000_000
_CALL_SECONDS: Final = 10.0
_SURE_SECONDS: Final = 3.0
"""How long, in total per process, a registry is asked again for ids that it does not know."""
_SETTINGS: Final = (
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)
_UNKNOWN: Final = (40401, 40402, 40403)
"""The registry's codes for an unknown subject, version and id."""
_AGAIN: Final = (408, 425, 429)
_TRUST: Final = "Give the certificates that sign the registry's: client={'ssl.ca.location': 'ca.pem'}"
_CHECK: Final = "Then run again: the last checkpoint is good"


@dataclass(frozen=True)
class Registered:
    """A schema as the registry has it, and the schemas that it refers to, in order of dependency. ``kind``: "AVRO", or
    another; ``number``: its id, if the registry has reported it."""

    text: str
    references: tuple[str, ...] = ()
    kind: str = "AVRO"
    number: int | None = field(default=None, compare=False)

    def digest(self) -> str:
        """A digest of its meaning, independent of the formatting of its JSON."""
        texts = [_spelled(text) for text in (self.text, *self.references)]
        return sha256(json.dumps([self.kind, *texts]).encode()).hexdigest()[:_DIGEST_CHARACTERS]


@dataclass(frozen=True)
class RegistryAccess:
    """How to reach a registry. ``servers``: URLs of one registry; ``settings``: named as in Confluent's clients,
    including secrets, which never appear in a text."""

    servers: tuple[str, ...]
    settings: Mapping[str, str] = field(repr=False)

    def scrubbed(self, text: str) -> str:
        """The text without secrets."""
        user_info = self.settings.get("basic.auth.user.info", "")
        hidden = {self.settings.get(name, "") for name in ("bearer.auth.token", "ssl.key.password")}
        return without_secrets(without(hidden | {user_info, user_info.partition(":")[2]}, text, "..."))


def registry_access(registry: Any, client: Any) -> RegistryAccess:
    """The options ``registry=`` (URLs separated by commas) and ``client=``, checked. InvalidPipeline, without
    secrets."""
    urls = [url.strip().rstrip("/") for url in registry.split(",")] if isinstance(registry, str) else []
    if not urls or not all(url.startswith(("http://", "https://")) and urlsplit(url).hostname for url in urls):
        text = without_secrets(repr(registry))
        raise InvalidPipeline(f"registry={text}: give the URL of a schema registry, such as 'http://localhost:8081'")
    if not isinstance(client, Mapping) or not all(isinstance(value, str) for value in client.values()):
        raise InvalidPipeline(f"client= of a registry is a mapping to texts. It can have {', '.join(_SETTINGS)}")
    unknown = [str(name) for name in client if name not in _SETTINGS]
    if unknown:
        raise InvalidPipeline(f"client= of a registry has no {unknown[0]!r}. It can have {', '.join(_SETTINGS)}")
    settings, plain = dict(client), []
    for url in urls:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            info, _, host = parts.netloc.rpartition("@")
            settings.setdefault("basic.auth.user.info", unquote(info))
            url = parts._replace(netloc=host).geturl()
        plain.append(url)
    return RegistryAccess(tuple(plain), settings)


class Registry:
    """Asks one registry. Pickled, it is only its settings."""

    def __init__(self, access: RegistryAccess, connect_timeout_ms: int, server_away_ms: int) -> None:
        self._access = access
        self._connect_timeout_ms = connect_timeout_ms
        self._server_away_ms = server_away_ms
        self._has_answered = False
        self._doubt_seconds = _SURE_SECONDS
        self._asked = 0
        self._pool: Any = None

    def __repr__(self) -> str:
        return f"registry {','.join(self._access.servers)}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_has_answered": False}

    def schema(self, number: int, *, under_way: bool = False) -> Registered | None:
        """The schema with this id, None if there is none. SourceError."""
        return self._registered(f"schema {number}", f"/schemas/ids/{number}", under_way)

    def newest(self, subject: str) -> Registered | None:
        """The newest schema of a subject, None if there is none. SourceError."""
        return self._registered(f"subject {subject}", f"/subjects/{quote(subject, safe='')}/versions/latest")

    def _registered(self, what: str, path: str, under_way: bool = False) -> Registered | None:
        body = self._surely(what, path, under_way)
        if body is None:
            return None
        try:
            references: dict[str, str] = {}
            self._refer(body, references)
            number = body["id"] if isinstance(body.get("id"), int) else None
            kind = str(body.get("schemaType") or "AVRO")
            return Registered(str(body["schema"]), tuple(references.values()), kind, number)
        except (KeyError, TypeError):
            raise SourceError(f"{self!r}: its answer for {what} is not a schema. Correct registry=") from None

    def _refer(self, body: Mapping[str, Any], references: dict[str, str]) -> None:
        """Collect the schemas that a schema refers to, by subject and version."""
        for reference in body.get("references") or ():
            subject, version = str(reference["subject"]), int(reference["version"])
            name = f"{subject}/{version}"
            if name in references:
                continue
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            inner = self._answer(f"version {version} of subject {subject}", path, under_way=True)
            if inner is None:
                raise SourceError(f"{self!r} has no version {version} of subject {subject}, which a schema refers to")
            self._refer(inner, references)
            references[name] = str(inner["schema"])

    def _surely(self, what: str, path: str, under_way: bool) -> Mapping[str, Any] | None:
        """The answer. None only after the registry has repeated for some time that it has no such object."""
        patience, began = Patience(), monotonic_s()
        answer = self._answer(what, path, under_way=under_way)
        while answer is None and monotonic_s() - began < self._doubt_seconds:
            patience.pause()
            answer = self._answer(what, path, under_way=under_way)
        if answer is None:
            self._doubt_seconds -= monotonic_s() - began
        return answer

    def _answer(self, what: str, path: str, *, under_way: bool) -> Mapping[str, Any] | None:
        """The answer of the registry; None if it has no such object. SourceError."""
        is_known = self._has_answered or under_way
        seconds = (self._server_away_ms if is_known else self._connect_timeout_ms) / 1_000
        patience = Patience(_TRIES_MAX, seconds)
        try:
            return Retrying(f"read {what} of", repr(self), patience, explain=self._failure_of)(lambda: self._get(path))
        except StorageError as error:
            text = str(error)
        # Raised outside the except clause: the client's error contains the headers.
        raise SourceError(text)

    def _get(self, path: str) -> Mapping[str, Any] | None:
        servers = self._access.servers
        url = servers[self._asked % len(servers)]
        try:
            response = self._client().request("GET", url + path, retries=False)
        except Exception:
            self._asked += 1
            raise
        if response.status == 200:
            body = response.json()
            if not isinstance(body, dict):
                raise ValueError("the answer is not a JSON object")
            self._has_answered = True
            return body
        code, message = _said(response.data)
        if code in _UNKNOWN:
            self._has_answered = True
            return None
        self._asked += 1
        raise _RefusedRequest(response.status, message)

    def _client(self) -> Any:
        if self._pool is None:
            urllib3 = _library()
            settings = self._access.settings
            headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
            if "basic.auth.user.info" in settings:
                headers |= urllib3.make_headers(basic_auth=settings["basic.auth.user.info"])
            elif "bearer.auth.token" in settings:
                headers["Authorization"] = f"Bearer {settings['bearer.auth.token']}"
            self._pool = urllib3.PoolManager(
                headers=headers,
                timeout=urllib3.Timeout(connect=_CALL_SECONDS, read=_CALL_SECONDS),
                ca_certs=settings.get("ssl.ca.location"),
                cert_file=settings.get("ssl.certificate.location"),
                key_file=settings.get("ssl.key.location"),
                key_password=settings.get("ssl.key.password"),
            )
        return self._pool

    def _failure_of(self, error: BaseException) -> StoreFailure:
        """The meaning of an error."""
        text = self._access.scrubbed(str(error).strip().partition("\n")[0])
        urllib3 = _library()
        if isinstance(error, _RefusedRequest):
            return _refusal(error.status, text)
        if isinstance(error, urllib3.exceptions.SSLError):
            is_untrusted = "CERTIFICATE_VERIFY_FAILED" in text
            remedy = _TRUST if is_untrusted else "Check registry= (is it https?) and the ssl settings in client="
            return StoreFailure(FaultKind.PERMANENT, text, f"{remedy}. {_CHECK}")
        if isinstance(error, ValueError | urllib3.exceptions.LocationParseError):
            return StoreFailure(
                FaultKind.PERMANENT, f"no registry answers there ({text})", f"Correct registry=. {_CHECK}"
            )
        is_plain = any(url.startswith("http:") for url in self._access.servers)
        tls = ", or https:// if it demands TLS" if is_plain else ""
        return StoreFailure(FaultKind.UNANSWERED, text, f"Start the registry, or correct registry={tls}. {_CHECK}")


class _RefusedRequest(Exception):
    """The registry answered with an unexpected status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"it answers with status {status}{f': {message}' if message else ''}")
        self.status = status


def _refusal(status: int, text: str) -> StoreFailure:
    if status in (401, 403):
        remedy = "Give valid credentials: client={'basic.auth.user.info': 'user:password'}"
        return StoreFailure(FaultKind.PERMANENT, text, f"{remedy}. {_CHECK}")
    if status < 500 and status not in _AGAIN:
        return StoreFailure(FaultKind.PERMANENT, text, f"Correct registry=: is a schema registry there? {_CHECK}")
    return StoreFailure(FaultKind.UNANSWERED, text, f"Check the registry. {_CHECK}")


def _spelled(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def _said(data: bytes) -> tuple[int, str]:
    """The code and the message of an error of the registry."""
    try:
        body = json.loads(data)
        return int(body["error_code"]), str(body.get("message", ""))[:200]
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0, ""


def _library() -> Any:
    try:
        import urllib3
    except ImportError as error:
        raise InvalidPipeline("a schema registry needs a client: pip install 'persistent-monoids[avro]'") from error
    return urllib3
