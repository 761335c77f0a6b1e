"""How the local kernel holds a process: host facts, the plan, and the mechanisms that enforce it."""
