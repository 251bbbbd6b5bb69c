# Makefile - the short way around CMake. Everything that is missing is installed first (tools/setup.sh).
#   make build      build/samite, build/libsamite.a, build/libsamite.so
#   make demo       build, then find things in a drawn scene
#   make test       build and run all tests
#   make install    PREFIX=/usr/local, DESTDIR=
#   make asan       tests under the address and undefined-behaviour sanitizers
#   make fuzz       every fuzz target for FUZZ_SECONDS (default 10)
#   make docs-check the commands in the documentation
#   make clean

PREFIX ?= /usr/local
FUZZ_SECONDS ?= 10
CMAKE_FLAGS ?=
JOBS ?= $(shell nproc)

.PHONY: build demo test install asan fuzz docs-check clean setup
.DEFAULT_GOAL := build

setup:
	@tools/setup.sh

build: setup
	@cmake --preset release $(CMAKE_FLAGS) -DCMAKE_INSTALL_PREFIX="$(PREFIX)" >/dev/null
	@cmake --build build --parallel $(JOBS)

demo: build
	@tools/demo.sh

test: build
	@OMP_WAIT_POLICY=passive ctest --test-dir build --output-on-failure --parallel $(JOBS)

install: build
	@cmake --install build

asan:
	@tools/setup.sh ci
	@cmake --preset asan $(CMAKE_FLAGS) >/dev/null
	@cmake --build build-asan --parallel $(JOBS)
	@OMP_WAIT_POLICY=passive ctest --test-dir build-asan --output-on-failure --parallel $(JOBS)

fuzz:
	@tools/setup.sh ci
	@cmake --preset fuzz $(CMAKE_FLAGS) >/dev/null
	@cmake --build build-fuzz --parallel $(JOBS) \
	    --target $$(ninja -C build-fuzz -t targets all | sed -n 's/^\(fuzz_[a-z0-9_]*\): phony$$/\1/p')
	@tools/fuzz.sh build-fuzz $(FUZZ_SECONDS)

docs-check: build
	@tools/check_docs.sh

clean:
	@rm -rf build build-debug build-asan build-fuzz build-clang
