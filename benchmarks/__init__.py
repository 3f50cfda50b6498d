"""The benchmarks: one module a workload, each run as ``python -m benchmarks.NAME --help``."""
