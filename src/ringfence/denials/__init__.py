"""What a run was refused, as far as its own words tell: read from stderr, checked against what the policy really closes."""
