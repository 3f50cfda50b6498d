"""Certificates for tests, made with openssl: an authority, what it has signed for 127.0.0.1, and one for a client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_DAYS = "30"


@dataclass(frozen=True)
class Certificates:
    """Files of PEM in a folder: of an authority (``ca``), the server's and the client's certificate and key."""

    folder: Path

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def certificate(self) -> str:
        return str(self.folder / "server.pem")

    @property
    def key(self) -> str:
        return str(self.folder / "server.key")

    @property
    def client_certificate(self) -> str:
        return str(self.folder / "client.pem")

    @property
    def client_key(self) -> str:
        return str(self.folder / "client.key")


def certificates(folder: Path, authority: str = "an authority of the tests") -> Certificates:
    """New keys in ``folder``, and certificates by a new authority."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(folder)
    _openssl(folder, "req", "-x509", *_new("ca"), "-out", "ca.pem", "-days", _DAYS, "-subj", f"/CN={authority}")
    for name, subject in (("server", "127.0.0.1"), ("client", "app")):
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        _openssl(folder, "req", *_new(name), "-out", f"{name}.csr", "-subj", f"/CN={subject}")
        signed = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-days", _DAYS, "-extfile", "names"]
        _openssl(folder, "x509", "-req", *signed, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    return made


def _new(name: str) -> list[str]:
    """A key without a password. Of 2,048 bits of RSA: all clients take it."""
    return ["-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key"]


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
