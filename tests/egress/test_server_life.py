"""The server's own life: a worker that is killed, a caller that is, its forks; rules that change, questions, bounds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest

from egress.outside import allow, echo, inside, listen, named, read_all, server, tasks_below, until, worker_pid
from ringfence.errors import HostError
from ringfence.policy.network import NetworkPolicy
from ringfence.process import egress
from ringfence.values import replace

SITE, OTHER = "files.example.org", "other.example.org"
HOSTS = f"127.0.0.1 {SITE} {OTHER}\n"


def test_a_killed_worker_costs_its_connections_and_no_decision_and_is_told() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port), (1, port)], HOSTS))
        client = stack.enter_context(box.connect(0, port))
        client.sendall(b"before")
        assert client.recv(100) == b"before"
        killed = worker_pid()
        os.kill(killed, signal.SIGKILL)
        assert read_all(client) in (b"", b"<reset>")
        with box.connect(0, port) as again:  # it waits in the queue of the listener until the next worker takes it
            again.sendall(b"after")
            assert again.recv(100) == b"after"
        box.wait_for(op="restarted")
        assert worker_pid() != killed
        assert box.resets(1, port)


def test_a_worker_knows_the_names_and_answers_of_the_one_before_it() -> None:
    from ringfence.egress import queries

    with ExitStack() as stack:
        box = stack.enter_context(inside(NetworkPolicy(on_unknown="ask"), hosts=HOSTS))
        client = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        client.settimeout(5)
        client.connect(box.dns)

        def ask(name: str) -> tuple[str, ...]:
            client.send(queries.query(name, queries.A, 7))
            return queries.read(client.recv(4096), name, queries.A, 7).addresses

        first = [ask(name) for name in ("a.example", "b.example", "c.example")]
        os.kill(worker_pid(), signal.SIGKILL)
        box.wait_for(op="restarted")
        assert [ask(name) for name in ("c.example", "b.example", "a.example")] == first[::-1]
        assert ask("d.example") not in first


def test_a_server_that_is_killed_takes_its_worker_along_and_the_next_box_has_another() -> None:
    with inside(allow(named(SITE, 1))):
        found, worker = egress.current().pid, worker_pid()
        os.kill(found, signal.SIGKILL)
        os.waitpid(found, 0)
        until(lambda: not os.path.exists(f"/proc/{worker}"))
    with inside(allow(named(SITE, 1))) as box:
        assert egress.current().pid != found
        assert box.records() == []


CALLER = """
import socket, sys, time
from ringfence.process import egress
from ringfence.policy.network import NetworkPolicy, HostRule
listener = socket.create_server(("127.198.0.1", 0))
made = egress.current().register(NetworkPolicy(default="allow"), {"proxy": listener.fileno()})
print(egress.current().pid, flush=True)
time.sleep(60)
"""


def test_when_the_caller_is_killed_all_of_it_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", CALLER], stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None
        supervisor = int(caller.stdout.readline())
        pids = [supervisor, *tasks_below(supervisor)]
        assert len(pids) == 2
        caller.kill()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_a_fork_of_the_caller_does_not_keep_the_server() -> None:
    egress.shut_down()
    with inside(allow(named(SITE, 1))):
        found = egress.current().pid
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)
            os._exit(0)
        os.close(ready)
    egress.shut_down()  # waits for its end
    assert not os.path.exists(f"/proc/{found}")
    os.close(go)
    os.waitpid(child, 0)


def test_rules_of_a_live_box_change_what_may_begin_and_break_what_goes_on() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        policy = allow(named(SITE, port), ports=[port])
        box = stack.enter_context(inside(policy, [(0, port)], HOSTS))
        kept = stack.enter_context(box.connect(0, port))
        kept.sendall(b"a")
        assert kept.recv(1) == b"a"
        box.registration.set_rules(replace(box.policy, deny=(named(OTHER),)))
        with box.connect(0, port) as client:
            client.sendall(b"b")
            assert client.recv(1) == b"b"
        kept.sendall(b"c")
        assert kept.recv(1) == b"c"
        box.registration.set_rules(replace(box.policy, deny=(named(SITE),)))
        assert read_all(kept) == b"<reset>"
        assert box.resets(0, port)


def test_an_unknown_name_is_held_until_somebody_answers_and_is_one_question() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        policy = replace(allow(ports=[port]), on_unknown="ask")
        box = stack.enter_context(inside(policy, hosts=HOSTS))

        def opened(host: str, told: list[bytes]) -> None:
            with box.to_proxy() as client:
                client.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                told.append(client.recv(4096)[9:12])

        def asked(host: str, allowed: bool, until_when: str) -> list[bytes]:
            told: list[bytes] = []
            threads = [threading.Thread(target=opened, args=(host, told)) for _ in range(3)]
            for thread in threads:
                thread.start()
            question = box.wait_for(op="ask", host=host)
            box.registration.answer(question["question"], allow=allowed, until=until_when, host=host, port=port)
            for thread in threads:
                thread.join()
            return told

        until_all_wait = asked(SITE, True, "box")
        assert until_all_wait == [b"200"] * 3
        assert asked(OTHER, False, "box") == [b"403"] * 3
        assert [each["host"] for each in box.records() if each["op"] == "ask"] == [SITE, OTHER]
        os.kill(worker_pid(), signal.SIGKILL)  # what holds for the life of the box holds in the next worker too
        box.wait_for(op="restarted")
        told: list[bytes] = []
        opened(SITE, told)
        opened(OTHER, told)
        assert told == [b"200", b"403"]


def test_a_question_that_nobody_answers_is_a_refusal() -> None:
    with inside(NetworkPolicy(on_unknown="ask"), hosts=HOSTS, ask_seconds=0.2) as box, box.to_proxy() as client:
        client.sendall(f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\n\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 403")
        assert "nobody answered" in box.wait_for(op="decision")["why"]


def test_the_end_of_a_box_breaks_what_it_has_open() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], HOSTS))
        client = stack.enter_context(box.connect(0, port))
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        box.registration.end()
        assert read_all(client) == b"<reset>"


def test_more_boxes_than_there_are_descriptors_for_are_refused_with_the_reason() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(listen("127.198.0.1"))
        listeners = {f"transparent.{at}": listener.fileno() for at in range(200)}

        def fill() -> None:
            for _ in range(2000):
                made = egress.current().register(NetworkPolicy(default="allow"), listeners)
                stack.callback(made.end)

        with pytest.raises(HostError, match="descriptor"):
            fill()


def test_a_descriptor_that_is_no_socket_costs_nobody_else_anything() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], HOSTS))
        before = worker_pid()
        with open("/dev/null") as file, pytest.raises(HostError, match="non-socket"):
            egress.current().register(NetworkPolicy(default="allow"), {"proxy": file.fileno()})
        with box.connect(0, port) as client:
            client.sendall(b"a")
            assert client.recv(1) == b"a"
        assert worker_pid() == before
