"""Mirrors both packages: ``persistent/x/y.py`` is tested by ``tests/x/test_y.py``, and ``monoids/x/y.py`` by
``tests/monoids/x/test_y.py``; see ``tests.only``."""
