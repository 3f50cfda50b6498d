"""``persistent serve``: a page of jobs, read from their checkpoints."""

from __future__ import annotations

import uuid

import click

from persistent.pipeline import Pipeline
from persistent.storage.protocol import Storage
from persistent.storage.subfolder import open_checkpoint
from persistent.text.figures import Endpoint, is_loopback
from persistent.tools.cli.exits import CommandFailed
from persistent.tools.cli.load import load_pipeline, names_pipeline
from persistent.tools.cli.tables import json_text

_PORT = 8321


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option("--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="0 chooses a free one.")
@click.option(
    "--token",
    envvar="PERSISTENT_SERVE_TOKEN",
    help="Ask readers for this token (at least 16 characters) [default: none on loopback, otherwise a new one].",
)
@click.option("--name", "names", multiple=True, metavar="NAME", help="Another name the page is reached by; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="The address, the token and the jobs as JSON.")
def serve(
    targets: tuple[str, ...], host: str, port: int, token: str | None, names: tuple[str, ...], as_json: bool
) -> None:
    """Show jobs on a page, running or stopped.

    Reads the checkpoint of each TARGET, and changes nothing. Only the pipeline of a job can read its state; for the URL
    of a checkpoint the page shows everything else. The page needs no internet. It listens on loopback, without
    encryption: reach it from elsewhere by an SSH tunnel, or behind a proxy with TLS.

    \b
    persistent serve visits.py:pipeline
    persistent serve visits.py:pipeline s3://bucket/orders-checkpoint
    persistent serve visits-checkpoint --host 0.0.0.0
    """
    try:
        import uvicorn

        from persistent.tools.serve import Guard, application, named
        from persistent.tools.serve.wording import place_text
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"the page needs {error.name}: pip install 'persistent-monoids[serve]' installs it"
        ) from error
    if token is None and not is_loopback(host):
        token = uuid.uuid4().hex
    jobs = named([_opened(target) for target in targets])
    app = application(jobs, Guard(host, token, frozenset(name.lower() for name in names)))
    config = uvicorn.Config(
        app, host, port, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    try:
        socket = config.bind_socket()
        # Before its address is printed: who connects at once is answered.
        socket.listen(config.backlog)
    except (SystemExit, OSError) as error:
        raise CommandFailed(
            f"cannot listen on {host}, port {port}: another process has the port, or the address is not this "
            "machine's. Choose another --port (0 finds a free one), or another --host"
        ) from error
    url = f"http://{Endpoint(host, socket.getsockname()[1])}/"
    if as_json:
        checkpoints = {name: place_text(job.storage.url) for name, job in jobs.items()}
        click.echo(json_text({"url": url, "token": token, "jobs": list(jobs), "checkpoints": checkpoints}))
    else:
        query = f"?token={token}" if token is not None else ""
        places = ", ".join(f"{name} ({place_text(job.storage.url)})" for name, job in jobs.items())
        click.echo(f"{url}{query} shows {places}; Ctrl-C ends it")
    server.run(sockets=[socket])


def _opened(target: str) -> tuple[str, Storage, Pipeline | None]:
    if names_pipeline(target):
        pipeline = load_pipeline(target)
        return target, pipeline.storage, pipeline
    return target, open_checkpoint(target), None
