# make run       maps this machine; ends by naming the run file and the report
# make test      every test that needs no GPU
# make test-long checks, the same tests with the full campaigns, and the C++ tests with sanitizers (an hour or more)
# make test-gpu  the tests that need one
# make check     format, lint and types; clang-tidy on all C++ files, or on TIDY
# make format    apply the formats
# make docs      check the documentation and build the site in build/site
PYTHON ?= python3
RUN := .venv/bin/python

comma := ,
CPP_FILES = $(shell find core tests -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' | grep -v doctest.h)
TIDY ?= $(shell git ls-files 'core/*.cpp')

.PHONY: run test test-long test-gpu check check-format format docs build build-tests compiled-tests wheel clean

run: build
	@$(RUN) tools/first_run.py

test: build-tests
	@$(RUN) tools/run_tests.py

# Sanitizers: addresses and undefined behaviour in one build, threads in another.
test-long: check build-tests
	$(call compiled,build/asan,-DLINKSCOPE_TESTS=ON -DLINKSCOPE_FIRST_ARCHITECTURES=ON -DCMAKE_BUILD_TYPE=Debug -DLINKSCOPE_SANITIZE=address$(comma)undefined)
	$(call compiled,build/tsan,-DLINKSCOPE_TESTS=ON -DLINKSCOPE_FIRST_ARCHITECTURES=ON -DCMAKE_BUILD_TYPE=Debug -DLINKSCOPE_SANITIZE=thread)
	@LINKSCOPE_TESTS=long $(RUN) tools/run_tests.py

test-gpu: build-tests
	@$(RUN) -m pytest tests/gpu

# The build in place: the worker and the machine files go to src/linkscope/_native, where the wheel has them too.
define cmake_build
	$(call compiled,$(1),$(2))
	@$(RUN) -m cmake --install $(1) --prefix src > /dev/null
endef

configure = $(RUN) -m cmake -S . -B $(1) -G Ninja -DPython_EXECUTABLE=$(CURDIR)/$(RUN) \
  -DCMAKE_MAKE_PROGRAM=$(CURDIR)/.venv/bin/ninja $(2) > /dev/null

define configured
	@if [ ! -f $(1)/build.ninja ]; then $(call configure,$(1),$(2)); fi
endef

define compiled
	$(call configured,$(1),$(2))
	@MAKEFLAGS= $(RUN) -m cmake --build $(1) -- --quiet $(filter -j%,$(MAKEFLAGS))
endef

build:
	@$(PYTHON) tools/bootstrap.py build
	$(call cmake_build,build/run,)

build-tests:
	@$(PYTHON) tools/bootstrap.py build test
	@$(MAKE) --no-print-directory compiled-tests

# Needs no package of the tests: .ci/run compiles while those are downloaded.
compiled-tests: build/dev/build.ninja
	$(call cmake_build,build/dev,)

build/dev/build.ninja:
	@$(PYTHON) tools/bootstrap.py build
	$(call configured,build/dev,-DLINKSCOPE_TESTS=ON -DLINKSCOPE_FIRST_ARCHITECTURES=ON)

check-format:
	@$(PYTHON) tools/bootstrap.py build test check
	$(RUN) -m ruff format --check src tests tools cmake
	$(RUN) -m ruff check src tests tools cmake
	@.venv/bin/clang-format --dry-run --Werror $(CPP_FILES)

# Types are checked on one core while clang-tidy starts on the other. clang-tidy reads each file by itself and without the
# precompiled headers, so an include that the file lacks is an error. Nothing is compiled in build/files.
check: check-format
	@$(call configure,build/files,-DLINKSCOPE_TESTS=ON -DLINKSCOPE_FILES_TOGETHER=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
	@$(RUN) -m mypy & types=$$!; echo $(TIDY) | xargs -r -P 2 -n 2 .venv/bin/clang-tidy -p build/files --quiet; \
	  tidy=$$?; wait $$types && exit $$tidy

format:
	@$(PYTHON) tools/bootstrap.py build test check
	$(RUN) -m ruff format src tests tools cmake
	@.venv/bin/clang-format -i $(CPP_FILES)

docs: build
	@$(PYTHON) tools/bootstrap.py build test docs
	@$(RUN) tools/docs.py

wheel:
	@$(PYTHON) tools/bootstrap.py build
	@rm -rf build/wheel
	$(RUN) -m pip wheel --no-deps --no-build-isolation --quiet -w build/wheel .

clean:
	rm -rf build .venv src/linkscope/_native
