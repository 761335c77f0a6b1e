"""Hosts that this machine's own settings of package clients name, as rules: `network.presets: [pip]`.

Only fixed files of the user and the system are read, by readers of our own: never one in a folder that a box can write or of the
workspace, and no client is started. Of a setting only scheme, host, port and path are taken. Credentials are left out, and what is
left out, cannot be read or is not understood is a note that `explain` shows. A client whose settings name nothing opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringfence.policy.network import HostRule
from ringfence.policy.presets.clients import CLIENTS
from ringfence.policy.presets.files import Unread, read
from ringfence.policy.presets.readers import Found
from ringfence.policy.presets.urls import NotUsed, Place, place
from ringfence.values import field, frozen

MAX_PLACES = 64
"""Hosts of one client; more are a note, and not opened."""


@frozen
class Preset:
    """What the settings of one client came to. variables: those by which a client in the box is told where its packages are."""

    rules: tuple[HostRule, ...]
    variables: tuple[tuple[str, str], ...] = field(default=())
    notes: tuple[str, ...] = ()


def preset(client: str, home: str, writable: Iterable[str]) -> Preset:
    """The hosts that a client's settings name. home: the caller's. writable: folders that boxes can write, and the workspace."""
    looked = CLIENTS[client]
    roots, notes = tuple(writable), []
    places: dict[Place, str] = {}
    settings: list[tuple[str, Place]] = []
    credentials: dict[str, None] = {}
    for path in looked.files(home):
        try:
            text = read(path, roots)
        except Unread as error:
            notes.append(f"{path} is not read: {error}")
            continue
        if text is None:
            continue
        for found in looked.settings(text):
            _take(found, path, places, settings, credentials, notes)
    if not places:
        notes.append(f"no settings of {client} here name a host that can be taken; name it in network.allow")
    notes += [f"credentials in {path} are left out" for path in credentials]
    if len(places) > MAX_PLACES:
        notes.append(f"of {len(places)} places only the first {MAX_PLACES} are opened")
    rules = tuple(_rule(client, each) for each in list(places)[:MAX_PLACES])
    said = tuple(f"preset {client}: {note}." for note in dict.fromkeys(notes))
    return Preset(tuple(dict.fromkeys(rules)), looked.variables(settings), said)


def _take(
    found: Found,
    path: str,
    places: dict[Place, str],
    settings: list[tuple[str, Place]],
    credentials: dict[str, None],
    notes: list[str],
) -> None:
    """Note one setting of a file: a place, credentials, or what is wrong with it."""
    if found.credential:
        credentials[path] = None
    if found.problem:
        notes.append(f"in {path} {found.problem}")
    if not found.url:
        return
    try:
        where = place(found.url)
    except NotUsed as error:
        notes.append(f"{found.key} in {path} is not used: {error}")
        return
    if where.credential:
        credentials[path] = None
    places.setdefault(where, path)
    settings.append((found.key, where))


def _rule(client: str, where: Place) -> HostRule:
    host, address = (where.host.text, "") if where.is_name else ("", where.network)
    return HostRule(f"network.presets: {client}, {where}", host, address, (where.port,), schemes=(where.carries,))
