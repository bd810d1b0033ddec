# The two commands to know: `make run` and `make test`. Each installs what is missing (as root, on Debian and its
# relatives) or says what to install.

CARGO ?= cargo
export CARGO_TARGET_DIR = $(CURDIR)/target
# Where scripts/setup puts tools that the system does not have.
export PATH := $(CURDIR)/target/tools/bin:$(PATH)
RELEASE = target/$(shell rustc -vV | sed -n 's/^host: //p')/release
DEBUG = $(RELEASE:release=debug)
BIN = $(RELEASE)/sandbox-run

.PHONY: run build install uninstall deb test-deb test-unit sandbox-build sandbox-push test-image test-compose test test-backends test-vm-short test-sandbox test-readme bless lint unit api measured fuzz fuzz-short fuzz-cell coverage bench bench-smoke bench-syscalls bench-load bench-fairness bench-docs chaos chaos-short soak soak-short test-vm setup setup-test setup-deb setup-image setup-fuzz setup-bench setup-vm clean

## Run a Python snippet in a sandbox, show what happened, then serve the same over HTTP until Ctrl-C.
run: build
	$(BIN) --lang python --code 'import platform; print(f"Hello from Python {platform.python_version()} in a sandbox: 2+2 =", 2+2)'
	HTTP_HOST=$${HTTP_HOST:-127.0.0.1} $(RELEASE)/sandbox-server

## Build the programs.
build: setup
	$(CARGO) build --release --locked --bins -p sandbox-cli -p sandbox-server

## Install under PREFIX (below DESTDIR, for packages): programs, completions, manual pages, the service. Needs no root if PREFIX is yours.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
install: build
	packaging/install $(RELEASE) "$(DESTDIR)" "$(PREFIX)" "$(SYSCONFDIR)"

## Remove what `make install` has installed. Settings that were changed, and the server's state, stay.
uninstall:
	packaging/uninstall "$(DESTDIR)" "$(PREFIX)" "$(SYSCONFDIR)"

## Make a Debian package: target/debian/*.deb.
deb: setup-deb build
	rm -rf target/debian
	packaging/install $(RELEASE) "$(CURDIR)/target/debian/root" /usr /etc
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(CARGO) deb --quiet --no-build --no-strip --package sandbox-cli --output target/debian/

## See whether the package works: installed in a fresh Debian, used, and purged.
test-deb: setup-deb deb
	packaging/test-deb target/debian/*.deb

## See whether its service works, under systemd with cgroup v2 in an emulated machine.
test-unit: setup-deb setup-vm deb
	packaging/test-unit target/debian/*.deb

## Build the image of the server (Containerfile.sandbox). BUILD_ARGS holds more options.
IMAGE ?= sandbox-run
ENGINE ?= docker
sandbox-build:
	$(ENGINE) build --file Containerfile.sandbox --tag $(IMAGE) $(BUILD_ARGS) .

## Push it to the registry that its name says.
sandbox-push:
	$(ENGINE) push $(IMAGE)

## See whether the image works, with a Docker engine of the test's own: without privileges, with namespaces, with every layer.
test-image: setup-image build
	packaging/test-image $(RELEASE)

## The same for compose.yaml.
test-compose: setup-image build
	packaging/test-compose $(RELEASE)

## Lints and every test. With TESTS=measured, most tests run with their coverage measured.
TESTS ?= unit
test: setup-test lint $(TESTS) bench-smoke fuzz-short

lint:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	$(CARGO) clippy -p sandbox-jobs -p sandbox-server --no-default-features --locked -- -D warnings
	$(CARGO) clippy -p sandbox-server --no-default-features --features redis --locked -- -D warnings
	$(CARGO) clippy -p sandbox-server --no-default-features --features webhooks --locked -- -D warnings
	$(CARGO) fetch --locked
	$(CARGO) deny --offline --log-level error check licenses bans sources
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked --quiet
	scripts/check-names
	typos

## The server's integration tests alone.
test-sandbox: setup-test
	$(CARGO) test --locked -p sandbox-server --features otlp
	tests/api/run

# Tests that disable layers of isolation need a feature that no release has.
FEATURES = --features sandbox-cli/canary

unit:
	$(CARGO) test --workspace --locked $(FEATURES)
	$(MAKE) api

## Tests of the server that need something else: other features, or the client that tries every documented call.
api:
	$(CARGO) test --locked -p sandbox-server --features otlp --test server otlp
	tests/api/run

## Every test once: measured where that can be, and the others.
measured: coverage
	for name in $(UNMEASURED); do $(CARGO) test --workspace --locked $(FEATURES) -- $$name || exit; done
	$(MAKE) api

## Do what the README says, in a fresh clone: `make run` and every example.
test-readme: setup-test
	scripts/follow-readme

## Write what the commands in the documents print into them, draw the picture in the README, with the programs as they are released, and write the snapshots of help and errors.
bless: setup-test build
	SANDBOX_BLESS=all SANDBOX_PROGRAMS=$(CURDIR)/$(RELEASE) $(CARGO) test --locked -p sandbox-cli --test documents
	PATH=$(CURDIR)/$(RELEASE):$$PATH scripts/record-demo
	INSTA_UPDATE=always $(CARGO) test --locked -p sandbox-cli --test screen
	INSTA_UPDATE=always $(CARGO) test --locked -p sandbox-server --test server screen

## The same programs with every backend: runc, and a Docker engine of the test's own. Writes the table in docs/EVALUATION.md.
test-backends: setup-test
	@command -v dockerd >/dev/null || { echo "please install Docker's engine (Debian: docker.io)" >&2; exit 1; }
	SANDBOX_TEST_DOCKER=1 SANDBOX_BLESS=1 $(CARGO) test --locked -p sandbox-cli --test parity

## Feed everything that reads bytes from outside with what nobody would write, for FUZZ_SECONDS each. FUZZ_TARGETS picks some.
FUZZ_SECONDS ?= 600
fuzz: setup-fuzz
	fuzz/run long $(FUZZ_SECONDS) $(FUZZ_TARGETS)

## The same for a moment.
fuzz-short: setup-fuzz
	fuzz/run short 3 $(FUZZ_TARGETS)

## Call the kernel at random from inside of cells, in a virtual machine that has to stay well, for FUZZ_SECONDS. FUZZ_SEED repeats a run.
fuzz-cell: setup-vm
	VM_TIMEOUT=$$(($(FUZZ_SECONDS) * 3 + 600)) tests/vm/hostile fuzz $(FUZZ_SECONDS) $(FUZZ_SEED)

# Tests that coverage goes without: they take long and cover nothing that others do not, or run the program in a foreign
# root, which cannot hold one with counters, as it is not static.
UNMEASURED = for_an_ordinary_user without_namespaces fifty_hostile a_thousand_jobs in_warm_cells is_true \
	compiled_programs_end_alike an_image_is_the_root_of_a_container_too

# What is not counted: helpers of tests, and the library of zygotes, which runs inside interpreters without counters.
UNCOUNTED = sandbox-testing/* $(addprefix sandbox-zygote/src/,entry.rs node.rs syscall.rs threads.rs)

## Line coverage of the tests; fails below 80 % of all lines or 70 % of a crate's. Counters are relocatable so that forks share them: see the tests' harness.
coverage: setup-test
	@command -v cargo-tarpaulin >/dev/null || $(CARGO) install --locked --quiet cargo-tarpaulin@0.37.5
	RUSTFLAGS="-C llvm-args=-runtime-counter-relocation" $(CARGO) tarpaulin --engine llvm --workspace --locked $(FEATURES) --follow-exec \
		$(UNCOUNTED:%=--exclude-files "crates/%") --target-dir target/coverage --skip-clean --timeout 600 --fail-under 80 --out Stdout --out Json --output-dir target/coverage \
		-- $(UNMEASURED:%=--skip %)
	scripts/coverage-by-crate target/coverage/tarpaulin-report.json

## Compare with no sandbox and with others: prints tables, writes target/bench, fails if a bar is missed. BENCH holds more options.
bench: setup-bench build
	$(CARGO) run --release --locked --quiet -p sandbox-cell --example filter > target/cell.bpf
	python3 bench/bench.py --sandbox-run $(BIN) --sandbox-server $(RELEASE)/sandbox-server --filter target/cell.bpf $(BENCH)

## See whether the benchmark itself works; decides nothing about speed.
bench-smoke:
	python3 bench/test_harness.py
	$(CARGO) build --locked --bins -p sandbox-cli -p sandbox-server
	python3 bench/bench.py --sandbox-run $(DEBUG)/sandbox-run --sandbox-server $(DEBUG)/sandbox-server --smoke --json target/bench/smoke.json

## Count the system calls of a request.
bench-syscalls: setup-bench build
	python3 bench/hotpath.py --sandbox-server $(RELEASE)/sandbox-server

## Many clients at once for five minutes: no error, no growth. LOAD holds more options.
bench-load: setup-bench build
	python3 bench/load.py --sandbox-server $(RELEASE)/sandbox-server $(LOAD)

## A polite client beside 1,024 silent connections, 1,000 event streams and 500 queued jobs: its p99 stays below three times the usual. FAIRNESS holds more options.
bench-fairness: setup-bench build
	python3 bench/fairness.py --sandbox-server $(RELEASE)/sandbox-server $(FAIRNESS)

## Put the figures of `bench` and `bench-syscalls` into README.md, docs/PERFORMANCE.md and docs/EVALUATION.md.
bench-docs:
	python3 bench/bench.py --write-docs target/bench/bench.json --syscalls target/bench/syscalls.json

## Kill, stop and cut off servers and Redis at random for MINUTES on each store, then check every job. SEED repeats a schedule, CHAOS holds more options, PROGRAMS names the directory with the server.
SEED ?= $(shell date +%s)
MINUTES ?= 10
PROGRAMS ?= $(RELEASE)
chaos: setup-test
	python3 tests/chaos/chaos.py --sandbox-server $(PROGRAMS)/sandbox-server --seed $(SEED) --minutes $(MINUTES) --json target/chaos/chaos.json $(CHAOS)

## The tests of its checker, with a server that is broken on purpose, and half a minute on each store.
chaos-short: setup-test
	SANDBOX_SERVER=$(abspath $(PROGRAMS))/sandbox-server python3 -m unittest discover --start-directory tests/chaos
	python3 tests/chaos/chaos.py --sandbox-server $(PROGRAMS)/sandbox-server --seed $(SEED) --minutes 0.5 --json target/chaos/short.json $(CHAOS)

## 100,000 runs and jobs with hostile ones among them, beside 1,000 idle event streams and after a queue of 10,000 jobs: nothing grows. SOAK holds more options.
soak: setup-test
	python3 tests/chaos/soak.py --sandbox-server $(PROGRAMS)/sandbox-server --json target/chaos/soak.json --plot target/chaos/soak.svg $(SOAK)

## The same for about a minute.
soak-short: setup-test
	python3 tests/chaos/soak.py --sandbox-server $(PROGRAMS)/sandbox-server --runs 3000 --queued 1000 --streams 200 --retention 5 --every 1 --json target/chaos/soak-short.json --plot target/chaos/soak-short.svg $(SOAK)

## The test suites on cgroup v2 and a stock Debian kernel, in a virtual machine; then attacks that would wreck a real one.
test-vm: setup-vm
	tests/vm/run
	tests/vm/hostile attacks 20

## What differs on such a host: limits, metrics, clean-up and attacks; attacks that would wreck it; a moment of fuzz-cell.
test-vm-short: setup-vm
	tests/vm/run --short
	tests/vm/hostile short
	scripts/what-holds --check

setup:
	@scripts/setup build

setup-test:
	@scripts/setup build test

setup-deb:
	@scripts/setup build deb

setup-image:
	@scripts/setup build image

setup-fuzz:
	@scripts/setup build fuzz

setup-bench:
	@scripts/setup build bench

setup-vm:
	@scripts/setup build test vm

clean:
	$(CARGO) clean
