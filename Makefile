# Every command sets up what it needs: `.venv` by uv, from the locked requirements.
PYTHON := .venv/bin/python
UV := $(shell command -v uv || echo .tools/bin/uv)
DEMO_OUT ?= demo
REQUIREMENTS := requirements/cpu.txt
# A local folder of wheels (PIP_FIND_LINKS) if there is one; else uv's own way to torch for CPU.
TORCH := $(if $(PIP_FIND_LINKS),--find-links "$(PIP_FIND_LINKS)",--torch-backend cpu)

SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: setup tools namespaces fmt check test test-fast test-all test-chaos test-python durations test-bridges metrics demo licences bench bench-peers docs lock

setup: .venv/.done

.venv/.done: $(REQUIREMENTS) pyproject.toml
	@echo "installs $$(grep -c '^[a-z].*==' $(REQUIREMENTS)) packages into .venv, about 4 GB: a few minutes without further lines"
	command -v $(UV) >/dev/null || (python3 -m venv .tools && .tools/bin/pip install --quiet uv)
	test -x $(PYTHON) || $(UV) venv --quiet --python 3.11 .venv
	$(UV) pip install --quiet --python $(PYTHON) $(TORCH) --compile-bytecode --no-deps -r $(REQUIREMENTS)
	$(UV) pip install --quiet --python $(PYTHON) --no-deps -e .
	touch $@

# Debian's packages that tests run: a browser for pages, Prometheus for infra/, LibreOffice for old files. Only what is missing is installed.
PROGRAMS := chromium chromedriver promtool soffice
tools:
	@for program in $(PROGRAMS); do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if test -z "$$missing"; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
	  echo "error: \`make test\` needs$$missing; install what is missing so that it is on the PATH, or run \`make test-fast\`" >&2; exit 1; \
	fi; \
	echo "\`make test\` needs$$missing: installing chromium, chromium-driver, prometheus and LibreOffice with apt-get" >&2; \
	$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends chromium chromium-driver prometheus \
	  libreoffice-writer libreoffice-calc libreoffice-impress

# Tests of a full disk mount a small one.
namespaces:
	@unshare --user --map-root-user --mount true 2>/dev/null || echo "warning: this machine allows no user namespaces, so tests of a full disk will fail: \
	set sysctl user.max_user_namespaces; in a container, start it with --security-opt seccomp=unconfined" >&2

# Nine documents of up to 200 K tokens, of which three do not state what is asked; read, scored, and as pages. Then three licence files, read by
# the reader, beside what their packages declare.
demo: setup
	.venv/bin/memagent evaluate make --output $(DEMO_OUT)/suite --typed \
	  --tasks niah_multikey_1 stated absent --lengths 2K 16K 200K --samples 1
	.venv/bin/memagent evaluate run --config tiny --suite $(DEMO_OUT)/suite --output $(DEMO_OUT)/results \
	  --follow-ups.evidence --follow-ups.support
	.venv/bin/memagent page $(DEMO_OUT)/results/runs/overwrite
	.venv/bin/memagent models install reader-135m
	$(PYTHON) pipelines/licence_scan.py $(DEMO_OUT)/licences --packages attrs filelock regex

# What the licence files of the installed packages say, beside what the packages declare.
licences: setup
	.venv/bin/memagent models install reader-135m
	$(PYTHON) pipelines/licence_scan.py $(or $(OUT),licences) --model $(or $(MODEL),reader-135m)

# Two processes; tests that share an engine or a Ray are in one of them (tests/README.md).
PYTEST := $(PYTHON) -m pytest -n 2 --dist loadscope --no-loadscope-reorder
# A process that hangs where no signal reaches it is ended, and says where it was.
HANGS := --max-worker-restart 1 -o faulthandler_timeout=700 -o faulthandler_exit_on_timeout=true
test: tools namespaces setup
	$(PYTEST) $(HANGS) -m "not slow and not gpu"

test-fast: setup
	$(PYTEST) -m "not slow and not gpu and not ray and not vllm and not s3 and not system" --most-seconds 0.2

test-all: tools namespaces setup
	$(PYTEST) -m "not gpu" --hypothesis-profile all

# The parts that need neither vLLM nor torch, on another Python, whose program is OTHER: `make test-python OTHER=python3.13`.
PARTS_WITHOUT_ENGINES := $(addprefix tests/,documents domain ingest policies prompts reading store tokens)
test-python: tools
	$(UV) venv --quiet --clear --python $(OTHER) .venv-other
	$(UV) pip install --quiet --python .venv-other/bin/python -c $(REQUIREMENTS) -e ".[convert,dev,lake,xlsx]"
	PYTHONPATH=$(CURDIR) .venv-other/bin/python -m pytest -n 2 $(PARTS_WITHOUT_ENGINES) -m "not ray and not vllm and not slow and not gpu and not system"

# Whole jobs under faults alone, a part of test-all.
test-chaos: tools namespaces setup
	$(PYTEST) -m slow tests/faults

# Records how long each test takes in tests/durations.json; on a machine that does nothing else.
durations: tools namespaces setup
	$(PYTEST) -m "not gpu" -p tests.durations

# verl, TRL and SkyRL ask for other versions than the project, so they have an environment of their own.
BRIDGES := .venv-bridges/bin/python
test-bridges: .venv-bridges/.done
	PYTHONPATH=. CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 $(BRIDGES) -m pytest --confcutdir=tests/bridges tests/bridges

.venv-bridges/.done: requirements/bridges.txt
	command -v $(UV) >/dev/null || (python3 -m venv .tools && .tools/bin/pip install --quiet uv)
	test -x $(BRIDGES) || $(UV) venv --quiet --python 3.11 .venv-bridges
	$(UV) pip install --quiet --python $(BRIDGES) $(TORCH) --compile-bytecode --no-deps -r requirements/bridges.txt
	touch $@

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

fmt: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

# How large the product is and how many concepts it has.
metrics: setup
	$(PYTHON) tools/metrics.py

# A few minutes' selection; `python -m benchmarks` lists all measurements.
bench: setup
	$(PYTHON) -m benchmarks start --runs 1
	$(PYTHON) -m benchmarks tables --rows 10000 --objects 500 --executors local

bench-peers: setup .venv-peers/.done
	$(PYTHON) -m benchmarks peers

.venv-peers/.done: requirements/peers.txt
	test -x .venv-peers/bin/python || $(UV) venv --quiet --python 3.11 .venv-peers
	$(UV) pip install --quiet --python .venv-peers/bin/python --no-deps -r requirements/peers.txt
	touch $@

docs: setup
	$(PYTHON) -m infra.docs.tables_page
	$(PYTHON) -m infra.docs.settings_page
	$(PYTHON) -m infra.docs.commands_page
	.venv/bin/mkdocs build --strict -f infra/mkdocs.yml

# Versions and hashes. No hash for torch of `+cpu`: it comes from a folder of wheels or from PyTorch's own index, and nothing says that these hold the same file.
COMPILE := $(UV) pip compile --quiet --generate-hashes --python-version 3.11
COMPILE_CPU := $(COMPILE) --excludes requirements/excludes.txt $(TORCH) --no-emit-find-links
lock:
	$(COMPILE_CPU) --extra cpu --extra convert --extra dev --extra lake --extra ocr --extra reader --extra xlsx pyproject.toml -o requirements/cpu.txt
	$(COMPILE) --extra gpu --extra convert --extra lake --extra reader --extra xlsx pyproject.toml -o requirements/gpu.txt
	$(COMPILE_CPU) requirements/bridges.in -o requirements/bridges.txt
	$(COMPILE) requirements/peers.in -o requirements/peers.txt
	sed -i '/^torch==.*+cpu/,/^    #/{/--hash/d;s/ \\$$//}' requirements/cpu.txt requirements/bridges.txt
