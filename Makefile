# `make up` and `make test` set up everything they need; the rest is for people who work on Headrace.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The CPU build of torch is enough for everything here; where pip would take CUDA's, see the README.
TORCH_INDEX ?=
# of `make simulate`
SEEDS ?= 0-9999
JOBS  ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
export HEADRACE_HOME ?= $(CURDIR)/.headrace

.PHONY: up down test kill-embedded soak-embedded exactness check simulate mutants bench bench-engine clean install install-test chaos bad-input

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "installing Headrace into $(VENV) (about 300 MB to download the first time; the model is 98 MB more)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) 'torch~=2.13.0' >&2
	@$(BIN)/python -m pip install --progress-bar on --quiet -e '.[embedded]' >&2
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "installing the test tools" >&2
	@$(BIN)/python -m pip install --quiet -e '.[embedded,test]' >&2
	@touch $@

install: $(VENV)/.installed
install-test: $(VENV)/.installed-test

up: $(VENV)/.installed
	@$(BIN)/headrace models pull smollm2-135m
	@$(BIN)/headrace up --detach
	@echo; echo '> What is the capital of Japan?'; echo
	@$(BIN)/headrace run --temperature 0 --max-tokens 48 'What is the capital of Japan?'
	@$(BIN)/python -m pipeline.cli.hints

down:
	@$(BIN)/headrace down || test $$? -eq 3

test: $(VENV)/.installed-test
	@HEADRACE_HOME=$(CURDIR)/.headrace $(BIN)/headrace models pull smollm2-135m
	@$(BIN)/python -m pytest --durations=10 --rerun-show-tracebacks

exactness: $(VENV)/.installed-test
	@HEADRACE_HOME=$(CURDIR)/.headrace $(BIN)/headrace models pull smollm2-135m
	@$(BIN)/python -m tests.workers.exactness --prompts 200

check: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy schemas pipeline stages workers kernels
	@$(BIN)/lint-imports

kill-embedded: $(VENV)/.installed-test
	@$(BIN)/python -m tests.pipeline.embedded.kill --times 200

soak-embedded: $(VENV)/.installed-test
	@$(BIN)/python -m tests.pipeline.embedded.soak --minutes 20

simulate: $(VENV)/.installed
	@$(BIN)/headrace simulate --seeds $(SEEDS) --jobs $(JOBS)

mutants: $(VENV)/.installed-test
	@$(BIN)/python -m tests.simulation.mutants --jobs $(JOBS)

# Every fault on real processes and brokers, about an hour; KAFKA_HOME names Apache Kafka's launcher.
# Less of it: `make chaos CHAOS="--broker embedded --faults worker"`.
chaos: $(VENV)/.installed-test
	@HEADRACE_HOME=$(CURDIR)/.headrace $(BIN)/headrace models pull smollm2-135m
	@$(BIN)/python -m tests.chaos $(CHAOS)

# A thousand records that nobody can read on each topic that owes an answer, among ten thousand good ones.
bad-input: $(VENV)/.installed-test
	@$(BIN)/python -m tests.flow.flood $(BAD)

bench: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks.pipeline
	@$(BIN)/python -m benchmarks.embedded

# llama.cpp's library comes with the bench extra, its server only with the source: both are built here
# once, some 240 files each. Where that cannot be (no compiler), our own figures stand alone.
LLAMA := $(HEADRACE_HOME)/llama.cpp
$(LLAMA)/bin/llama-server:
	@mkdir -p $(LLAMA)/source
	@$(BIN)/python -m pip download --quiet --no-deps --no-binary llama-cpp-python \
		--dest $(LLAMA) llama-cpp-python >&2
	@tar -xzf $(LLAMA)/llama_cpp_python-*.tar.gz -C $(LLAMA)/source --strip-components 1
	@$(BIN)/cmake -S $(LLAMA)/source/vendor/llama.cpp -B $(LLAMA) -DCMAKE_BUILD_TYPE=Release \
		-DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
		-DLLAMA_BUILD_UI=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF >&2
	@$(BIN)/cmake --build $(LLAMA) --target llama-server --parallel $(JOBS) >&2

bench-engine: $(VENV)/.installed-test
	@HEADRACE_HOME=$(CURDIR)/.headrace $(BIN)/headrace models pull smollm2-135m
	@$(BIN)/python -m pip install --quiet -e '.[bench]' >&2 || echo "no llama.cpp: see above" >&2
	@$(MAKE) --no-print-directory $(LLAMA)/bin/llama-server || echo "no server of llama.cpp: see above" >&2
	@$(BIN)/python -m benchmarks.engine
	@$(BIN)/python -m benchmarks.traffic --llama-server $(LLAMA)/bin/llama-server
	@$(BIN)/python -m benchmarks.step

clean:
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache
