"""The gate: a project's own commands, run over code that a model produced, and what they say of it.

candidate: one version of a tree: files or a patch over it. copy: a tree of its own for each candidate, removed after. command: one
step of the check. verdict: passed, failed, or could not verify, which is ours and says nothing of the code.
"""
