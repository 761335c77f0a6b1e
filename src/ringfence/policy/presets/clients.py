"""The clients that are known: which files hold their settings, and which of these name hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ringfence.policy.presets import readers
from ringfence.policy.presets.readers import Found
from ringfence.policy.presets.urls import Place
from ringfence.values import frozen

Settings = Sequence[tuple[str, Place]]


@frozen
class Client:
    """files: of the system first, those of the home behind `~`; `/*.x` is every file of a folder that ends so.

    settings: what of a text names hosts. tells: variables by which a client in a box is told its places, each with the settings
    that it stands for; the last one that is said counts, or all of them, joined, where joined is not empty.
    """

    paths: tuple[str, ...]
    settings: Callable[[str], Iterator[Found]]
    tells: tuple[tuple[str, tuple[str, ...], str], ...] = ()

    def files(self, home: str) -> Iterator[str]:
        """The files that are looked at, whether they are there or not."""
        for path in self.paths:
            whole = home.rstrip("/") + path[1:] if path.startswith("~/") else path
            yield from readers.of_folder(whole) if "/*" in whole else (whole,)

    def variables(self, said: Settings) -> tuple[tuple[str, str], ...]:
        """The variables, with places that have no credentials in them."""
        found = []
        for name, keys, joined in self.tells:
            values = [str(place) for key, place in said if key in keys]
            if values:
                found.append((name, joined.join(dict.fromkeys(values)) if joined else values[-1]))
        return tuple(found)


PIP = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
INDEX, EXTRA = ("index-url", "default-index"), ("extra-index-url", "index")

CLIENTS: Mapping[str, Client] = MappingProxyType({
    "pip": Client(
        PIP,
        readers.of_pip,
        (("PIP_INDEX_URL", INDEX, ""), ("PIP_EXTRA_INDEX_URL", EXTRA, " "), ("PIP_FIND_LINKS", ("find-links",), " ")),
    ),
    "uv": Client(
        ("/etc/xdg/uv/uv.toml", "/etc/uv/uv.toml", "~/.config/uv/uv.toml"),
        readers.of_uv,
        (("UV_DEFAULT_INDEX", INDEX, ""), ("UV_INDEX", EXTRA, " "), ("UV_FIND_LINKS", ("find-links",), ",")),
    ),
    "npm": Client(
        ("/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc", "~/.npmrc"),
        readers.of_npm,
        (("npm_config_registry", ("registry",), ""),),
    ),
    "cargo": Client(("~/.cargo/config", "~/.cargo/config.toml"), readers.of_cargo),
    "go": Client(
        ("/usr/lib/go/go.env", "/usr/local/go/go.env", "~/.config/go/env"), readers.of_go, (("GOPROXY", ("GOPROXY",), ","),)
    ),
    "maven": Client(("/usr/share/maven/conf/settings.xml", "/etc/maven/settings.xml", "~/.m2/settings.xml"), readers.of_maven),
    "apt": Client(("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"), readers.of_apt),
})  # fmt: skip
