# The two commands to know: `make run` and `make test`. Each installs missing packages (as root, on Debian and its
# relatives) or lists them.

CARGO ?= cargo
export CARGO_TARGET_DIR = $(CURDIR)/target
# Where scripts/setup puts tools that the system lacks.
export PATH := $(CURDIR)/target/tools/bin:$(PATH)
RELEASE = target/$(shell rustc -vV | sed -n 's/^host: //p')/release
DEBUG = $(RELEASE:release=debug)
BIN = $(RELEASE)/sandbox-run

.PHONY: run build install uninstall deb test-deb test-unit sandbox-build sandbox-push test-image test-compose test test-backends test-vm-short test-hostile-short short-beside-vm test-sandbox test-readme docs book bless lint programs unit api measured built fuzz fuzz-short fuzz-cell coverage bench bench-smoke bench-syscalls bench-load bench-fairness bench-costs bench-docs chaos chaos-short soak soak-short test-vm setup setup-test setup-coverage setup-deb setup-image setup-fuzz setup-bench setup-vm setup-deploy setup-valkey test-deploy test-valkey test-pod clean

## Run a Python snippet in a sandbox, show the result, then serve HTTP until Ctrl-C.
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

## Remove the files of `make install`. Changed settings and the server's state stay.
uninstall:
	packaging/uninstall "$(DESTDIR)" "$(PREFIX)" "$(SYSCONFDIR)"

## Build a Debian package: target/debian/*.deb.
deb: setup-deb build
	rm -rf target/debian
	packaging/install $(RELEASE) "$(CURDIR)/target/debian/root" /usr /etc
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(CARGO) deb --quiet --no-build --no-strip --package sandbox-cli --output target/debian/

## Test the package: install it in a fresh Debian, use it, and purge it.
test-deb: setup-deb deb
	packaging/test-deb target/debian/*.deb

## Test its service, under systemd with cgroup v2 in an emulated machine.
test-unit: setup-deb setup-vm deb
	packaging/test-unit target/debian/*.deb

## Build the container image of the server (Containerfile.sandbox). BUILD_ARGS adds options.
IMAGE ?= sandbox-run
ENGINE ?= docker
sandbox-build:
	$(ENGINE) build --file Containerfile.sandbox --tag $(IMAGE) $(BUILD_ARGS) .

## Push the image to the registry in its name.
sandbox-push:
	$(ENGINE) push $(IMAGE)

## Test the image with a dedicated Docker engine: without privileges, with namespaces, with every layer.
test-image: setup-image build
	packaging/test-image $(RELEASE)

## The same for compose.yaml.
test-compose: setup-image build
	packaging/test-compose $(RELEASE)

## Run lints and every test. With TESTS=measured, measure the coverage of most tests.
TESTS ?= unit
SHORT ?= bench-smoke chaos-short soak-short fuzz-short
test: setup-test lint $(TESTS) $(SHORT)

# The short versions of slow suites mostly wait. The emulated machine does not, so it runs at the same time.
short-beside-vm: setup-vm
	mkdir -p target/vm
	tests/vm/run --short > target/vm/short.log 2>&1 & vm=$$!; \
	$(MAKE) bench-smoke chaos-short soak-short fuzz-short; status=$$?; \
	wait $$vm || status=1; cat target/vm/short.log; exit $$status

lint:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	$(CARGO) clippy -p sandbox-jobs -p sandbox-server --no-default-features --locked -- -D warnings
	$(CARGO) clippy -p sandbox-server --no-default-features --features redis,otlp --locked -- -D warnings
	$(CARGO) clippy -p sandbox-server --no-default-features --features webhooks --locked -- -D warnings
	$(CARGO) fetch --locked
	$(CARGO) deny --offline --log-level error check licenses bans sources
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --all-features --no-deps --document-private-items --locked --quiet
	scripts/check-names
	scripts/book
	typos

## Run only the server's integration tests.
test-sandbox: setup-test
	$(CARGO) test --locked -p sandbox-server --features otlp
	$(MAKE) api

# Tests that disable layers of isolation need a feature that no release has, others one that is off by default. The same
# as in .cargo/config.toml.
FEATURES = --features sandbox-cli/canary,sandbox-server/otlp

programs:
	$(CARGO) test-programs

unit:
	$(CARGO) test --workspace --locked $(FEATURES)
	$(MAKE) api

## Try every documented call of the API.
api:
	tests/api/run

## Run every test once, with coverage where possible. Those tests mostly wait for something: meanwhile, what comes next is built.
measured: setup-coverage setup-fuzz
	nice -n 19 $(MAKE) built & $(MAKE) coverage; status=$$?; wait; exit $$status
	$(CARGO) test --workspace --locked $(FEATURES) --test documents --test parity --test server -- $(UNMEASURED)
	# Not at the same time: some attacks run in a PID namespace that does not see the keepers of servers, whose idle cells
	# are then taken for those of a crash.
	$(CARGO) test --workspace --locked $(FEATURES) --test attack -- $(UNMEASURED)
	$(MAKE) api

built:
	$(CARGO) test --workspace --locked $(FEATURES) --no-run
	fuzz/run short 0

## Follow the README in a fresh clone: `make run` and every example.
test-readme: setup-test
	scripts/follow-readme

## Write the parts of documents that come from tables of the code: flags, variables, settings, limits, languages, exit codes.
docs:
	SANDBOX_BLESS=1 $(CARGO) test --locked -p sandbox-manual --lib generated_parts
	SANDBOX_BLESS=1 $(CARGO) test --locked -p sandbox-cli --bin sandbox-run generated_parts
	SANDBOX_BLESS=1 $(CARGO) test --locked -p sandbox-server --bin sandbox-server generated_parts

## Build the documents as a book, in target/book, and check every link in it.
book: setup-test
	scripts/book

## Update the command output in the documents and the picture in the README, with release builds, and the snapshots of help and errors.
bless: setup-test build docs
	SANDBOX_BLESS=all SANDBOX_PROGRAMS=$(CURDIR)/$(RELEASE) $(CARGO) test --locked -p sandbox-cli --test documents
	PATH=$(CURDIR)/$(RELEASE):$$PATH scripts/record-demo
	INSTA_UPDATE=always $(CARGO) test --locked -p sandbox-cli --test screen
	INSTA_UPDATE=always $(CARGO) test --locked -p sandbox-server --test server screen
	INSTA_UPDATE=always $(CARGO) test --locked -p sandbox-server --bin sandbox-server -- problem openapi

## Run the same programs with every backend: runc, and a dedicated Docker engine. Writes the table in docs/EVALUATION.md.
test-backends: setup-test
	@command -v dockerd >/dev/null || { echo "please install Docker's engine (Debian: docker.io)" >&2; exit 1; }
	SANDBOX_TEST_DOCKER=1 SANDBOX_BLESS=1 $(CARGO) test --locked -p sandbox-cli --test parity

## Fuzz every parser of untrusted input, for FUZZ_SECONDS each. FUZZ_TARGETS selects some.
FUZZ_SECONDS ?= 600
fuzz: setup-fuzz
	fuzz/run long $(FUZZ_SECONDS) $(FUZZ_TARGETS)

## Fuzz briefly.
fuzz-short: setup-fuzz
	fuzz/run short 3 $(FUZZ_TARGETS)

## Make random system calls inside cells for FUZZ_SECONDS, in a virtual machine that must stay healthy. FUZZ_SEED repeats a run.
fuzz-cell: setup-vm
	VM_TIMEOUT=$$(($(FUZZ_SECONDS) * 3 + 600)) tests/vm/hostile fuzz $(FUZZ_SECONDS) $(FUZZ_SEED)

# Tests without coverage: they take long and cover nothing that others do not, or run the program in another root, which
# the instrumented program, not being static, cannot run in.
UNMEASURED = for_an_ordinary_user without_namespaces fifty_hostile a_thousand_jobs in_warm_cells the_commands_of_the \
	compiled_programs_end_alike containers_can_use_an_image

# Excluded from coverage: helpers of tests, and what runs where there are no counters: the library of zygotes, inside
# interpreters, and the guest, inside containers.
UNCOUNTED = sandbox-testing/* $(addprefix sandbox-zygote/src/,entry.rs jvm.rs large_pages.rs node.rs syscall.rs threads.rs) sandbox-backends/src/guest.rs

## Measure the line coverage of the tests; fail below 80 % of all lines or 70 % of a crate's. Counters are relocatable so that forks share them: see the tests' harness.
coverage: setup-coverage
	# Most tests wait for something, so there are more of them at once than processors.
	RUST_TEST_THREADS=4 RUSTFLAGS="-C llvm-args=-runtime-counter-relocation" RUSTC_WRAPPER=$(CURDIR)/scripts/rustc-for-coverage $(CARGO) tarpaulin --engine llvm --workspace --locked $(FEATURES) --follow-exec \
		$(UNCOUNTED:%=--exclude-files "crates/%") --target-dir target/coverage --skip-clean --timeout 600 --fail-under 80 --out Stdout --out Json --output-dir target/coverage \
		-- $(UNMEASURED:%=--skip %)
	scripts/coverage-by-crate target/coverage/tarpaulin-report.json

## Compare with no sandbox and with other sandboxes: prints tables, writes target/bench, fails if a bar is missed. BENCH adds options.
bench: setup-bench build
	$(CARGO) run --release --locked --quiet -p sandbox-cell --example filter > target/cell.bpf
	python3 bench/bench.py --sandbox-run $(BIN) --sandbox-server $(RELEASE)/sandbox-server --filter target/cell.bpf $(BENCH)

## Test the benchmark itself, regardless of speed.
bench-smoke: programs
	python3 bench/test_harness.py
	python3 bench/bench.py --sandbox-run $(DEBUG)/sandbox-run --sandbox-server $(DEBUG)/sandbox-server --smoke --json target/bench/smoke.json

## Count the system calls of a request.
bench-syscalls: setup-bench build
	python3 bench/hotpath.py --sandbox-server $(RELEASE)/sandbox-server

## Run many clients for five minutes: no error, no growth. LOAD adds options.
bench-load: setup-bench build
	python3 bench/load.py --sandbox-server $(RELEASE)/sandbox-server $(LOAD)

## Run a normal client beside 1,024 silent connections, 1,000 event streams and 500 queued jobs: its p99 stays below three times the usual. FAIRNESS adds options.
bench-fairness: setup-bench build
	python3 bench/fairness.py --sandbox-server $(RELEASE)/sandbox-server $(FAIRNESS)

## Measure what a run, a job, an event and a stream cost, and write it into docs/SCALING.md. COSTS holds more options.
bench-costs: setup-bench build
	mkdir -p target/bench
	$(CARGO) test --release --locked -p sandbox-jobs --lib throughput_of_two_servers -- --ignored --nocapture | tee target/bench/redis.log
	python3 bench/scaling.py --sandbox-server $(RELEASE)/sandbox-server --throughput target/bench/redis.log --write-docs $(COSTS)

## Put the figures of `bench` and `bench-syscalls` into README.md, docs/PERFORMANCE.md and docs/EVALUATION.md.
bench-docs:
	python3 bench/bench.py --write-docs target/bench/bench.json --syscalls target/bench/syscalls.json

## Kill, stop and cut off servers and Redis, slow disks down and set clocks wrong at random for MINUTES on each store, then check every job. SEED repeats a schedule, CHAOS holds more options, PROGRAMS names the directory with the server.
SEED ?= $(shell date +%s)
MINUTES ?= 10
PROGRAMS ?= $(RELEASE)
chaos: setup-test build
	# The library that moves the clock of a server is preloaded, which needs a program that is linked dynamically.
	RUSTFLAGS="-C target-feature=-crt-static" $(CARGO) build --locked --target-dir target/dynamic -p sandbox-server
	SANDBOX_SERVER=$(abspath $(PROGRAMS))/sandbox-server python3 -m unittest discover --start-directory tests/chaos
	python3 tests/chaos/chaos.py --sandbox-server $(PROGRAMS)/sandbox-server --clocks $(DEBUG:target/%=target/dynamic/%)/sandbox-server --seed $(SEED) --minutes $(MINUTES) --json target/chaos/chaos.json $(CHAOS)

## The same schedule every time, for half a minute on each store, with a debug build; meanwhile the tests of its checker.
chaos-short: SEED = 9
chaos-short: setup-test programs
	mkdir -p target/chaos
	SANDBOX_SERVER=$(abspath $(DEBUG))/sandbox-server python3 -m unittest discover --start-directory tests/chaos > target/chaos/checker.log 2>&1 & checker=$$!; \
	python3 tests/chaos/chaos.py --sandbox-server $(DEBUG)/sandbox-server --seed $(SEED) --minutes 0.5 --json target/chaos/short.json $(CHAOS); chaos=$$?; \
	wait $$checker && exit $$chaos; cat target/chaos/checker.log; exit 1

## 100,000 runs and jobs with hostile ones among them, beside 1,000 idle event streams and after a queue of 10,000 jobs: nothing grows. SOAK holds more options.
soak: setup-test build
	python3 tests/chaos/soak.py --sandbox-server $(PROGRAMS)/sandbox-server --json target/chaos/soak.json --plot target/chaos/soak.svg $(SOAK)

## The same for half a minute, with a debug build.
soak-short: setup-test programs
	python3 tests/chaos/soak.py --sandbox-server $(DEBUG)/sandbox-server --runs 800 --queued 300 --streams 100 --retention 5 --every 1 --json target/chaos/soak-short.json --plot target/chaos/soak-short.svg $(SOAK)

## Run the test suites on cgroup v2 and a stock Debian kernel, in a virtual machine; then attacks that could crash a host.
test-vm: setup-vm
	tests/vm/run
	tests/vm/hostile attacks 20

## Run what differs on such a host: limits, metrics, clean-up and attacks; attacks that could crash it; a short fuzz-cell.
test-vm-short: setup-vm
	tests/vm/run --short
	$(MAKE) test-hostile-short

test-hostile-short: setup-vm
	tests/vm/hostile short
	scripts/what-holds --check

## Run the tests of the Redis store, and of jobs on it, with Valkey instead. The build of Valkey that is used has no TLS.
test-valkey: setup-valkey
	PATH="$(CURDIR)/target/tools/valkey:$$PATH" $(CARGO) test --locked -p sandbox-jobs --lib -- --skip tls_checks_the_server
	PATH="$(CURDIR)/target/tools/valkey:$$PATH" $(CARGO) test --locked -p sandbox-server --features otlp --test server -- redis

## Check deploy/: the Helm chart with Kubernetes' own schema, alert rules with their tests, the dashboard, and that the server has every metric and setting they name.
test-deploy: setup-deploy
	$(CARGO) test-programs --quiet
	target/tools/python/bin/python deploy/test $(DEBUG)/sandbox-server

## Start the server as the chart's pods with full isolation do, on cgroup v2 in an emulated machine.
test-pod: setup-vm setup-deploy
	$(CARGO) test-programs --quiet
	deploy/test-pod $(DEBUG)/sandbox-server

setup:
	@scripts/setup build

setup-test:
	@scripts/setup build test

setup-coverage:
	@scripts/setup build test coverage

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

setup-deploy:
	@scripts/setup build deploy

setup-valkey:
	@scripts/setup build test valkey

clean:
	$(CARGO) clean
