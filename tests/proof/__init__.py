"""The proof is the evidence that nothing is lost or doubled: sections, each with its count of cases and of mutants."""
