"""Sessions in a table of a real PostgreSQL: WHERE NOT retracted it holds what a reader of all rows does, and in the end
the plain sessions."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from persistent import PostgresSink
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.connect.sink import OutputBatch
from persistent.operations import rollback, savepoint
from persistent.testing.faults import FaultyStorage, Killed, Operations
from tests.crash.worlds import InTurn
from tests.servers.postgres import PostgresServer
from tests.servers.shared import shared_postgres
from tests.servers.suites import PostgresSuite
from tests.sessions import Row, Visits, straggling
from tests.single import only
from tests.time.test_session_window_in_tables import GROWN, OPTIONS, Shown, check_a_row_counts_again
from tests.time.test_session_window_lateness import small_folds

pytestmark = [pytest.mark.check, pytest.mark.timeout(240)]

COLUMNS = ("key", "window_start", "window_end", "rows", "total", "most")


class Dying(PostgresSink):
    """Dies before it publishes, or after it."""

    rng: random.Random | None = None

    def deliver(self, batch: OutputBatch) -> None:
        death = self.rng.choices(("before", "after", ""), (1, 1, 6))[0] if self.rng else ""
        if death == "before":
            raise Killed(death)
        super().deliver(batch)
        if death == "after":
            raise Killed(death)


@dataclass
class InPostgres(Shown):
    name: str = ""

    def table(self) -> Any:
        return Dying(shared_postgres().url(), self.name, mode="upsert")

    def select(self) -> list[Row]:
        if shared_postgres().ask(f"SELECT to_regclass('{self.name}')") == [(None,)]:
            return []
        rows = shared_postgres().ask(f"SELECT {', '.join(COLUMNS)} FROM {self.name} WHERE NOT retracted")
        return [dict(zip(COLUMNS, row)) for row in rows]


@pytest.mark.parametrize(("seed", "options"), list(enumerate(OPTIONS)))
def test_a_table_holds_the_plain_sessions(seed: int, options: dict[str, Any], postgres: PostgresServer) -> None:
    """After deaths between staging and publishing, rollbacks of both kinds, and in the hands of an heir."""
    rows, rng = straggling(seed, 30, 4, 10, 60), random.Random(seed)
    task, name = Visits(allowed_lateness=60, **options), f"{PostgresSuite().place(Path())}.stays"
    made = InPostgres(rows, task, 4, 2, name=name)
    with small_folds(seed):
        inner, Dying.rng = made.storage, rng
        for _ in range(6):
            made.storage = FaultyStorage(inner, Operations(rng.randrange(10, 120), rng.choice(("before", "after"))))
            with suppress(Killed):
                made.pipeline(rows[:24]).run(engine=InTurn(1))
        made.storage, Dying.rng = inner, None
        made.go(24)
        ids = made.ids()
        rollback(made.storage, ids[len(ids) // 2], outputs="retract")
        made.go(24)
        made.is_plain = False
        rollback(made.storage, ids[3], outputs="again")
        made.go(24)
        heir = InPostgres(rows, task, 4, 2, name=name, before=made.every.rows(), stops=[24], is_plain=False)
        heir.final = only(newest_of(Log(made.storage)).manifest.nodes).final
        heir.go(start_from=savepoint(made.storage, "half"))
        assert heir.shown() == heir.whole()
        assert postgres.ask(f"SELECT count(*) > 0 FROM {name} WHERE retracted") == [(True,)]
    for one in (made, heir):
        one.sink["table"].close()
        one.storage.clear()


def test_a_row_that_was_taken_back_counts_again_without_the_mark(postgres: PostgresServer) -> None:
    made = InPostgres(GROWN, Visits(allowed_lateness=60), 0, 1, name=f"{PostgresSuite().place(Path())}.stays")
    check_a_row_counts_again(made)
