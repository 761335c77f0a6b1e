"""Small projects of each kind that is recognised, with one file that decides whether they pass. None needs a network."""

from __future__ import annotations

from pathlib import Path

from ringfence.values import frozen


@frozen
class Project:
    """files: what it has, passing. broken: the same with a fault, for its deciding file."""

    kind: str
    files: dict[str, str]
    broken: dict[str, str]

    def write(self, folder: Path) -> Path:
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder


PYTEST = Project(
    "pytest",
    {
        "calc.py": "def add(a, b):\n    return a + b\n",
        "tests/test_calc.py": "from calc import add\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    },
    {"calc.py": "def add(a, b):\n    return a - b\n"},
)
CARGO = Project(
    "cargo",
    {
        "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n#[test]\nfn adds() {\n    assert_eq!(add(1, 2), 3);\n}\n",
    },
    {"src/lib.rs": 'pub fn add(a: i32, b: i32) -> i32 {\n    "no number"\n}\n'},
)
GO = Project(
    "go",
    {
        "go.mod": "module example.org/calc\n\ngo 1.18\n",
        "calc.go": "package calc\n\nfunc Add(a, b int) int { return a + b }\n",
        "calc_test.go": 'package calc\n\nimport "testing"\n\n'
        'func TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal("no")\n\t}\n}\n',
    },
    {"calc.go": "package calc\n\nfunc Add(a, b int) int { return a - b }\n"},
)
NPM = Project(
    "npm",
    {
        "package.json": '{"name": "calc", "version": "1.0.0", "scripts": {"build": "node -c calc.js", "test": "node test.js"}}',
        "calc.js": "exports.add = (a, b) => a + b\n",
        "test.js": "require('assert').strictEqual(require('./calc').add(1, 2), 3)\n",
    },
    {"calc.js": "exports.add = (a, b) => a - b\n"},
)
MAKE = Project(
    "make",
    {
        "Makefile": "calc: calc.c\n\tgcc -Wall -o calc calc.c\n\n.PHONY: test\ntest: calc\n\t./calc\n",
        "calc.c": "static int add(int a, int b) { return a + b; }\nint main(void) { return add(1, 2) == 3 ? 0 : 1; }\n",
    },
    {"calc.c": "static int add(int a, int b) { return a - b; }\nint main(void) { return add(1, 2) == 3 ? 0 : 1; }\n"},
)
ALL = (PYTEST, CARGO, GO, NPM, MAKE)
