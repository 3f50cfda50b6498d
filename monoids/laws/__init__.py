"""The laws of monoids are a catalogue of equations, and ways to try them on a monoid of one's own.

    assert_monoid_laws(Longest(), strategies.text())        all laws, in one line of any test
    @monoid_laws((Longest(), strategies.text()), Sum())     one pytest item for each monoid and law
    class TestLongest(MonoidLaws): monoid = Longest()       one test for each law, some expected to fail
    pytest --monoid-laws=PACKAGE                            every public monoid of a package

scalar.py                    the laws: functions that return the two sides of an equation
lifting.py  columnar.py      those of lifting columns, and of columns of elements
catalogue.py                 their table
equality.py                  when two sides are the same
strategies.py  drawing.py    what inputs are drawn, and the examples made of them
terms.py                     what is drawn for a law: printed, made anew, made smaller
sample.py                    which examples a law is tried on
check.py  budget.py          trying and shrinking, in bounded time and memory
remedies.py                  what to do about a broken law
decorating.py                as tests of pytest
finding.py  plugin.py        every monoid of a package
instances.py                 every monoid of this one
"""

from monoids.laws.catalogue import LAWS, Law, law_named, laws_of
from monoids.laws.check import LawsWarning, LawViolation, Trial, assert_monoid_laws
from monoids.laws.decorating import MonoidLaws, monoid_laws
from monoids.laws.equality import Equality, exact, hoeffding_margin, statistical, within
from monoids.laws.strategies import inputs_for, values_of

__all__ = [
    "LAWS",
    "Equality",
    "Law",
    "LawViolation",
    "LawsWarning",
    "MonoidLaws",
    "Trial",
    "assert_monoid_laws",
    "exact",
    "hoeffding_margin",
    "inputs_for",
    "law_named",
    "laws_of",
    "monoid_laws",
    "statistical",
    "values_of",
    "within",
]
