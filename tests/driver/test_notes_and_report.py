"""What a run reports is what its manifests say."""

from __future__ import annotations

from tests.driver.shop import Shop


def test_every_manifest_balances_and_every_step_is_reported() -> None:
    """I9, and that the figures a user plots are those of the checkpoint."""
    shop, reports = Shop(), []
    report = shop.run(end_of_input=True, on_step=reports.append)
    manifests = [manifest for manifest in shop.manifests() if manifest.kind == "checkpoint" and manifest.id]
    assert [step.id for step in reports] == [manifest.id for manifest in manifests]
    assert sum(step.rows for step in reports) == report.rows == 12
    assert sum(step.outputs for step in reports) == report.outputs == len(shop.sink.rows())
    for manifest, step in zip(manifests, reports):
        assert all(account.balances for account in manifest.accounts.values())
        assert step.watermark == manifest.clock.watermark
        assert step.checkpoint_bytes >= step.manifest_bytes > 0
