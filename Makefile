# Everything that a person or a CI machine runs. `make` alone lists it.
#
# Nothing here needs sudo, and no step is skipped because something is missing: a missing tool ends
# the run and says what to install.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# One step at a time: cargo uses all cores itself, and the output stays readable under `make -j`.
.NOTPARALLEL:

PYTHON ?= python3
export PYTHON

comma := ,
target := $(abspath $(or $(CARGO_TARGET_DIR),target))
venv := $(CURDIR)/.venv
rust_version := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# What the tests run: the command that was just built, and the interpreter that plays foreign peers.
export CHIASM_BIN := $(target)/release/chiasm
export CHIASM_TEST_PYTHON := $(venv)/bin/python

step = @printf '\n==> %(%T)T %s\n' -1 "$(1)"
need = @command -v $(1) >/dev/null || { echo "error: $(1) is missing: $(2)" >&2; exit 1; }

##@ Use

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@printf '\nVariables: PYTHON (%s), CARGO_TARGET_DIR (%s),\n' "$(PYTHON)" "$(target)"
	@printf 'CHIASM_CACHE: where tools are kept between checkouts (~/.cache/chiasm)\n'

.PHONY: setup
setup: rust ## make .venv with the Python packages of the tests (again only when they change)
	$(call step,python environment)
	@scripts/setup-python

.PHONY: vllm
vllm: ## the Python environment with a real vLLM, once, in CHIASM_CACHE (4 GB)
	$(call step,vLLM environment)
	@scripts/setup-vllm

.PHONY: build
build: rust ## build the chiasm command (release)
	$(call step,build (release))
	cargo build --release --locked --package chiasm-cli

.PHONY: wheel
wheel: setup ## build the Python package (release) and install it into .venv
	$(call step,wheel)
	@scripts/build-wheel release

.PHONY: demo
demo: build ## move encoder outputs between processes of this machine and show the result
	$(call step,demo)
	$(CHIASM_BIN) demo

##@ Check

.PHONY: test
test: lint deny test-rust test-python test-nixl test-interop test-vllm test-bench test-e2e ## everything that a CPU can run; what CI runs

.PHONY: test-fast
test-fast: export CHIASM_BIN := $(target)/debug/chiasm
test-fast: two-hosts setup check-tree fmt-check ## the inner loop: no clippy, no docs, no deny, no slow tests
	$(call step,Rust tests)
	cargo test --workspace --locked
	$(call step,build (debug))
	cargo build --locked --package chiasm-cli
	$(call step,wheel (debug))
	@scripts/build-wheel dev
	$(call step,Python tests that are not slow)
	$(venv)/bin/pytest -m 'not slow'

.PHONY: test-rust
test-rust: setup ## Rust tests, with those in the documentation
	$(call step,Rust tests)
	cargo test --workspace --locked

.PHONY: test-python
test-python: two-hosts setup build wheel ## pytest: the command from outside, foreign peers, the tree
	$(call step,Python tests)
	$(venv)/bin/pytest

.PHONY: test-nixl
test-nixl: setup vllm build ## the NIXL helper processes against foreign NIXL agents
	$(call step,NIXL helper processes)
	cargo build --locked --package chiasm-nixl --example drive
	CHIASM_NIXL_DRIVE=$(target)/debug/examples/drive $(venv)/bin/pytest tests/interop/nixl

.PHONY: test-vllm
test-vllm: setup vllm wheel ## the plug-in against vLLM's own classes, without a model
	$(call step,the plug-in and vLLM's classes)
	"$$(scripts/setup-vllm --path)/bin/python" scripts/pytest_vllm.py tests/vllm

# The package for another interpreter than that of .venv, which must not see the packages there.
.PHONY: test-e2e
test-e2e: export CHIASM_TEST_SITE := $(target)/site
test-e2e: setup vllm build wheel ## real engines on the CPU: producers, consumers, faults, ports
	$(call step,real engines)
	rm -rf $(CHIASM_TEST_SITE)
	$(venv)/bin/python -m zipfile -e $(target)/wheels/release/chiasm-*.whl $(CHIASM_TEST_SITE)
	$(venv)/bin/pytest tests/e2e

.PHONY: test-interop
test-interop: export CHIASM_BIN := $(target)/debug/chiasm
test-interop: export CHIASM_INTEROP := 1
test-interop: setup vllm ## upstream's unmodified classes against chiasm, both directions, over real NIXL
	$(call step,upstream's classes)
	cargo build --locked --package chiasm-cli
	$(venv)/bin/pytest tests/interop/upstream

.PHONY: test-bench
test-bench: export CHIASM_BENCH := $(target)
test-bench: bench-programs ## every family of the benchmark, with next to no work: that it runs, not how fast
	$(call step,drivers of the benchmark)
	$(venv)/bin/pytest tests/bench

SEEDS ?= 10000
FIRST ?= 0

.PHONY: soak
soak: build ## by hand: many simulated fleets (SEEDS=10000 FIRST=0)
	$(call step,commit $(shell git rev-parse --short HEAD)$(comma) $(SEEDS) seeds from $(FIRST))
	$(CHIASM_BIN) sim run --seeds $(SEEDS) --first $(FIRST) --tally

.PHONY: lint
lint: setup check-tree fmt-check clippy doc lint-python ## everything that only reads the code

.PHONY: check-tree
check-tree: ## files too long, placeholders, things that were never meant to be committed
	$(call step,tree)
	scripts/check-tree

.PHONY: fmt-check
fmt-check: rust
	$(call step,format of the Rust code)
	cargo fmt --all --check

.PHONY: clippy
clippy: rust
	$(call step,clippy)
	cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: doc
doc: rust
	$(call step,documentation)
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked

.PHONY: lint-python
lint-python: setup
	$(call step,format$(comma) lints and types of the Python code)
	$(venv)/bin/ruff format --check
	$(venv)/bin/ruff check
	$(venv)/bin/mypy

.PHONY: deny
deny: rust ## licences, sources and duplicates of every dependency
	$(call step,dependencies)
	scripts/cargo-deny

##@ Measure

bench_site := $(target)/bench-site
bench = $(venv)/bin/python -m bench.run --chiasm $(target)/release/chiasm --site $(bench_site) \
  --drive $(target)/release/examples/drive --vllm "$$(scripts/setup-vllm --path)/bin/python"

# What is measured besides the command. vLLM's interpreter finds the package beside its own.
.PHONY: bench-programs
bench-programs: setup vllm build wheel
	cargo build --release --locked --package chiasm-nixl --example drive
	rm -rf $(bench_site)
	$(venv)/bin/python -m zipfile -e $(target)/wheels/release/chiasm-*.whl $(bench_site)

.PHONY: bench
bench: bench-programs ## Chiasm beside upstream's classes: half an hour, bench/results (alone on the machine)
	$(call step,benchmark)
	$(bench)

.PHONY: bench-quick
bench-quick: bench-programs ## the same in under three minutes: the order of things, not the figures
	$(call step,benchmark (quick))
	$(bench) --effort quick

##@ Change

.PHONY: fmt
fmt: setup ## format Rust and Python
	cargo fmt --all
	$(venv)/bin/ruff check --fix
	$(venv)/bin/ruff format

.PHONY: clean
clean: ## remove what make made here (not the tools in CHIASM_CACHE)
	rm -rf $(target) $(venv) .pytest_cache .ruff_cache .mypy_cache
	find tests scripts python -name __pycache__ -type d -prune -exec rm -rf {} +

# Tests join two network namespaces, as hosts, by a wire.
.PHONY: two-hosts
two-hosts:
	$(call need,ip,apt install iproute2)

# Everything that building needs; the lints need two components of Rust more.
.PHONY: rust
rust:
	$(call need,cargo,install Rust $(rust_version) or later with rustup$(comma) with clippy and rustfmt)
	$(call need,cc,apt install gcc libc6-dev)
