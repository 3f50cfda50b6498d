"""The laws of monoids: a catalogue of equations, and ways to test them on your own monoids.

assert_monoid_laws(Longest(), strategies.text())        all laws, in one line of any test
pytest --monoid-laws=PACKAGE                            every public monoid of a package, an item for each law
persistent laws FILE.py:NAME                            a table, law by law

scalar.py                    the laws: functions that return the two sides of an equation
lifting.py  columnar.py      the laws of lifting columns, and of columns of elements
catalogue.py                 the table of laws, and how to repair a broken one
equality.py                  when two sides are the same
strategies.py  examples.py   how inputs are drawn, and the examples built from them
terms.py                     the values of a law's arguments: printed, rebuilt, shrunk
sample.py                    which examples a law is tested on
check.py  budget.py          testing and shrinking, in bounded time and memory
plugin.py                    every monoid of a package
instances.py                 every monoid of this package
"""

from monoids.laws.catalogue import LAWS, Law, law_named, laws_of
from monoids.laws.check import LawNotTried, LawsWarning, LawViolation, Trial, assert_monoid_laws
from monoids.laws.equality import Equality, exact, hoeffding_margin, statistical, within
from monoids.laws.strategies import inputs_for, values_of

__all__ = [
    "LAWS",
    "Equality",
    "Law",
    "LawNotTried",
    "LawViolation",
    "LawsWarning",
    "Trial",
    "assert_monoid_laws",
    "exact",
    "hoeffding_margin",
    "inputs_for",
    "law_named",
    "laws_of",
    "statistical",
    "values_of",
    "within",
]
