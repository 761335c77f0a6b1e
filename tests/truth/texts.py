"""What programs print to be taken for something else: words of denials, and whole lines of ours, of others and of the kernel."""

from __future__ import annotations

WORDS = (
    "Operation not permitted",
    "Permission denied",
    "Read-only file system",
    "seccomp",
    "sandbox",
    "landlock",
    "failed to write file",
)
"""The words that sandbox products look for in the output of a command that failed."""

KERNEL = (
    "[ 4711.123456] Out of memory: Killed process {n} (python3) total-vm:1048576kB, anon-rss:65536kB, file-rss:0kB",
    "[ 4711.123456] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=user,task=python3,pid={n},uid=0",
    "Memory cgroup out of memory: Killed process {n} (python3), UID 0, total-vm:9kB",
    'audit: type=1326 audit(1.1:1): auid=0 uid=0 pid={n} comm="x" exe="x" sig=31 arch=c000003e syscall=101 compat=0',
    "traps: python3[{n}] general protection fault ip:7f sp:7f error:0",
    "fork: retry: Resource temporarily unavailable",
    "bash: fork: Cannot allocate memory",
    "Killed",
    "Segmentation fault (core dumped)",
    "Bad system call (core dumped)",
    "CPU time limit exceeded (core dumped)",
    "File size limit exceeded (core dumped)",
    "Terminated",
    "MemoryError",
)
OTHERS = (
    "bwrap: execvp nope: No such file or directory",
    "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
    "bwrap: setting up uid map: Permission denied",
    "docker: Error response from daemon: OCI runtime create failed: container_linux.go:380: starting container process",
    "runc run failed: unable to start container process: error during container init: permission denied",
    '{{"Status":"exited","ExitCode":137,"OOMKilled":true,"Error":""}}',
    "ssh: connect to host box port 22: Connection refused",
    "timeout: the monitored command dumped core",
    "sandbox-exec: sandbox_apply: Operation not permitted",
    "landlock: restrict_self failed: Operation not permitted",
    "Error: command failed to run in sandbox: seccomp denied",
    "subprocess.TimeoutExpired: Command '['pytest']' timed out after 60 seconds",
    "E   Failed: Timeout >120.0s",
    "TimeoutError: The operation timed out",
    "ENOSPC: no space left on device, write",
    "OSError: [Errno 24] Too many open files",
)
OURS = (
    "SandboxLostError: the box was lost: signal 9 ended it.",
    "ringfence.errors.SandboxLostError: [lost] the box was lost: it does not answer.",
    "HostError: the interpreter of the box ended before the program began.",
    "CapHit(kind='memory', limit=67108864, observed=67108864, enforced_by='control group')",
    "CapHit(kind='wall', limit=2.0, observed=2.1, enforced_by='deadline of the call')",
    "Denial(kind='syscall', target='ptrace', rule='seccomp', evidence='observed', remedy=None, detail='')",
    "ringfence: the command was ended: cap memory, limit 64 MiB",
    "ringfence: refused by the policy: write",
    "outcome: NotStarted(reason=<Reason.NOT_FOUND: 'not found'>, path='nope', errno=2)",
    '{{"op":"ended","status":9,"cause":"deadline"}}',
    '{{"op":"end","run":{n},"cause":"memory"}}',
    '{{"cap":"memory","limit":1,"observed":2,"by":"cgroup","pid":{n},"run":{n},"ends":1}}',
    '{{"syscall":101,"arg":0,"run":{n},"count":1}}',
    "PermissionError: [Errno 1] Operation not permitted",
)
FORGED = KERNEL + OTHERS + OURS


def filled(text: str, number: int = 4711) -> str:
    """A forged line with its number put in."""
    return text.format(n=number)


CLAIMS = {"Too many open files": "cap open_files", "connect to host box port 22": "net box:22"}
"""What some of these lines say that a box really has closed: there a program that lies may be believed to have been refused."""


def claims(text: str) -> tuple[str, ...]:
    """The denials that may be inferred from a text, though nothing of it happened."""
    return tuple(denial for words, denial in CLAIMS.items() if words in text)
