"""How a program with a model begins and ends: nothing may be left of it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from penstock import LLM, AsyncEngineArgs, AsyncLLM, RequestOutputKind, SamplingParams
from penstock.bench.programs.children import free_port
from tests.e2e.server import serve_group
from tests.eventually import until
from tests.offline.small_model import LONG, MODEL, PROMPTS, SMALL, counted, noting_shared, shards, wait_for
from tests.processes import is_alive

pytestmark = pytest.mark.slow

BEGINNING = f"""
import sys
from penstock import LLM, SamplingParams
assert not {{"torch", "numpy"}} & set(sys.modules)
llm = LLM({MODEL!r}, kv_memory="16MiB", threads=1)
print(llm.generate("def f(", SamplingParams(max_tokens=4), use_tqdm=False)[0].outputs[0].text, flush=True)
assert not {{"torch", "numpy"}} & set(sys.modules), "torch was imported"
"""
"""Of a program without `if __name__ == "__main__"`."""
LIVE = BEGINNING + """
print("ready", flush=True)
llm.generate(["def f("] * 8, SamplingParams(max_tokens=1900, ignore_eos=True))
llm.generate(["def f("] * 800, SamplingParams(max_tokens=1900, ignore_eos=True))
"""


@contextmanager
def program(source: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs a program whose temporary files are in `folder`, and sees that its end leaves nothing behind."""
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, "TMPDIR": str(folder)})
    with process:
        try:
            yield process
        finally:
            process.kill()


def of_folder(folder: Path) -> list[psutil.Process]:
    """The processes that have `folder` for their temporary files, as a program's shards have, whoever is their
    parent."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.environ().get("TMPDIR") == str(folder) and is_alive(each):
                found.append(each)
        except psutil.Error:
            continue
    return found


async def until_nothing_is_left(folder: Path) -> None:
    await until(lambda: not of_folder(folder) and not os.listdir(folder), seconds=60)


@pytest.mark.parametrize(("end", "status"), [
    ("", 0), ("llm.close()", 0), ("raise ValueError('mine')", 1), ("import sys; sys.exit(5)", 5),
    ("del llm; import gc; gc.collect()", 0)], ids=["end", "close", "exception", "exit", "del"])
async def test_nothing_is_left_of_a_program_that_ends(tmp_path: Path, end: str, status: int) -> None:
    with program(f"{BEGINNING}\n{end}", tmp_path) as process:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == status, errors
        assert not errors or "mine" in errors
        assert not of_folder(tmp_path)
        assert not os.listdir(tmp_path)


@pytest.mark.parametrize("how", ["threading.Thread(target=ask).start()", "atexit.register(ask)"])
async def test_a_thread_and_an_exit_function_may_ask_after_the_main_threads_end(tmp_path: Path, how: str) -> None:
    source = f"""{BEGINNING}
import atexit, threading
from penstock import StructuredOutputsParams

def ask():
    threading.main_thread().join() if threading.current_thread() is not threading.main_thread() else None
    params = SamplingParams(max_tokens=4, structured_outputs=StructuredOutputsParams(choice=["yes", "no"]))
    print("asked:", llm.chat([{{"role": "user", "content": "Hi"}}], params, use_tqdm=False)[0].outputs[0].text)

{how}
"""
    with program(source, tmp_path) as process:
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
        assert output.splitlines()[-1] in ("asked: yes", "asked: no")
        assert not of_folder(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_nothing_is_left_of_a_program_that_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    with program(LIVE, tmp_path) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        process.send_signal(number)
        process.wait(30)
        assert process.returncode == -number
        await until_nothing_is_left(tmp_path)


async def test_ctrl_c_ends_a_program_that_loads(tmp_path: Path) -> None:
    with program(BEGINNING, tmp_path) as process:
        await until(lambda: len(of_folder(tmp_path)) > 1, seconds=60)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert "KeyboardInterrupt" in errors
        await until_nothing_is_left(tmp_path)


@pytest.fixture(autouse=True)
def _note_shared() -> Iterator[None]:
    yield from noting_shared()


def test_ctrl_c_leaves_a_model_that_answers() -> None:
    with LLM(MODEL, **SMALL) as llm:
        def interrupt() -> None:
            wait_for(lambda: counted(llm, "tgi_batch_current_size") > 0)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS * 100, LONG, use_tqdm=False)
        assert len(llm.generate(PROMPTS[:2], LONG, use_tqdm=False)) == 2


def test_models_one_after_the_other_and_at_once() -> None:
    threads = threading.active_count()
    texts = set()
    for _ in range(2):
        with LLM(MODEL, **SMALL) as first, LLM(MODEL, **SMALL) as second:
            for llm in (first, second):
                texts.add(llm.generate(PROMPTS[0], LONG, use_tqdm=False)[0].outputs[0].text)
        with pytest.raises(RuntimeError, match="the LLM is closed"):
            first.generate("a")
    assert len(texts) == 1
    assert not shards()
    assert threading.active_count() <= threads + 2, threading.enumerate()  # gRPC's and tqdm's own


@pytest.mark.parametrize(("arguments", "kind", "sentence"), [
    ({"model": "/nowhere"}, ValueError, "`model`: there is no directory /nowhere"),
    ({"max_model_len": 10**6}, ValueError, "`max_model_len` must be <= the model's context of"),
    ({"kv_memory": 1}, ValueError, "1 byte"),
])
def test_a_model_that_can_not_be_started(
    arguments: dict[str, object], kind: type[Exception], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind, match=f"(?i){sentence}"):
        LLM(**{"model": MODEL, **SMALL, **arguments})  # type: ignore[arg-type]
    assert not shards()


def test_groups_that_run_elsewhere(tmp_path: Path) -> None:
    port = free_port()
    group = serve_group(tmp_path, "--threads", "1", "--kv-memory", "16MiB", port=port)
    with group, LLM(MODEL, groups=f"127.0.0.1:{port}") as llm:
        assert not shards()
        elsewhere = llm.generate(PROMPTS, LONG, use_tqdm=False)
    with LLM(MODEL, **SMALL, tensor_parallel_size=2) as llm:
        assert len(shards()) == 2
        assert [each.outputs for each in llm.generate(PROMPTS, LONG, use_tqdm=False)] == [
            each.outputs for each in elsewhere]


async def test_streams() -> None:
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    async with AsyncLLM(MODEL, **SMALL) as llm:
        async def ask(prompt: str) -> list[str]:
            return [output.outputs[0].text async for output in llm.generate(prompt, params)]

        answers = await asyncio.gather(*map(ask, PROMPTS))
        for texts in answers:
            assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
            assert len(texts) > 1
        for kind in (RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY):
            params.output_kind = kind
            parts = await ask(PROMPTS[0])
            assert "".join(parts) == answers[0][-1]
            assert (len(parts) == 1) == (kind is RequestOutputKind.FINAL_ONLY)
        params.output_kind = RequestOutputKind.CUMULATIVE
        async for output in llm.generate(PROMPTS[0], params, "mine"):
            if len(output.outputs[0].token_ids) > 2:
                await llm.abort("mine")
        assert (output.finished, output.outputs[0].finish_reason) == (True, "abort")
        with pytest.raises(ValueError, match="`top_p` must be"):
            await anext(llm.generate("a", SamplingParams(top_p=2.0)))
        stream = llm.generate(PROMPTS[0], params)
        await anext(stream)
        await stream.aclose()
        assert counted(llm, "tgi_request_count") == len(PROMPTS) + 5
    with pytest.raises(RuntimeError, match="the LLM is closed"):
        await anext(llm.generate("a"))


async def test_a_model_that_is_made_of_arguments_and_loaded_by_the_first_answer() -> None:
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(MODEL, **SMALL))
    try:
        with pytest.raises(RuntimeError, match="the model is not loaded yet: enter the `async with` first"):
            llm.get_tokenizer()
        outputs = [output async for output in llm.generate("a", SamplingParams(), request_id="1")]
        assert outputs[-1].finished
        assert llm.get_tokenizer().encode("a") == outputs[-1].prompt_token_ids
    finally:
        llm.shutdown()
    assert not shards()
    with pytest.raises(RuntimeError, match="the LLM is closed"):
        llm.get_tokenizer()
