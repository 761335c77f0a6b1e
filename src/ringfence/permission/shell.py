"""A shell line, read whole before anything of it starts: the commands that it would run, and the files that it redirects.

The grammar is tree-sitter's for bash; what is not in the short list of constructs here makes the line unclear, as does everything
that bash would only know when it runs. A line is unclear in one of two ways: *loosely*, where what starts is known and what it is
given is not, and *firmly*, where not even what starts is known. Neither is ever let through by a rule.

Bounds keep a hostile line from costing: the parser's memory grows with the square of unfinished pipelines.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ringfence.permission.words import Word, literal, word_of
from ringfence.values import frozen, replace

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_BYTES = 128 << 10
MAX_MARKS = 3000
MAX_DEPTH = 60
MAX_FOLDERS = 8
INSTALL = "shell lines are read with the extra ringfence[shell], which is not installed: pip install 'ringfence[shell]'"

Folders = tuple[str | None, ...]
"""Where a command may start, relative to where the line does; None is anywhere."""


@frozen
class Doubt:
    """Why a part of a line is unclear. firm: not even what would start is known."""

    why: str
    firm: bool = False


@frozen
class Command:
    """A command of a line. assigned: variables set for it. fed, stdin: whether it reads from the line, and the text, when certain.

    by_shell: whether a shell starts it, which has builtins.
    """

    raw: str
    words: tuple[Word, ...]
    folders: Folders = ("",)
    assigned: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    fed: bool = False
    stdin: str | None = None
    by_shell: bool = True


@frozen
class Redirect:
    """A file that the shell itself opens. kind: read or write."""

    kind: str
    word: Word
    folders: Folders = ("",)


@frozen
class Line:
    """What a line would do, in order, and what is unclear about the whole of it."""

    steps: tuple[Command | Redirect, ...] = ()
    doubts: tuple[Doubt, ...] = ()


def read_line(text: str, variables: Mapping[str, str], depth: int = 0) -> Line:
    """The commands and redirects of a line. variables: values that are known at its start, for guesses alone."""
    if doubt := unreadable(text, depth):
        return Line((), (doubt,))
    try:
        import tree_sitter_bash  # an extra, and nothing without shell lines needs it
        from tree_sitter import Language, Parser
    except ImportError:
        return Line((), (Doubt(INSTALL, firm=True),))
    source = text.encode("utf-8", "surrogateescape")
    root = Parser(Language(tree_sitter_bash.language())).parse(source).root_node
    reader = _Reader(source, variables)
    doubts = [*_gaps(root, source), *([Doubt("it cannot be parsed", firm=True)] if root.has_error else [])]
    reader.walk(root, ("",), 0)
    return Line(tuple(reader.steps), tuple(dict.fromkeys([*doubts, *reader.doubts])))


def unreadable(text: str, depth: int = 0) -> Doubt | None:
    """Why a line is not even parsed, or what of its characters would fool a reader."""
    if depth > 4:
        return Doubt("shells are nested in it too deep to be read", firm=True)
    if len(text) > MAX_BYTES or sum(map(text.count, "|&;()<>`")) > MAX_MARKS:
        return Doubt(f"it is longer than what is read: {MAX_BYTES} characters, {MAX_MARKS} of them operators", firm=True)
    for character in text:
        if character in " \t\n" or "!" <= character <= "~":
            continue
        kind = unicodedata.category(character)
        if kind[0] == "C" or kind[0] == "Z":
            return Doubt(f"it has a character that is not seen as what it is: U+{ord(character):04X}", firm=True)
    return None


def _gaps(root: Node, source: bytes) -> Iterator[Doubt]:
    """Whatever lies between the tokens and is no blank: the parser skipped what bash would not."""
    at = 0
    for node in _leaves(root):
        skipped = re.sub(rb"\\\n", b"", source[at : node.start_byte]) if node.start_byte > at else b""
        if skipped.strip(b" \t\n") and not (node.type in ("<<", "<<-") and DASH.fullmatch(skipped)):
            yield Doubt("a part of it is skipped by the parser", firm=True)
            return
        at = max(at, node.end_byte)
    if source[at:].strip(b" \t\n"):
        yield Doubt("its end is not read by the parser", firm=True)


DASH = re.compile(rb"[ \t]+-[ \t]+")
"""A word that the parser drops before a here-document: `python - <<EOF`."""
WHOLE = ("string", "raw_string", "ansi_c_string", "heredoc_body", "comment")


def _leaves(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.child_count and node.type not in WHOLE:
            waiting += reversed(node.children)
        else:
            yield node


SEQUENCES = {
    "program", "subshell", "compound_statement", "do_group", "then", "else_clause", "elif_clause", "if_statement",
    "while_statement", "for_statement", "c_style_for_statement", "case_statement", "case_item", "negated_command",
}  # fmt: skip
EXPANDS = {
    "simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion", "brace_expression",
    "ansi_c_string", "translated_string", "array", "subscript", "binary_expression", "unary_expression", "postfix_expression",
    "ternary_expression", "parenthesized_expression", "test_operator",
}  # fmt: skip
HARMLESS = {"comment", "variable_name", "word", "number", "string", "raw_string", "concatenation", "extglob_pattern", "regex"}
FAR = Doubt("it is nested too deep to be read", firm=True)


class _Reader:
    def __init__(self, source: bytes, variables: Mapping[str, str]) -> None:
        self.source, self.variables = source, dict(variables)
        self.steps: list[Command | Redirect] = []
        self.doubts: list[Doubt] = []
        self.functions: set[str] = set()

    def walk(
        self, node: Node, folders: Folders, depth: int, fed: bool = False, stdin: str | None = None
    ) -> tuple[Folders, Folders]:
        """Take in a node. Returns where the next command starts, if this one succeeds, and in any case."""
        if depth > MAX_DEPTH:
            self.doubts.append(FAR)
            return folders, folders
        kind = node.type
        if kind == "command":
            return self.command(node, folders, depth, fed, stdin)
        if kind == "redirected_statement":
            return self.redirected(node, folders, depth, fed, stdin)
        if kind == "list":
            return self.and_or(node, folders, depth, fed, stdin)
        if kind == "pipeline":
            here = folders
            for at, child in enumerate(node.named_children):
                here = self.stage(child, here, depth + 1, fed or at > 0, None if at else stdin)
            return here, here
        if kind == "function_definition":
            self.function(node, depth)
            return folders, folders
        if kind in ("declaration_command", "unset_command", "test_command", "variable_assignment", "variable_assignments"):
            self.builtin(node, folders, depth)
            return folders, folders
        if kind not in SEQUENCES and kind not in HARMLESS and kind not in EXPANDS and node.is_named:
            self.doubts.append(Doubt(f"it has what is not read here: {kind}", firm=True))
        if (
            kind in EXPANDS
            or self.raw(node).startswith("((")
            or kind in ("for_statement", "case_statement", "c_style_for_statement")
        ):
            self.doubts.append(Doubt("what it does depends on values that are known only when it runs"))
        now = folders
        for child in node.named_children:
            _, now = self.walk(child, now, depth + 1, fed, stdin)
        return (folders, folders) if kind == "subshell" else (now, now)

    def stage(self, node: Node, folders: Folders, depth: int, fed: bool, stdin: str | None) -> Folders:
        """Take in a stage of a pipeline; returns where the next one may start.

        It runs in a shell of its own. But where a redirect stands in it the parser takes what is before `&&` into it too.
        """
        well, after = self.walk(node, folders, depth, fed, stdin)
        inner = node.child_by_field_name("body") if node.type == "redirected_statement" else node
        return _either(folders, _either(well, after)) if inner is not None and inner.type == "list" else folders

    def and_or(self, node: Node, folders: Folders, depth: int, fed: bool, stdin: str | None) -> tuple[Folders, Folders]:
        if not node.named_children:
            return folders, folders
        left, right = node.named_children[0], node.named_children[-1]
        operator = next((child.type for child in node.children if child.type in ("&&", "||")), "")
        if len(node.named_children) != 2 or not operator:
            self.doubts.append(Doubt("it has a list that is not read here", firm=True))
        well, after = self.walk(left, folders, depth + 1, fed, stdin)
        if left is right or len(node.named_children) < 2:
            return well, after
        there, then = self.walk(right, well if operator == "&&" else after, depth + 1, fed, stdin)
        return (there if operator == "&&" else _either(well, there)), _either(after, then)

    def function(self, node: Node, depth: int) -> None:
        name = node.child_by_field_name("name")
        if name is not None:
            self.functions.add(self.raw(name))
        for child in node.named_children:
            if child != name:
                self.walk(child, (None,), depth + 1, fed=True)

    def builtin(self, node: Node, folders: Folders, depth: int) -> None:
        """Assignments, declarations and tests: what is evaluated in them runs commands too."""
        raw = self.raw(node)
        names = [each for each in _named(node) if each.type == "variable_assignment"]
        for each in names:
            self.assign(each)
        if node.type in ("declaration_command", "unset_command"):
            words = (literal(raw.split()[0]), *(self.word(each) for each in node.named_children))
            doubts = () if all(word.text is not None or "=" in word.raw for word in words) else (LOOSE,)
            self.steps.append(Command(raw, words, folders, doubts=doubts))
        elif node.type == "test_command":
            self.steps.append(Command(raw, (literal("test"),), folders))
        if any(each.type in EXPANDS for each in _named(node)):
            self.doubts.append(Doubt("what it does depends on values that are known only when it runs"))
        if any(each.type == "raw_string" and re.search(r"\$\(|`", self.raw(each)) for each in _named(node)):
            self.doubts.append(EVALUATED)
        self.inner(node, folders, depth)

    def assign(self, node: Node) -> None:
        """Remember what a variable is, where the line says it; forget it where it does not."""
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            return
        known = self.word(value).known if value is not None else ""
        if known is None or self.raw(node)[len(self.raw(name)) :].startswith("+="):
            self.variables.pop(self.raw(name), None)
        else:
            self.variables[self.raw(name)] = known
        if self.raw(name) in DECIDES_WHAT_STARTS:
            self.doubts.append(_starts_others(self.raw(name)))

    def inner(self, node: Node, folders: Folders, depth: int) -> None:
        """The commands of substitutions anywhere below a node."""
        for each in _outermost(node, ("command_substitution", "process_substitution")):
            for child in each.named_children:
                self.walk(child, folders, depth + 2, fed=True)

    def command(self, node: Node, folders: Folders, depth: int, fed: bool, stdin: str | None) -> tuple[Folders, Folders]:
        words: list[Word] = []
        assigned: list[str] = []
        self.apart(node.children)
        for child in node.named_children:
            if child.type == "variable_assignment":
                assigned.append(self.raw(child.child_by_field_name("name") or child))
            elif child.type == "herestring_redirect":
                fed, stdin = True, self.word(child.named_children[-1]).text if child.named_children else None
            elif child.type == "file_redirect":
                words += self.redirect(child, folders)
            elif child.type != "comment":
                words.append(self.word(child))
        self.inner(node, folders, depth)
        return self.add(node, words, folders, assigned, fed, stdin)

    def add(
        self, node: Node, words: Sequence[Word], folders: Folders, assigned: Sequence[str], fed: bool, stdin: str | None
    ) -> tuple[Folders, Folders]:
        doubts = [] if all(word.text is not None for word in words) else [LOOSE]
        name = words[0].known if words else None
        if words and words[0].raw in RESERVED:
            self.doubts.append(Doubt("it cannot be parsed", firm=True))
        self.doubts += [_starts_others(each) for each in assigned if each in DECIDES_WHAT_STARTS]
        if name in EVALUATES and any(re.search(r"\$\(|`", word.text or "") for word in words):
            self.doubts.append(EVALUATED)
        if name in self.functions:
            doubts.append(Doubt(f"{name} is a function of the line"))
        self.steps.append(Command(self.raw(node), tuple(words), folders, tuple(assigned), tuple(doubts), fed, stdin))
        if name in self.functions or name in ("pushd", "popd"):
            return (None,), (None,)
        if name == "cd":
            there = _changed(folders, words[1:])
            return there, _either(folders, there)
        return folders, folders

    def redirected(self, node: Node, folders: Folders, depth: int, fed: bool, stdin: str | None) -> tuple[Folders, Folders]:
        """A statement and its redirects. The parser hangs those of the last command of a list or a pipeline on the whole of it."""
        before, body = _last_of(node.child_by_field_name("body"))
        well, after, here = folders, folders, folders
        for operator, each in before:
            if operator == "|":
                here = self.stage(each, here, depth + 1, fed, stdin)
                fed, stdin = True, None
            else:
                well, after = self.walk(each, here, depth + 1, fed, stdin)
                here = well if operator == "&&" else after
        more, rest, fed, stdin = self.redirects(node, here, depth, fed, stdin)
        there = then = here
        if body is not None:
            start = len(self.steps)
            there, then = self.walk(body, here, depth + 1, fed, stdin)
            self.give(body, more, start)
        elif more:
            there, then = self.add(node, more, here, (), fed, stdin)
        if any(operator == "|" for operator, _ in before):
            there = then = here
        for each in rest:
            _, then = self.walk(each, _either(there, then), depth + 1, fed=True)
            there = then
        return _either(there, well) if any(operator == "||" for operator, _ in before) else there, _either(after, then)

    def redirects(
        self, node: Node, folders: Folders, depth: int, fed: bool, stdin: str | None
    ) -> tuple[list[Word], list[Node], bool, str | None]:
        """The words and the statements that stand after redirects, and what stdin is by them.

        A here-document holds, for the parser, what stands after it on its line.
        """
        more: list[Word] = []
        rest: list[Node] = []
        for child in node.named_children:
            if child == node.child_by_field_name("body"):
                continue
            if child.type == "file_redirect":
                more += self.redirect(child, folders)
                fed = fed or self.raw(child).lstrip("0123456789").startswith("<")
            elif child.type == "herestring_redirect":
                fed, stdin = True, self.word(child.named_children[-1]).text if child.named_children else None
                self.inner(child, folders, depth)
            elif child.type == "heredoc_redirect":
                fed, stdin = True, self.document(child, folders, depth)
                if re.search(rb"[ \t]-[ \t]+\Z", self.source[: child.start_byte]):
                    more.append(literal("-"))
                more += [self.word(each) for each in child.children_by_field_name("argument")]
                for each in child.named_children:
                    if each.type == "file_redirect":
                        more += self.redirect(each, folders)
                    elif each.type in ("pipeline", "list", "command", "redirected_statement", "subshell", "compound_statement"):
                        rest.append(each)
                    elif each.type not in ("heredoc_start", "heredoc_body", "heredoc_end", "file_descriptor", *WORDS):
                        self.doubts.append(Doubt("it has a here-document that is not read here", firm=True))
            elif child.type != "comment":
                self.doubts.append(Doubt(f"it has what is not read here: {child.type}", firm=True))
        return more, rest, fed, stdin

    def give(self, body: Node, more: Sequence[Word], start: int) -> None:
        """Words that stand after a redirect belong to the command before it."""
        if not more:
            return
        last = self.steps[-1] if len(self.steps) > start else None
        if body.type == "command" and isinstance(last, Command):
            doubts = last.doubts if all(word.text is not None for word in more) else (*last.doubts, LOOSE)
            self.steps[-1] = replace(last, words=(*last.words, *more), doubts=doubts)
        else:
            self.doubts.append(Doubt("it has words after a redirect that are not read here", firm=True))

    def redirect(self, node: Node, folders: Folders) -> list[Word]:
        """Take in a redirect; the words after its file are returned."""
        if re.search(rb"(^|[\s;&|()])\d+\Z", self.source[: node.start_byte]):
            self.doubts.append(MISREAD)  # a descriptor that the parser took for a word
        operator = next((child.type for child in node.children if child.type[:1] in ("<", ">", "&")), "")
        targets = [self.word(each) for each in node.children_by_field_name("destination")]
        if not targets:
            if not operator.endswith("-"):
                self.doubts.append(Doubt("a redirect has no file", firm=True))
            return []
        self.inner(node, folders, 0)
        self.apart([child for child in node.children if (child.is_named and child.type != "file_descriptor") or child.type == "$"])
        first, rest = targets[0], targets[1:]
        if operator in ("<&", ">&") and first.text is not None and re.fullmatch(r"\d+-?|-", first.text):
            return rest
        self.steps.append(Redirect("read" if operator in ("<", "<&") else "write", first, folders))
        return rest

    def apart(self, nodes: Sequence[Node]) -> None:
        """Words are apart: of two that touch, or of a token that is none, the parser has not read what bash reads."""
        ends = -1
        for node in nodes:
            token = not node.is_named and node.type not in ("<<<", "<<", ">", "<")
            gap = self.source[ends : node.start_byte].replace(b"\\\n", b"") if ends >= 0 else b" "
            inside = node.type == "word" and re.search(r"[ \t\n]", re.sub(r"\\.", "", self.raw(node), flags=re.DOTALL))
            if token or inside or (not gap and not node.type.endswith("redirect")):
                self.doubts.append(MISREAD)
            ends = node.end_byte

    def document(self, node: Node, folders: Folders, depth: int) -> str | None:
        """The text of a here-document, when it is certain."""
        start = next((each for each in node.named_children if each.type == "heredoc_start"), None)
        body = next((each for each in node.named_children if each.type == "heredoc_body"), None)
        if start is None or body is None:
            self.doubts.append(Doubt("it has a here-document without its text", firm=True))
            return None
        text = self.raw(body)
        quoted = re.search(r"['\"\\]", self.raw(start))
        if not quoted and re.search(r"[$`\\]", text):
            self.doubts.append(Doubt("its here-document holds values that are known only when it runs"))
            self.inner(body, folders, depth)
            return None
        return re.sub(r"^\t+", "", text, flags=re.MULTILINE) if self.raw(node).startswith("<<-") else text

    def word(self, node: Node) -> Word:
        return word_of(node, self.source, self.variables)

    def raw(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")


EVALUATED = Doubt("a builtin may run the text that it is given", firm=True)
EVALUATES = ("test", "[", "printf", "read", "let", "declare", "typeset", "local", "export", "readonly", "unset", "wait", "mapfile",
    "readarray", "getopts")  # fmt: skip
"""Builtins that take names of variables, and run what a subscript in one says (bash(1), ARITHMETIC EVALUATION)."""
RESERVED = ("if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in", "function",
    "{", "}", "[[", "]]", "!")  # fmt: skip
MISREAD = Doubt("its words are not read as bash reads them", firm=True)
LOOSE = Doubt("it is given what is known only when it runs")
WORDS = ("word", "number", "string", "raw_string", "concatenation", *EXPANDS)
DECIDES_WHAT_STARTS = ("PATH", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
    "PROMPT_COMMAND", "BASH_FUNC", "CDPATH", "HOME", "PWD", "OLDPWD")  # fmt: skip


def _starts_others(name: str) -> Doubt:
    return Doubt(f"it sets {name}, which decides what a name starts", firm=True)


def _named(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += reversed(each.named_children)


def _outermost(node: Node, kinds: Sequence[str]) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.type in kinds and each != node:
            yield each
        else:
            waiting += reversed(each.named_children)


def _last_of(body: Node | None) -> tuple[list[tuple[str, Node]], Node | None]:
    """The last command of lists and pipelines, and what stands before it, each with the operator after it."""
    before: list[tuple[str, Node]] = []
    while body is not None and body.type in ("list", "pipeline") and len(body.named_children) > 1:
        operators = [child.type for child in body.children if not child.is_named]
        before += [("|" if body.type == "pipeline" else operators[-1], each) for each in body.named_children[:-1]]
        body = body.named_children[-1]
    return before, body


def _either(one: Folders, other: Folders) -> Folders:
    both = tuple(dict.fromkeys((*one, *other)))
    return both if len(both) <= MAX_FOLDERS else (None,)


def _changed(folders: Folders, words: Sequence[Word]) -> Folders:
    """Where `cd` with these words leads from each folder."""
    plain = [word for word in words if word.text not in ("-P", "-L", "--", "-e")]
    if not plain:
        return ("~",)
    to = plain[0].known
    if len(plain) > 1 or to is None or to == "-":
        return (None,)
    certain: Folders = () if plain[0].text is not None else (None,)
    there = tuple(to if to.startswith(("/", "~")) else None if each is None else f"{each}/{to}".lstrip("/") for each in folders)
    return tuple(dict.fromkeys((*there, *certain)))
