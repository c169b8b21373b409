#!/usr/bin/env bash
# Runs the named groups of checks, each step with its name and time, and stops at the first that fails.
#   lint            style, layout, types, import contracts
#   test            all tests in random order, without the long fault runs
#   other-python    the small part of the tests that shows whether the newest Python here, beside that of .venv, runs Logboom
#   compiled        the tests of what is compiled, the simulation and some kills, on the compiled build in .venv-compiled
#   faults          the long fault runs
#   cluster-faults  those of them that concern clusters
#   fuzz            strange requests for LOGBOOM_FUZZ_SECONDS, one at a time and then by many clients at once
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly BIN=.venv/bin
readonly ALONE_MAX=10 ALONE_MAX_S=600  # so many failures and no more are tried again, for so long

step() {
    local name=$1 began=$SECONDS; shift
    printf -- '--- %s\n' "$name"
    "$@" || { printf -- '--- %s failed after %s s\n' "$name" "$((SECONDS - began))"; exit 1; }
    printf -- '--- %s: %s s\n' "$name" "$((SECONDS - began))"
}

lint() {
    step style $BIN/ruff check --quiet
    step layout $BIN/ruff format --check --quiet
    step types $BIN/mypy
    step contracts $BIN/lint-imports
}

# In a fresh clone the process that the workers are forked off would compile all modules and tests before the first test:
# that is done while types are checked. It takes seconds also where all are compiled.
compile_tests() {
    local compiled=.venv/.stamps/tests-compiled began
    [[ -e $compiled && -z $(find src tests -name '*.py' -newer "$compiled" -print -quit) ]] && return
    began=$(mktemp)
    $BIN/python -m pytest --collect-only --quiet -p no:cacheprovider > /dev/null 2>&1 || true  # the tests tell errors
    mv "$began" "$compiled"
}

# The tests start some twenty JVMs of Spark, which take half of the CPU time until their first queries have run where there
# is an archive of their classes. It stays in .venv, so this does nothing the next time.
archive_classes() {
    $BIN/python -m tests.support.class_archive > /dev/null 2>&1 || true  # the tests go on without
}

# Which cases of tests that take turns are done, and what the tests' chance begins with: others with each commit, so that
# time finds more, and the same for the same commit, so that what has passed once passes again.
turn_of_commit() {
    local commit
    commit=$(git rev-parse --short=6 HEAD 2> /dev/null) || commit=0
    printf '%d\n' "0x${commit:0:6}"
}

run_tests() {
    export LOGBOOM_TEST_TURN="${LOGBOOM_TEST_TURN:-$(turn_of_commit)}"
    step tests together_and_then_alone "$@"
}

# What fails is run once more with nothing beside it. The result stays what it was; whether it fails again says where to look.
together_and_then_alone() {
    local status=0 failed names
    failed=$(mktemp)
    # A group of tests that shares something costly stays on one worker; the longest tests come first (tests/conftest.py).
    LOGBOOM_TEST_FAILED=$failed $BIN/python -m pytest -n "${WORKERS:-5}" --dist loadgroup --no-loadscope-reorder \
        --randomly-seed "$LOGBOOM_TEST_TURN" --hypothesis-seed "$LOGBOOM_TEST_TURN" -m "not slow" "$@" || status=$?
    mapfile -t names < <(sort --unique "$failed")
    rm "$failed"
    if ((${#names[@]} > 0 && ${#names[@]} <= ALONE_MAX)); then
        printf -- '--- the %s that failed once more, alone\n' "${#names[@]}"
        timeout "$ALONE_MAX_S" $BIN/python -m pytest --quiet -p no:xdist --randomly-seed "$LOGBOOM_TEST_TURN" \
            --hypothesis-seed "$LOGBOOM_TEST_TURN" "${names[@]}" || true
    fi
    return "$status"
}

# The newest Python from 3.12 to 3.13 that is here and is not that of .venv; nothing if there is none.
other_python() {
    local version own candidate
    own=$($BIN/python -c "import sys; print('%d.%d' % sys.version_info[:2])")
    for version in 3.13 3.12; do
        [[ $version == "$own" ]] && continue
        for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
            if [[ $("$candidate" -c "import sys, venv; print('%d.%d' % sys.version_info[:2])" 2> /dev/null) == "$version" ]]; then
                command -v "$candidate"
                return
            fi
        done
    done
}

# What Logboom and its tests need without Spark, sinks and benchmarks: two dozen small packages of the lock, with its hashes.
lock_of_the_log() {
    local packages="annotated-doc annotated-types click confluent-kafka cramjam crc32c execnet hypothesis iniconfig kio kafka-python
        aiokafka async-timeout lz4 markdown-it-py mdurl msgspec nats-py nkeys packaging pluggy prometheus-client pydantic
        pydantic-core pygments pynacl cffi pycparser pytest pytest-randomly pytest-timeout pytest-xdist python-snappy rich
        ruamel-yaml shellingham sortedcontainers structlog typer typing-extensions typing-inspection uvloop zstandard py4j"
    awk -v packages="$packages" '
        BEGIN {split(packages, names, /[ \n]+/); for (at in names) wanted[names[at]] = 1}
        /^[A-Za-z0-9_.-]+==/ {on = substr($1, 1, index($1, "==") - 1) in wanted}
        on {print}' requirements/all.lock
}

# Everything is imported with warnings as errors, since a Python deprecates what a later one removes. Of the tests those run
# that depend most on asyncio, files, threads and processes as Python has them, and two in which 3.13 once differed.
# `make test PYTHON=python3.13` runs all.
run_other_python() {
    local python env=.venv-other
    python=$(other_python)
    if [[ -z $python ]]; then
        printf -- '--- other-python: there is no other Python here that Logboom is for\n'
        return
    fi
    lock_of_the_log > .venv/other.lock
    if ! cmp -s .venv/other.lock "$env/lock" || [[ $("$env/bin/python" --version) != $("$python" --version) ]]; then
        "$python" -m venv --clear "$env"  # with its own pip: one of an older Python may not run on it
        "$env/bin/python" -m pip install --disable-pip-version-check --quiet --no-compile --no-deps --require-hashes \
            -r .venv/other.lock
        cp -r .venv/lib/python*/site-packages/logboom-*.dist-info "$env"/lib/python*/site-packages/
        printf '%s\n' "$PWD/src" > "$(echo "$env"/lib/python*/site-packages)/logboom.pth"
        cp .venv/other.lock "$env/lock"
    fi
    step "imports, $("$python" --version)" "$env/bin/python" -W error -m tests.support.every_module
    step "some tests, $("$python" --version)" "$env/bin/python" -m pytest --quiet -n "${WORKERS:-2}" -m "not slow" \
        tests/app tests/host tests/http tests/client tests/broker/test_registration.py tests/cli/test_services.py
}

# The tests see the compiled package that is installed there. Those of the layout and of documents concern sources alone.
run_compiled() {
    local python=.venv-compiled/bin/python
    step build $python -c "from logboom.base import build; assert build.describe() != build.PLAIN, 'nothing is compiled here'"
    step rooms $python -m pytest -n "${WORKERS:-2}" --dist loadgroup -m "not slow and not uncompiled" \
        tests/records tests/storage tests/replication tests/broker tests/kafka tests/groups tests/nats tests/peer
    step simulation .venv-compiled/bin/logboom sim run --runs "${SEEDS:-10}"
    step kills $python -m pytest -p no:xdist -m "not slow" tests/faults/test_kill_broker.py tests/faults/test_kill_compaction.py
}

run_faults() {
    export LOGBOOM_TEST_THOROUGH=1
    step faults $BIN/python -m pytest --verbose -p no:xdist --timeout 3600 -m "slow" tests
    step kills $BIN/python -m pytest --verbose -p no:xdist --timeout 3600 -m "not slow" tests/faults
    step turns $BIN/python -m pytest -p no:xdist --timeout 3600 -m "in_turn and not slow" tests
    step properties $BIN/python -m pytest -p no:xdist --timeout 3600 -m "hypothesis and not slow" tests
}

run_cluster_faults() {
    step cluster-faults $BIN/python -m pytest --verbose -p no:xdist --timeout 3600 tests/faults/test_cluster_*.py
}

run_fuzz() {
    # A test at a time, so that each has the seconds it was given.
    step fuzz $BIN/python -m pytest --capture no -p no:xdist --timeout 0 -m "slow" \
        tests/kafka/test_fuzz_requests.py tests/faults/test_fuzz_life.py
}

if [[ " $* " == *" lint"*" test "* ]]; then
    compile_tests &
    archive_classes &
fi
for group in "$@"; do
    case $group in
        lint) lint ;;
        test) wait; run_tests ;;  # for what runs in the background
        other-python) run_other_python ;;
        compiled) run_compiled ;;
        faults) run_faults ;;
        cluster-faults) run_cluster_faults ;;
        fuzz) run_fuzz ;;
        *) printf 'unknown group of checks: %s\n' "$group" >&2; exit 2 ;;
    esac
done
