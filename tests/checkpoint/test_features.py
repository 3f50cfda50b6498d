"""A document that needs what its reader does not know is refused by the name of the feature."""

from __future__ import annotations

import pytest

from persistent.checkpoint import features
from persistent.checkpoint.shapes import check_format
from persistent.errors import NewerFormat


def test_every_feature_is_known() -> None:
    """Without it a document of this release would be refused by this release."""
    named = {value for name, value in vars(features).items() if name.isupper() and isinstance(value, str)}
    assert named == features.FEATURES and len(named) > 10


def test_no_two_features_have_one_name() -> None:
    """A reader that knows one would take documents that need the other."""
    names = [name for name in vars(features) if name.isupper() and name != "FEATURES"]
    assert len(names) == len(features.FEATURES)


def test_a_feature_that_is_not_known_is_named() -> None:
    """A document is not read as if it held less."""
    with pytest.raises(NewerFormat, match="some later thing"):
        check_format({"format": 3, "features": [*sorted(features.FEATURES), "some later thing"]}, "m/0")
