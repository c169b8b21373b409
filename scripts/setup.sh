#!/usr/bin/env bash
# Sets up everything on a fresh Debian or Ubuntu: system packages (through apt-get when root), the virtual environment
# from the lock file with hashes, the package itself, and the jars of Spark's Kafka connector.
# What is done is remembered in .venv/.stamps by a hash of what it was made from, so a second run is quick and offline.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PYTHON_NEEDED="import sys; sys.exit(sys.version_info < (3, 11))"
readonly STAMPS=.venv/.stamps

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

hash_of() { { pwd; cat "$@"; } | sha256sum | cut -d' ' -f1; }
stamped() { [[ -f $STAMPS/$1 && $(<"$STAMPS/$1") == "$2" ]]; }
stamp() { mkdir -p "$STAMPS"; printf '%s' "$2" > "$STAMPS/$1"; }

# install_packages WHAT PACKAGE...: install the first of the packages that the system's archive offers.
install_packages() {
    local what=$1; shift
    if [[ $(id -u) != 0 ]]; then
        die "$what is missing. Run 'sudo apt-get install -y $1', then this again."
    fi
    command -v apt-get > /dev/null || die "$what is missing and there is no apt-get here: install it, then run this again."
    say "installing $what through apt-get"
    local candidate
    for attempt in first second; do
        for candidate in "$@"; do
            # shellcheck disable=SC2086  # an entry may name several packages
            if apt-cache show ${candidate} > /dev/null 2>&1; then
                # shellcheck disable=SC2086
                DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${candidate} > /dev/null ||
                    break
                return
            fi
        done
        [[ $attempt == first ]] && apt-get update -qq
    done
    die "$what could not be installed. Run 'apt-get update && apt-get install -y $1' to see why, then this again."
}

find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.13 python3; do
        if command -v "$candidate" > /dev/null && "$candidate" -c "$PYTHON_NEEDED" 2> /dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

make_environment() {
    # An environment that was moved has the old place written into its commands.
    if [[ -x .venv/bin/python ]] && .venv/bin/python -m pip --version > /dev/null 2>&1 && stamped where "$(pwd)"; then
        return
    fi
    local python
    if ! python=$(find_python); then
        install_packages "Python 3.11 or newer" "python3.11 python3.11-venv" "python3.12 python3.12-venv" "python3 python3-venv"
        python=$(find_python) || die "this system offers no Python 3.11 or newer: install one, then run this again."
    fi
    if ! "$python" -c "import ensurepip, venv" 2> /dev/null; then
        local version; version=$("$python" -c "import sys; print('%d.%d' % sys.version_info[:2])")
        install_packages "the venv module of Python $version" "python$version-venv" "python3-venv"
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
    stamp where "$(pwd)"
}

install_lock() {
    local want; want=$(hash_of requirements/all.lock)
    stamped lock "$want" && return
    say "installing the Python packages of requirements/all.lock (several hundred MB, once)"
    local pip=(.venv/bin/python -m pip install --disable-pip-version-check --require-hashes --quiet)
    [[ -t 2 ]] && pip=("${pip[@]/--quiet/--progress-bar=on}")
    # The tool that builds the packages which come as source is pinned too: it goes in first, nothing else is fetched.
    awk '/^setuptools==/ {on = 1} on {print} on && !/\\$/ {exit}' requirements/all.lock > .venv/build-tools.lock
    "${pip[@]}" -r .venv/build-tools.lock
    "${pip[@]}" --no-build-isolation -r requirements/all.lock
    rm -f "$STAMPS/package"
    stamp lock "$want"
}

install_package() {
    local want; want=$(hash_of pyproject.toml requirements/all.lock)
    stamped package "$want" && return
    .venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
    stamp package "$want"
}

java_is_new_enough() {
    local java=java
    [[ -n ${JAVA_HOME:-} ]] && java=$JAVA_HOME/bin/java
    local version; version=$("$java" -version 2>&1 | sed -nE '1s/.*version "([0-9]+).*/\1/p') || return 1
    [[ -n $version ]] && (( version >= 17 ))
}

install_java() {
    java_is_new_enough && return
    install_packages "Java 17 or newer" openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless default-jre-headless
    java_is_new_enough || die "'java' is still older than 17: point JAVA_HOME to a newer one, then run this again."
}

fetch_jars() {
    local want; want=$(hash_of src/logboom/pipeline/jars/pom.xml)
    stamped jars "$want" && return
    command -v mvn > /dev/null || install_packages "Maven" maven
    say "fetching the jars of Spark's Kafka connector with Maven"
    .venv/bin/python -m logboom.pipeline.jars > /dev/null
    stamp jars "$want"
}

make_environment
install_lock
install_package
install_java
fetch_jars
