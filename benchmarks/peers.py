"""llama.cpp beside us: the same file, the same prompts, through its C interface and its server."""

import ctypes
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from kernels.config import ModelConfig
from tests.pipeline.brokers import free_port

_BATCH = 2048  # tokens: the longest prompt timed here in one go
PLACES = 16  # of its server: it is fastest there, by benchmarks.engine


class LlamaCpp:
    """One context of llama.cpp, many sequences in one batch, greedy.

    Raises ImportError where llama-cpp-python is not installed (the `bench` extra).
    """

    def __init__(self, path: Path, *, threads: int, flash: bool) -> None:
        import llama_cpp

        self._c: Any = llama_cpp
        self._threads, self._flash = threads, flash
        self._c.llama_log_set(_silent, None)
        self._c.llama_backend_init()
        model = self._c.llama_model_default_params()
        model.n_gpu_layers = 0
        self._model = self._c.llama_model_load_from_file(str(path).encode(), model)
        self._vocabulary = self._c.llama_vocab_n_tokens(self._c.llama_model_get_vocab(self._model))
        self._batch = self._c.llama_batch_init(_BATCH, 0, 1)
        self._context: Any = None

    def prefill(self, prompt: list[int]) -> float:
        """Seconds for one prompt."""
        with self._open(1, len(prompt) + 64):
            begun = time.perf_counter()
            self._run([(token, k, 0, k == len(prompt) - 1) for k, token in enumerate(prompt)])
            self._best(-1)
            return time.perf_counter() - begun

    def decode(self, prompts: list[list[int]], tokens: int) -> float:
        """Seconds for `tokens` steps of all prompts together, behind their prefill."""
        with self._open(len(prompts), max(map(len, prompts)) + tokens + 64):
            last = []
            for s, prompt in enumerate(prompts):
                self._run([(token, k, s, k == len(prompt) - 1) for k, token in enumerate(prompt)])
                last.append(self._best(-1))
            begun = time.perf_counter()
            for step in range(tokens):
                self._run([(last[s], len(p) + step, s, True) for s, p in enumerate(prompts)])
                last = [self._best(s) for s in range(len(prompts))]
            return time.perf_counter() - begun

    def close(self) -> None:
        self._c.llama_batch_free(self._batch)
        self._c.llama_model_free(self._model)

    @contextmanager
    def _open(self, streams: int, length: int) -> Iterator[None]:
        """A context as large as the run needs: a larger one is slower."""
        params = self._c.llama_context_default_params()
        params.n_ctx = length * streams
        params.n_batch = params.n_ubatch = _BATCH
        params.n_seq_max = streams
        params.n_threads = params.n_threads_batch = self._threads
        if hasattr(params, "flash_attn_type"):
            params.flash_attn_type = int(self._flash)
        else:
            params.flash_attn = self._flash
        self._context = self._c.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp made no context of {streams} times {length} tokens")
        try:
            self._run([(1, 0, 0, True)])  # the first run also pays for buffers
            self._c.llama_memory_clear(self._c.llama_get_memory(self._context), True)
            yield
        finally:
            self._c.llama_free(self._context)

    def _run(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """One batch of (token, position, sequence, wants logits)."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = wanted
        if self._c.llama_decode(self._context, batch):
            raise RuntimeError(f"llama.cpp could not run a batch of {len(rows)} tokens")

    def _best(self, row: int) -> int:
        address = self._c.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(address, (self._vocabulary,)).argmax())


def products(config: ModelConfig, rows: int, steps: int, threads: int) -> float:
    """Seconds for nothing but a model's matrix products, as torch does them in bf16: a limit."""
    dim, mixed = config.dim, config.heads * config.head_dim
    layer = [
        (dim, mixed + 2 * config.kv_heads * config.head_dim),
        (mixed, dim),
        (dim, 2 * config.hidden),
        (config.hidden, dim),
    ]
    pairs = [
        (torch.ones(rows, k, dtype=torch.bfloat16), torch.ones(n, k, dtype=torch.bfloat16))
        for k, n in [*layer * config.layers, (dim, config.vocab_size)]
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        begun = time.perf_counter()  # of one step: without bf16 instructions that is long enough
        for x, weight in pairs:
            torch.nn.functional.linear(x, weight)
        return steps * (time.perf_counter() - begun)
    finally:
        torch.set_num_threads(before)


def _log(level: int, text: bytes, data: object) -> None:
    """llama.cpp's words would stand between the table's rows."""


_silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_log)


@contextmanager
def llama_server(binary: Path, model: Path, threads: int, length: int) -> Iterator[str]:
    """The URL of llama.cpp's server, ready for requests of `length` tokens.

    Raises RuntimeError where it does not become ready.
    """
    port = free_port()
    options = {"-m": model, "-t": threads, "-c": PLACES * length, "-np": PLACES, "--port": port}
    command = [str(binary), *(str(part) for pair in options.items() for part in pair)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*command, "--no-webui"], stdout=quiet, stderr=quiet)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while not _is_ready(url):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{' '.join(command)} did not become ready")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
