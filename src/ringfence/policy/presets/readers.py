"""Readers of the settings of clients, each as much of its format as names hosts. What they do not understand they say.

No text is expanded: a value with a variable in it is not used. Values are never repeated in what is said, since they may be secret.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Generator, Iterator
from typing import Any

from ringfence.values import frozen

MAX_FILES = 64
"""Files of one folder that are looked at."""
MAX_LINES = 20_000
SECRET = re.compile(r"token|password|passwd|_auth|secret|username|credential", re.IGNORECASE)
KEY = re.compile(r"[A-Za-z0-9@/_:.\[\]-]{1,128}")


@frozen
class Found:
    """One setting that names a host, or holds credentials, or was not understood. url is never shown."""

    key: str = ""
    url: str = ""
    credential: bool = False
    problem: str = ""


def of_folder(pattern: str) -> Iterator[str]:
    """The files of a folder whose names end as pattern does."""
    folder, _, ending = pattern.rpartition("/*")
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(ending) and not name.startswith("."))
    except OSError:
        return
    yield from (f"{folder}/{name}" for name in names[:MAX_FILES])


def of_pip(text: str) -> Iterator[Found]:
    """An INI file (configparser): sections, `key = value` or `key: value`, and values that go on in indented lines."""
    key, section = "", ""
    for number, line in enumerate(text.splitlines()[:MAX_LINES], 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if line[0].isspace() and key:
            yield from _of_pip(section, key, stripped)
        elif stripped[0] == "[" and stripped[-1] == "]":
            section, key = stripped[1:-1], ""
        elif match := re.match(r"([^=:\s][^=:]*?)\s*[=:]\s*(.*)", stripped):
            key = match[1].lower().replace("_", "-")
            yield from _of_pip(section, key, match[2])
        else:
            yield Found(problem=f"line {number} is not understood")


def _of_pip(section: str, key: str, value: str) -> Iterator[Found]:
    if key not in ("index-url", "extra-index-url", "find-links"):
        return
    for word in value.split():
        if key != "find-links" or "://" in word:  # else it is a folder
            yield Found(key, word)


def of_uv(text: str) -> Iterator[Found]:
    """TOML: [[index]] tables, and the older keys beside them, of uv itself and of its pip."""
    said = yield from _toml(text)
    for table in (said, *(_maps(said.get("pip")))):
        for key in ("index-url", "extra-index-url", "find-links"):
            for url in _texts(table.get(key)):
                if key != "find-links" or "://" in url:
                    yield Found(key, url)
    indexes = said.get("index")
    for index in indexes if isinstance(indexes, list) else ():
        for each in _maps(index):
            yield from (Found("default-index" if each.get("default") is True else "index", url) for url in _texts(each.get("url")))


def of_npm(text: str) -> Iterator[Found]:
    """`key = value` lines (ini): `registry` and `@scope:registry`; the lines of a host, which begin with //, hold credentials."""
    for line in text.splitlines()[:MAX_LINES]:
        stripped = line.strip()
        if not stripped or stripped[0] in "#;[":
            continue
        key, _, value = (part.strip() for part in stripped.partition("="))
        key = key.strip("\"'")
        if key.startswith("//") or SECRET.search(key):
            yield Found(credential=True)
        elif key == "registry" or (key.startswith("@") and key.endswith(":registry") and KEY.fullmatch(key)):
            yield Found(key, value.strip("\"'"))


def of_cargo(text: str) -> Iterator[Found]:
    """TOML: `index`, `registry` and `git` of [registries.x], [registry] and [source.x]; `sparse+` is no part of a URL."""
    said = yield from _toml(text)
    for table in (*_maps(said.get("registry")), *_tables(said.get("registries")), *_tables(said.get("source"))):
        if any(SECRET.search(key) for key in table):
            yield Found(credential=True)
        for key in ("index", "registry", "git"):
            for url in _texts(table.get(key)):
                yield Found(key, url.removeprefix("sparse+").removeprefix("registry+"))


def of_go(text: str) -> Iterator[Found]:
    """`NAME=value` lines, as `go env -w` writes them: GOPROXY and GOSUMDB. Neither `direct` nor `off` names a host."""
    for line in text.splitlines()[:MAX_LINES]:
        name, equals, value = line.strip().partition("=")
        if not equals or name.startswith("#"):
            continue
        if name == "GOPROXY":
            for word in re.split(r"[,|]", value):
                if word.strip() == "direct":
                    yield Found(
                        problem="GOPROXY says direct, which is the host of each module: those are for network.allow to name"
                    )
                elif word.strip() not in ("", "off"):
                    yield Found(name, word.strip())
        elif name == "GOSUMDB" and value.strip() not in ("", "off"):
            key, *url = value.split()
            yield Found(name, url[0] if url else f"https://{key.partition('+')[0]}")


def of_maven(text: str) -> Iterator[Found]:
    """XML: `url` of mirrors, repositories and pluginRepositories. A document type, which can define entities, is not read."""
    from xml.etree import ElementTree  # few boxes ask for Maven

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        yield Found(problem="there is a document type, so nothing of it is used")
        return
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        yield Found(problem="something is no XML, so nothing of it is used")
        return
    for each in root.iter():
        name = str(each.tag).rpartition("}")[2]
        if name in ("password", "passphrase", "privateKey", "username"):
            yield Found(credential=True)
        if name in ("mirror", "repository", "pluginRepository"):
            urls = [below.text or "" for below in each if str(below.tag).rpartition("}")[2] == "url"]
            yield from (Found(name, url.strip()) for url in urls)


def of_apt(text: str) -> Iterator[Found]:
    """Lines `deb [options] URI ...`, and paragraphs with `URIs:` (sources.list(5))."""
    field = ""
    for number, line in enumerate(text.splitlines()[:MAX_LINES], 1):
        plain = line.partition("#")[0].rstrip()
        if not plain:
            field = "" if not line.startswith("#") else field
            continue
        if plain[0].isspace() and field:
            yield from (Found("URIs", word) for word in plain.split() if field == "uris")
        elif match := re.match(r"(?:deb|deb-src)\s+(?:\[[^\]]*\]\s+)?(\S+)\s", plain + " "):
            yield Found("deb", match[1])
        elif match := re.match(r"([A-Za-z-]+)\s*:(.*)", plain):
            field = match[1].lower()
            yield from (Found("URIs", word) for word in match[2].split() if field == "uris")
        else:
            yield Found(problem=f"line {number} is not understood")


def _toml(text: str) -> Generator[Found, None, dict[str, Any]]:
    """The tables of a text, as what `yield from` gives; a problem where it is no TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        yield Found(problem="something is no TOML, so nothing of it is used")
        return {}


def _maps(value: Any) -> tuple[dict[str, Any], ...]:
    return (value,) if isinstance(value, dict) else ()


def _tables(value: Any) -> tuple[dict[str, Any], ...]:
    return tuple(each for each in value.values() if isinstance(each, dict)) if isinstance(value, dict) else ()


def _texts(value: Any) -> tuple[str, ...]:
    """A text, or the texts of a list."""
    return tuple(each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
