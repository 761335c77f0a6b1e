"""What browsers need of a box with a way out: no imitation of an encrypted client hello, which cannot be told from one."""

from __future__ import annotations

import pytest

from egress.inside import opened, said
from ringfence.sync import Sandbox

FILES = ["/etc/chromium/policies/managed/ringfence.json", "/etc/opt/chrome/policies/managed/ringfence.json"]
READ = f"""
found = []
for path in {FILES}:
    try:
        with open(path) as file: found.append(json.load(file))
    except FileNotFoundError:
        found.append(None)
print(json.dumps(found))
"""


@pytest.mark.live("namespaces")
def test_chromium_is_told_to_send_no_encrypted_hello_where_there_is_a_way_out() -> None:
    with opened() as (box, _):
        assert said(box, READ) == [{"EncryptedClientHelloEnabled": False}] * 2
    with Sandbox() as box:  # the control
        assert said(box, READ) == [None, None]
