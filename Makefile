# Targets for developers and CI. Each one creates the virtual environment if necessary.

# Python 3.10 or later: `make PYTHON=python3.12 test`.
PYTHON ?= python3
# Number of test processes; `auto`: one per core.
TEST_JOBS ?= auto

# Duration of `make fuzz`, and the seed of its inputs.
FUZZ_SECONDS ?= 1200
FUZZ_SEED ?= 0
FUZZ_INPUTS ?=
# Number of inputs of `make sanitize`.
SANITIZE_INPUTS ?= 3000

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
OLDEST_SHELL := 1.4.4
# The oldest version that pyproject.toml allows.
OLDEST_PACKAGE := 1.5.2
SHELLS := .shells/oldest/bin/duckdb .shells/newest/bin/duckdb .shells/oldest-package/duckdb/__init__.py

# A step of the demo: print the command, then run it.
define show
@printf '\n$$ %s\n' '$(1)'; PATH="$(CURDIR)/$(BIN):$$PATH" $(1)
endef

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PIP_NO_INPUT := 1
# Else each of the many processes of the tests compiles all modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-long test-spark fuzz sanitize check bench bench-quick docs format package-check wheel clean

help: ## list the targets
	@echo "Usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1 — \2/p' $(MAKEFILE_LIST)

demo: $(READY) ## record ResNet-50, ingest it, report, and export its timeline (about a minute)
	@rm -rf demo && mkdir demo
	$(call show,traceconv record resnet50 -o demo/raw --iterations 5)
	$(call show,traceconv ingest demo/raw --db demo/trace.duckdb)
	$(call show,traceconv report step-trace --db demo/trace.duckdb)
	$(call show,traceconv report op-statistic --top 10 --db demo/trace.duckdb)
	$(call show,traceconv report op-summary --top 10 --db demo/trace.duckdb)
	$(call show,traceconv report api-statistic --top 10 --db demo/trace.duckdb)
	$(call show,traceconv export chrome -o demo/trace.json --db demo/trace.duckdb)
	$(call show,traceconv export html -o demo/run.html --db demo/trace.duckdb)
	@printf '\nThe page:     open demo/run.html in a browser.\n'
	@printf 'The timeline: open demo/trace.json at https://ui.perfetto.dev (it stays in your browser).\n'
	@printf 'The store:    any DuckDB shell, such as: duckdb demo/trace.duckdb "FROM op_statistic"\n'

test: $(READY) $(SHELLS) ## run the tests
	@$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal -m "not long"

test-long: $(READY) ## run slow tests, and all variants of those that make test runs in part
	@$(BIN)/python -m pytest -m long

test-spark: $(READY) ## install Spark and compare its rows with DuckDB's (needs Python 3.11 and Java 17)
	@$(BIN)/python -m pip install --quiet --editable '.[dev,spark]'
	@$(BIN)/python -m pytest -m long tests/spark

fuzz: $(READY) ## mutate samples of every format for 20 minutes on all cores (FUZZ_INPUTS=N: N inputs)
	@$(BIN)/python -m tests.fuzz $(if $(FUZZ_INPUTS),--inputs $(FUZZ_INPUTS),--seconds $(FUZZ_SECONDS)) --seed $(FUZZ_SEED)

# The sanitizer libraries are loaded first, and Python allocates with malloc, so that every object is bounds-checked.
# Leak detection is off because Python doesn't free everything at exit. libstdc++ is preloaded because DuckDB throws
# C++ exceptions.
SANITIZED := build/sanitize
SANITIZED_TESTS := $(addprefix tests/property/test_,$(addsuffix .py,native records trace_parser trace_fields trace_args \
	pairs_oracle perfetto_batches nesting_oracle span_programs dependency_vertices dependency_replay path_sums \
	shared_devices typed_fields what_if_oracle)) $(addprefix tests/unit/test_,$(addsuffix .py,begin_end row_order \
	sqlite_pages expand event_log profiled_programs spans critical_path xplane))
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g
sanitize: $(READY) ## test the C extension, also on mutated traces, with address and undefined behaviour sanitizers
	@rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	@cp -R traceconv tests setup.py pyproject.toml README.md $(SANITIZED) && rm -f $(SANITIZED)/traceconv/native/*.so
	@cd $(SANITIZED) && TRACECONV_CFLAGS="$(SANITIZE)" "$(CURDIR)/$(BIN)/python" setup.py -q build_ext --inplace > build.log 2>&1 \
		&& test -e traceconv/native/_native*.so || { cat build.log; exit 1; }
	@cd $(SANITIZED) && export PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		TRACECONV_SHARED="$${TRACECONV_SHARED:-$(CURDIR)/../shared}" \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so.6)" \
		&& "$(CURDIR)/$(BIN)/python" -m pytest --capture=sys -m "not long" $(SANITIZED_TESTS) \
		&& "$(CURDIR)/$(BIN)/python" -m tests.fuzz --inputs $(SANITIZE_INPUTS) --seed $(FUZZ_SEED) --limit 120 \
			--target chrome_json --target chrome_json_rows --target own_chrome_json \
			--target perfetto_proto --target perfetto_proto_rows --target nsys --target nsys_rows \
			--target xplane --target xplane_rows --out "$(CURDIR)/build/fuzz"

check: $(READY) ## run everything that CI runs: style, types, layers, docs, package, tests
	@echo "check: style";   $(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@echo "check: types";   $(BIN)/mypy --no-error-summary
	@echo "check: layers";  $(BIN)/lint-imports --no-logo > $(VENV)/layers.log 2>&1 || { cat $(VENV)/layers.log; exit 1; }
	@echo "check: docs";    $(BIN)/python docs/generate.py --check
	@$(MAKE) --no-print-directory package-check
	@echo "check: tests"
	@$(MAKE) --no-print-directory test

bench: $(READY) ## measure speed and memory against the targets (BENCH="--processor PATH": also trace_processor)
	@$(BIN)/python -m benchmarks $(BENCH)

bench-quick: $(READY) ## compare the speed with benchmarks/results.md, on small inputs
	@$(BIN)/python -m benchmarks --quick

docs: $(READY) ## regenerate docs/reference from the code, and renew the outputs of commands in the other pages
	@$(BIN)/python docs/generate.py
	@$(BIN)/python -m pytest -q -n $(TEST_JOBS) --update tests/docs/test_pages.py

format: $(READY) ## format the code
	@$(BIN)/ruff check --quiet --fix --exit-zero . && $(BIN)/ruff format .

# The wheel is built from the sdist and tested in an environment without the checkout, to find files missing from it.
# A path file makes the dependencies of .venv available; the path files in .venv itself (of the editable install) have
# no effect there.
package-check: $(READY) ## build sdist and wheel, and test the installed wheel
	@echo "check: package"
	@rm -rf build/package && mkdir -p build/package
	@$(BIN)/python -m build --no-isolation --outdir build/package . > build/package/build.log 2>&1 \
		|| { cat build/package/build.log; exit 1; }
	@$(BIN)/python -m venv --without-pip build/package/venv
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > build/package/dependencies.pth
	@mv build/package/dependencies.pth "$$(build/package/venv/bin/python -c \
		"import sysconfig; print(sysconfig.get_path('purelib'))")"
	@$(BIN)/python -m pip --python build/package/venv/bin/python install --quiet --no-deps --no-index \
		build/package/traceconv-*.whl
	@$(BIN)/python .ci/check_wheel.py build/package/traceconv-*.whl
	@cd build/package && PYTHONPATH= PYTHONNOUSERSITE=1 venv/bin/python ../../.ci/check_package.py

# A wheel built by Python 3.11 or later supports all versions from 3.11 (cp311-abi3).
wheel: $(READY) ## build a wheel into dist, and load its C extension with every installed Python
	@rm -rf dist/*.whl && mkdir -p build
	@$(BIN)/python -m build --no-isolation --wheel --outdir dist . > build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }
	@$(BIN)/python .ci/check_wheel.py dist/traceconv-*.whl

clean: ## remove all generated files and the virtual environment
	rm -rf $(VENV) .shells demo build dist *.egg-info trace.duckdb trace.duckdb.* \
		.mypy_cache .ruff_cache .import_linter_cache .hypothesis .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml setup.py $(wildcard traceconv/native/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "traceconv needs Python 3.10 or newer; specify one: make PYTHON=python3.12 …" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); } \
		|| { rm -rf $(VENV); echo "can't create $(VENV); on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "installing traceconv and its tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@$(BIN)/python -m compileall -q traceconv  # pip does this only for files that it copies
	@touch $@

# The tests run every report in the oldest and the newest DuckDB shell; without the shells these tests are skipped.
.shells/oldest/bin/duckdb:
	@$(BIN)/python -m pip install --quiet --upgrade --target .shells/oldest duckdb-cli==$(OLDEST_SHELL) \
		|| echo "DuckDB shell $(OLDEST_SHELL) is not available: the tests that need it are skipped" >&2
.shells/newest/bin/duckdb:
	@$(BIN)/python -m pip install --quiet --upgrade --target .shells/newest duckdb-cli \
		|| echo "DuckDB shell is not available: the tests that need it are skipped" >&2
# The tests also run traceconv with the oldest DuckDB that it supports.
.shells/oldest-package/duckdb/__init__.py:
	@$(BIN)/python -m pip install --quiet --upgrade --no-deps --target .shells/oldest-package duckdb==$(OLDEST_PACKAGE) \
		|| echo "duckdb $(OLDEST_PACKAGE) is not available: the tests that need it are skipped" >&2
$(SHELLS): | $(READY)
