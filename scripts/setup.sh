#!/usr/bin/env bash
# Sets up everything on a fresh Debian or Ubuntu: system packages (through apt-get when root), the virtual environment
# from the lock file with hashes, the package itself, and the jars of Spark's Kafka connector.
# PYTHON=python3.13 chooses the Python of .venv, and makes .venv anew where it has another one.
# LOGBOOM_COMPILE=1 makes .venv-compiled beside that: the same packages, and Logboom installed as a compiled wheel.
# What is done is remembered in .venv/.stamps by a hash of what it was made from, so a second run is quick and offline.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PYTHON_NEEDED="import sys; sys.exit(sys.version_info < (3, 11))"
readonly WHICH_PYTHON="import sys; print(sys.base_prefix, sys.version)"  # the same for an environment and what it was made with
readonly TRIED="import sys; sys.exit(sys.version_info[:2] > (3, 13))"
readonly STAMPS=.venv/.stamps
readonly COMPILE=${LOGBOOM_COMPILE:-0}
readonly CHOSEN=${PYTHON:-}
unset LOGBOOM_COMPILE  # .venv stays plain: it runs the sources of this checkout as they are
readonly HAS_HEADERS="import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path('include') + '/Python.h'))"
readonly POM=src/logboom/pipeline/spark/jars/pom.xml

SAID=0
say() { SAID=1; printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# progress WHAT TOTAL: reads what pip or Maven tells, line by line, and shows how far it is: one line that moves on a
# terminal, else a plain line for every tenth file. TOTAL 0: nobody knows how many files there will be.
progress() {
    local what=$1 total=$2 began=$SECONDS line name="" count=0 status bar of
    (( total > 0 )) && of=" of $total" || of=""
    while true; do
        status=0; IFS= read -r -t 1 line || status=$?
        (( status == 0 || status > 128 )) || break  # above 128: nothing new for a second
        if (( status == 0 )); then
            case $line in
                Collecting\ *) count=$((count + 1)); name=${line#Collecting } ;;
                *Downloading\ *) name=${line##*Downloading } ;;
                Installing\ collected*) name="installing them" ;;
                *) continue ;;
            esac
        fi
        if [[ -t 2 ]]; then
            bar=""
            if (( total > 0 )); then
                printf -v bar '%*s' $((count >= total ? 24 : count * 24 / total)) ""
                printf -v bar '[%-24s] ' "${bar// /#}"
            fi
            printf '\rsetup: %s: %s%d%s, %d s: %.60s\033[K' "$what" "$bar" "$count" "$of" $((SECONDS - began)) "$name" >&2
        elif (( status == 0 && count % 10 == 0 )) && [[ $line == Collecting\ * ]]; then
            say "$what: $count$of, $((SECONDS - began)) s"
        fi
    done
    [[ ! -t 2 ]] || printf '\rsetup: %s: %d done in %d s\033[K\n' "$what" "$count" $((SECONDS - began)) >&2
}

hash_of() { { pwd; cat "$@"; } | sha256sum | cut -d' ' -f1; }
stamped() { [[ -f $STAMPS/$1 && $(<"$STAMPS/$1") == "$2" ]]; }
stamp() { mkdir -p "$STAMPS"; printf '%s' "$2" > "$STAMPS/$1"; }

# --- what the system must have --------------------------------------------------------------------------------

# The distribution's Python comes before others of its version: it is built with profile-guided optimisation, and those
# of pyenv and the like mostly are not, which costs the broker and the tests a tenth. It needs the venv module to count.
find_python() {
    local candidate
    if [[ -n $CHOSEN ]]; then
        command -v "$CHOSEN"
        return
    fi
    for candidate in python3.11 python3.12 python3.13; do
        candidate=/usr/bin/$candidate
        if [[ -x $candidate ]] && "$candidate" -c "import ensurepip, venv" 2> /dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    for candidate in python3.11 python3.12 python3.13 python3; do
        if command -v "$candidate" > /dev/null && "$candidate" -c "$PYTHON_NEEDED" 2> /dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

check_chosen_python() {
    [[ -z $CHOSEN ]] || "$CHOSEN" -c "$PYTHON_NEEDED" 2> /dev/null || die "PYTHON=$CHOSEN does not run, or is older than Python 3.11."
}

environment_is_there() {
    # An environment that was moved has the old place written into its commands.
    [[ -x .venv/bin/python ]] && .venv/bin/python -c "import pip" 2> /dev/null && stamped where "$(pwd)" || return
    [[ -z $CHOSEN || $("$CHOSEN" -c "$WHICH_PYTHON") == "$(.venv/bin/python -c "$WHICH_PYTHON")" ]]
}

java_is_new_enough() {
    local java=java version
    [[ -n ${JAVA_HOME:-} ]] && java=$JAVA_HOME/bin/java
    version=$("$java" -version 2>&1 | sed -nE '1s/.*version "([0-9]+).*/\1/p')
    [[ -n $version ]] && (( version >= 17 ))
}

# first_offered "PACKAGE..." ...: the first of the sets of packages that the system's archive offers, else the first.
first_offered() {
    local set
    for set in "$@"; do
        # shellcheck disable=SC2086  # a set may name several packages
        if apt-cache show $set > /dev/null 2>&1; then
            printf '%s ' "$set"
            return
        fi
    done
    printf '%s ' "$1"
}

# Names of what is missing in MISSING, packages that bring it in PACKAGES.
look_for_missing() {
    MISSING=() PACKAGES=""
    local python
    if ! environment_is_there; then
        if ! python=$(find_python); then
            MISSING+=("Python 3.11 or newer")
            PACKAGES+=$(first_offered "python3.11 python3.11-venv" "python3.13 python3.13-venv" "python3.12 python3.12-venv")
        elif ! "$python" -c "import ensurepip, venv" 2> /dev/null; then
            MISSING+=("Python's venv module")
            PACKAGES+=$(first_offered "$("$python" -c "import sys; print('python%d.%d-venv' % sys.version_info[:2])")" python3-venv)
        fi
    fi
    if ! java_is_new_enough; then
        MISSING+=("Java 17 or newer")
        PACKAGES+=$(first_offered openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless default-jre-headless)
    fi
    if [[ $COMPILE == 1 ]]; then
        command -v ${CC:-gcc} > /dev/null || { MISSING+=("a C compiler"); PACKAGES+="gcc libc6-dev "; }
        if environment_is_there && ! .venv/bin/python -c "$HAS_HEADERS"; then
            MISSING+=("Python's headers")
            PACKAGES+=$(.venv/bin/python -c "import sys; print('python%d.%d-dev ' % sys.version_info[:2])")
        fi
    fi
    if ! stamped jars "$(hash_of $POM)" && ! command -v mvn > /dev/null; then
        MISSING+=("Maven")
        PACKAGES+="maven"
    fi
}

install_missing() {
    look_for_missing
    [[ ${#MISSING[@]} == 0 ]] && return
    local what; what=$(printf '%s, ' "${MISSING[@]}"); what=${what%, }
    command -v apt-get > /dev/null || die "missing here: $what. There is no apt-get: install it, then run this again."
    if [[ $(id -u) != 0 ]]; then
        die "missing here: $what. Run 'sudo apt-get update && sudo apt-get install -y ${PACKAGES% }', then this again."
    fi
    say "installing $what through apt-get"
    apt-get update -qq
    look_for_missing  # a fresh machine knows what is offered only now
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $PACKAGES > /dev/null
    look_for_missing
    [[ ${#MISSING[@]} == 0 ]] || die "still missing after 'apt-get install $PACKAGES': ${MISSING[*]}. Install it, then run this again."
}

# nats-server is for `serve --nats embedded` and for the tests of the NATS door: everything else works without it.
install_nats_server() {
    command -v nats-server > /dev/null && return
    local how="'sudo apt-get install -y nats-server', or 'go install github.com/nats-io/nats-server/v2@v2.15.2', brings it"
    if [[ $(id -u) != 0 ]] || ! command -v apt-get > /dev/null; then
        say "nats-server is not here, so 'logboom serve --nats embedded' and the tests of it are not either: $how"
        return
    fi
    apt-cache show nats-server > /dev/null 2>&1 || apt-get update -qq
    say "installing nats-server through apt-get"
    if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nats-server > /dev/null; then
        say "nats-server could not be installed: $how"
        return
    fi
    # The package starts a server for the whole machine, which nobody asked for.
    if [[ -d /run/systemd/system ]]; then
        systemctl disable --quiet --now nats-server || say "the service nats-server stays on"
    fi
}

# --- what the project makes -----------------------------------------------------------------------------------

make_environment() {
    environment_is_there && return
    # `venv --clear` empties what a link points to: somebody's environment, which other checkouts may use.
    [[ ! -L .venv ]] || die ".venv is a link to $(readlink .venv), which was set up for another directory: remove the link, then run this again."
    local python; python=$(find_python)
    say "making .venv with $("$python" --version)"
    "$python" -c "$TRIED" || say "Logboom was tried with Python 3.11, 3.12 and 3.13; this one is newer"
    "$python" -m venv --clear .venv
    stamp where "$(pwd)"
}

install_lock() {
    local want; want=$(hash_of requirements/all.lock)
    stamped lock "$want" && return
    say "installing the Python packages of requirements/all.lock (several hundred MB, once)"
    # Not compiled to bytecode: of nearly eight thousand modules most are never imported, and the others are compiled then.
    local pip=(.venv/bin/python -m pip install --disable-pip-version-check --no-compile --require-hashes --progress-bar=off)
    local total; total=$(grep -cE '^[A-Za-z0-9_.-]+==' requirements/all.lock)
    # The tool that builds the packages which come as source is pinned too: it goes in first, nothing else is fetched.
    awk '/^setuptools==/ {on = 1} on {print} on && !/\\$/ {exit}' requirements/all.lock > .venv/build-tools.lock
    "${pip[@]}" --quiet -r .venv/build-tools.lock
    "${pip[@]}" --no-build-isolation --use-pep517 -r requirements/all.lock | progress packages "$total"
    rm -f "$STAMPS/package"
    stamp lock "$want"
}

install_package() {
    local want; want=$(hash_of pyproject.toml requirements/all.lock)
    stamped package "$want" && return
    .venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
    stamp package "$want"
}

# A wheel in an environment of its own, never extensions in this checkout: Python prefers an extension to the source
# beside it, so that a source which was changed would silently not run. Packages are those of .venv.
install_compiled() {
    local want site; want=$(find src/logboom -name '*.py' -print0 | sort -z | xargs -0 cat | cat - setup.py pyproject.toml | sha256sum)
    [[ -x .venv-compiled/bin/logboom ]] && stamped compiled "$want" && return
    say "compiling (some minutes)"
    .venv/bin/python -m venv --clear --without-pip .venv-compiled
    site=$(.venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
    printf '%s\n' "$site" > "${site/.venv/.venv-compiled}/packages.pth"
    rm -rf build
    LOGBOOM_COMPILE=1 .venv/bin/python -m pip --python .venv-compiled/bin/python install \
        --disable-pip-version-check --quiet --no-deps --no-build-isolation .
    stamp compiled "$want"
    say "$(.venv-compiled/bin/logboom --version) is .venv-compiled/bin/logboom"
}

fetch_jars() {
    local want; want=$(hash_of $POM)
    stamped jars "$want" && return
    say "fetching the jars of Spark's Kafka connector with Maven"
    .venv/bin/python -m logboom.pipeline.spark.jars --progress | progress "files of Maven" 0
    stamp jars "$want"
}

check_chosen_python
install_missing
install_nats_server
make_environment
install_lock
install_package
if [[ $COMPILE == 1 ]]; then
    install_missing  # the headers are those of the Python that .venv was made with
    install_compiled
fi
fetch_jars
(( ! SAID )) || say "done: the program is .venv/bin/logboom"
