"""What a box costs, beside what a user would do instead, in one run on one machine: `python -m benchmarks`."""
