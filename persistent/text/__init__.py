"""Text for people: times and sizes, fingerprints, failing lines of user code, misspelled options."""
