"""Spans of boxes and runs, as the SDK of OpenTelemetry exports them."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import ringfence
from ringfence import errors, sync
from ringfence.sync import SandboxConfig
from ringfence.trace import Trace
from ringfence.trace.reader import Reader
from ringfence.trace.spans import Spans

pytestmark = pytest.mark.live("namespaces")

Made = tuple[TracerProvider, InMemorySpanExporter]


@pytest.fixture
def made() -> Made:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def test_a_run_is_a_tool_execution_below_the_agents_own_span_and_linked_to_its_box(made: Made, workspace: Path) -> None:
    provider, exporter = made
    tracer = provider.get_tracer("agent")
    config = SandboxConfig(workspace=workspace, environment={"APP_TOKEN": "s3cr3t-value"})
    with sync.Sandbox(config, trace=Spans(tracer)) as box, tracer.start_as_current_span("invoke_agent") as agent:
        box.run(["sh", "-c", "exit 3"])
        box.execute("print(1)")
    failed, program, _, of_box = exporter.get_finished_spans()
    assert (failed.name, program.name, of_box.name) == ("execute_tool run", "execute_tool execute", "create_box")
    assert dict(failed.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "run",
        "gen_ai.tool.type": "function",
        "ringfence.tier": "namespaces",
        "process.exit.code": 3,
        "error.type": "exit_3",
    }
    assert failed.status.status_code is StatusCode.ERROR and program.status.status_code is StatusCode.UNSET
    assert failed.parent is not None and failed.parent.span_id == agent.get_span_context().span_id
    assert failed.links[0].context.span_id == of_box.get_span_context().span_id
    assert failed.start_time is not None and of_box.start_time is not None and of_box.start_time < failed.start_time
    assert "s3cr3t" not in "".join(span.to_json() for span in exporter.get_finished_spans())


async def test_without_a_span_of_the_caller_a_run_is_below_its_box(made: Made) -> None:
    provider, exporter = made
    async with ringfence.Sandbox(trace=Spans(provider.get_tracer("x"))) as box:
        await box.execute_command("true")
        with pytest.raises(errors.OutsideError):
            await box.run(["true"], cwd="/etc")
    run, wrong, of_box = exporter.get_finished_spans()
    assert run.parent is not None and run.parent.span_id == of_box.get_span_context().span_id
    assert dict(wrong.attributes or {})["error.type"] == "path-outside"


def test_a_trace_beside_it_has_all_that_it_has_alone(made: Made, path: str) -> None:
    with Trace() as trace, sync.Sandbox(trace=Spans(made[0].get_tracer("x"), also=trace)) as box:
        box.run(["echo", "x"])
        box.run(["false"])
    with Reader(path) as reader:
        rows = list(reader.rows())
        assert [(row.kind, row.about) for row in rows] == [
            ("trace", 0), ("box", 0), ("run", 2), ("end", 3), ("run", 2), ("end", 5), ("gone", 2),
        ]  # fmt: skip


def test_a_box_without_the_extra_in_use_loads_none_of_it() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from ringfence.sync import Sandbox; from ringfence.trace import Trace\n"
        "with Trace() as trace, Sandbox(trace=trace) as box: box.run(['true'])\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
