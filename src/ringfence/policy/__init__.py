"""What a run may read, write, reach and spend. config: what the caller asks. policy: the resolved, hashed form of it."""
