#!/usr/bin/env bash
# Luge's CUDA backend on a real GPU, in about eight minutes: see usage below.
set -uo pipefail

usage() {
    cat <<'EOT'
usage: tools/gpu_check.sh [--dry-run]

Checks Luge's CUDA backend on the GPU of this machine. Each stage has a time limit of its own and writes to a
file of its own at once, so that what was done by then is kept; a stage that fails does not stop the others:

  inventory   driver, toolkit, cuDNN, PyTorch
  build       the CUDA module for this GPU only, tests and benchmarks, as Release
  card        what cuDNN says of the card (JSON), to be kept in tests/cuda/fixtures
  tests       the library's tests with LUGE_DEVICE=cuda
  sanitizer   compute-sanitizer (memcheck, racecheck, initcheck, synccheck) on small tests
  bench       training steps in turn with PyTorch where there is one, else alone

The last line of summary.txt is "all well" or the stages that were not. Exit status: 0 if all is well, 1 if a
stage failed, 2 if there is nothing to check on (no GPU, no nvcc, no cuDNN).
--dry-run prints the stages and what they would use, and runs none.

Environment:
  OUT              where results go (bench/results/gpu-<date>)
  LUGE_GPU_MINUTES for all stages together (8)
  LUGE_GPU_STAGES  only these, "build tests" for example
  LUGE_BUILD       the build's folder (build-gpu)
  LUGE_DEPS        a folder into which packages were unpacked (dpkg -x) of oneDNN, jansson, zlib and cmocka,
                   where they are not installed; CMake looks there first, and the programs, too
  CUDNN_HOME       where cuDNN is, unless it is in the toolkit or a Python package
EOT
}

luge=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$luge/tools/$(basename "${BASH_SOURCE[0]}")
build=${LUGE_BUILD:-$luge/build-gpu}
out=${OUT:-$luge/bench/results/gpu-$(date +%F)}
deps=${LUGE_DEPS:-}
python=${PYTHON:-python3}
stages=${LUGE_GPU_STAGES:-inventory build card tests sanitizer bench}
jobs=$(nproc 2>/dev/null || echo 4)

# Seconds that a stage may take.
limit_of() {
    case $1 in
    inventory) echo 20 ;;
    build) echo 240 ;;
    card) echo 30 ;;
    tests | bench) echo 180 ;;
    *) echo 120 ;;
    esac
}

# ---- what there is

cuda_home() {
    local nvcc
    if [ -n "${CUDA_HOME:-}" ]; then echo "$CUDA_HOME"; return; fi
    if nvcc=$(command -v nvcc); then dirname "$(dirname "$(readlink -f "$nvcc")")"; return; fi
    if [ -x /usr/local/cuda/bin/nvcc ]; then echo /usr/local/cuda; fi
}

# Empty if the compiler finds cuDNN by itself.
cudnn_home() {
    if [ -n "${CUDNN_HOME:-}" ]; then echo "$CUDNN_HOME"; return; fi
    if [ -f "$cuda/include/cudnn.h" ] || [ -f /usr/include/cudnn.h ]; then return; fi
    "$python" -c 'import nvidia.cudnn as c; print(list(c.__path__)[0])' 2>/dev/null
}

card_names() { nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader 2>/dev/null; }
# 90, say.
architecture() { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. '; }
has_torch() { "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; }

cuda=$(cuda_home)
export CUDA_HOME=$cuda
CUDNN_HOME=$(cudnn_home)
export CUDNN_HOME
if [ -n "$cuda" ]; then PATH=$cuda/bin:$cuda/compute-sanitizer:$PATH; fi
# Folders of libraries, ours before what was set.
libraries() {
    local folder
    for folder in "$deps"/usr/lib/*-linux-gnu "$deps"/usr/lib "$deps"/lib "$CUDNN_HOME"/lib; do
        if [ -d "$folder" ] && [ "${folder#/usr}" = "$folder" ] && [ "${folder#/lib}" = "$folder" ]; then
            printf '%s:' "$folder"
        fi
    done
    printf '%s' "${LD_LIBRARY_PATH:-}"
}
LD_LIBRARY_PATH=$(libraries)
export LD_LIBRARY_PATH
export LUGE_CUDA_MODULE=$build/libluge_cuda.so

# What is missing for any check, in words.
missing() {
    [ -n "$(card_names)" ] || { echo "there is no GPU here: nvidia-smi finds none"; return; }
    [ -n "$cuda" ] || { echo "there is no nvcc: put the CUDA toolkit into PATH or name it in CUDA_HOME"; return; }
    [ -n "$CUDNN_HOME" ] || [ -f "$cuda/include/cudnn.h" ] || [ -f /usr/include/cudnn.h ] ||
        echo "there is no cuDNN: name its folder in CUDNN_HOME"
}

# ---- the stages; each in a process of its own

stage_inventory() {
    date -u
    git -C "$luge" log -1 --format='commit %h %s' 2>/dev/null
    card_names
    nvidia-smi
    nvcc --version | tail -n 2
    grep -hE '^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL)' "$cuda"/include/cudnn_version.h "$CUDNN_HOME"/include/cudnn_version.h \
        /usr/include/cudnn_version.h 2>/dev/null
    "$python" -c 'import torch; print("PyTorch", torch.__version__, "with CUDA", torch.version.cuda)' 2>/dev/null || echo "no PyTorch"
    cc --version | head -n 1
    cmake --version | head -n 1
    nproc
}

stage_build() {
    local generator=() prefix=()
    if command -v ninja >/dev/null; then generator=(-G Ninja); fi
    if [ -n "$deps" ]; then prefix=("-DCMAKE_PREFIX_PATH=$deps/usr;$deps"); fi
    cmake -S "$luge" -B "$build" "${generator[@]}" "${prefix[@]}" -DCMAKE_BUILD_TYPE=Release -DLUGE_CUDA=ON \
        "-DLUGE_CUDA_ARCHITECTURES=$(architecture)-real" -DLUGE_BUILD_TESTS=ON -DLUGE_BUILD_BENCH=ON \
        -DLUGE_BUILD_EXAMPLES=OFF &&
        cmake --build "$build" --parallel "$jobs"
}

stage_card() {
    local options=(-std=gnu11 -I"$luge" -I"$luge/include" -isystem "$cuda/include") name
    if [ -n "$CUDNN_HOME" ]; then options+=(-isystem "$CUDNN_HOME/include" -L"$CUDNN_HOME/lib" -L"$CUDNN_HOME/lib64"); fi
    cc "${options[@]}" "$luge/tests/cuda/dump_card.c" "$luge/cuda/dnn.c" -L"$cuda/lib64" -L"$cuda/lib" \
        -l:libcudnn.so.9 -lcudart -Wl,-rpath,"$cuda/lib64:$cuda/lib" -o "$build/dump_card" || return
    name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr 'A-Z ' 'a-z-')
    "$build/dump_card" >"$build/card.json" && cp "$build/card.json" "$out/$name.json" && cat "$out/$name.json"
}

# Of the tests, those whose tensors may lie on any device, as in tests/cuda/CMakeLists.txt.
device_tests() {
    find "$build/tests" -maxdepth 1 -name 'test_*' -type f -perm -u+x | sort |
        grep -Ev '/test_(cpu_.*|device|dtype|idx|iter|rng|shape|text)$'
}

# One test in a process of its own, its output kept if it fails. Its line is the result.
one_test() {
    local log status start=$SECONDS
    log=$(mktemp)
    LUGE_DEVICE=cuda timeout -k 5 100 "$1" >"$log" 2>&1
    status=$?
    case $status in
    0) echo "passed  $(basename "$1") $((SECONDS - start)) s" ;;
    77) echo "skipped $(basename "$1")" ;;
    *)
        echo "FAILED  $(basename "$1") with $status, $((SECONDS - start)) s"
        grep -E 'FAILED|ERROR|error:|\.c:[0-9]+' "$log" | head -n 40 | sed 's/^/        /'
        ;;
    esac
    rm -f "$log"
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ]
}

stage_tests() {
    export -f one_test
    # Host threads and the card's memory bound how many can run beside each other.
    device_tests | xargs -P $((jobs < 4 ? jobs : 4)) -I{} bash -c 'one_test {}'
}

# One test under one tool: TOOL NAME.
one_sanitized() {
    local log status
    log=$(mktemp)
    LUGE_DEVICE=cuda timeout -k 5 60 compute-sanitizer --tool "$1" --error-exitcode 99 --print-limit 5 \
        "$build/tests/test_$2" >"$log" 2>&1
    status=$?
    echo "$1 test_$2: $status"
    if [ "$status" -ne 0 ]; then grep -E '=========|FAILED' "$log" | head -n 40 | sed 's/^/        /'; fi
    rm -f "$log"
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ]
}

stage_sanitizer() {
    local tool name
    command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not here"; return 1; }
    export build
    export -f one_sanitized
    for tool in memcheck racecheck synccheck initcheck; do
        for name in reduce softmax loss norm pool2d dropout_embedding copy optim; do echo "$tool $name"; done
    done | xargs -P $((jobs < 4 ? jobs : 4)) -L 1 bash -c 'one_sanitized "$0" "$1"'
}

stage_bench() {
    local model batch failed=0
    for model in mlp:128 lenet:64 resnet18:128 transformer:16; do
        batch=${model#*:}
        timeout -k 5 20 "$build/bench/bench_train" "${model%:*}" "$batch" 2 4 cuda || { echo "$model: $?"; failed=1; }
    done
    if has_torch; then
        "$python" "$luge/bench/compare.py" "$build" --device cuda --rounds 3 --seconds 1 --threads 4 --python "$python" ||
            failed=1
    else
        echo "no PyTorch that sees the GPU: nothing to compare with"
    fi
    return $failed
}

# ---- running them

say() { echo "$*" | tee -a "$out/summary.txt"; }

run_stages() {
    local stage limit left status start bad=()
    local deadline=$((SECONDS + 60 * ${LUGE_GPU_MINUTES:-8}))
    : >"$out/summary.txt"
    say "$(card_names | head -n 1)"
    for stage in $stages; do
        limit=$(limit_of "$stage") left=$((deadline - SECONDS)) start=$SECONDS
        if [ "$left" -lt 5 ]; then
            say "$stage: no time left"
            bad+=("$stage")
            continue
        fi
        timeout -k 10 $((limit < left ? limit : left)) bash "$self" --stage "$stage" >"$out/$stage.log" 2>&1
        status=$?
        case $status in
        0) say "$stage: well, $((SECONDS - start)) s" ;;
        124 | 137) say "$stage: out of time after $((SECONDS - start)) s" ;;
        *) say "$stage: failed with $status, $((SECONDS - start)) s; see $stage.log" ;;
        esac
        [ $status -eq 0 ] || bad+=("$stage")
        if [ "$stage" = tests ]; then
            say "  $(grep -c '^passed' "$out/tests.log") passed, $(grep -c '^FAILED' "$out/tests.log") failed, $(grep -c '^skipped' "$out/tests.log") skipped"
            grep '^FAILED' "$out/tests.log" | sed 's/^/  /' | tee -a "$out/summary.txt"
        elif [ "$stage" = bench ]; then
            grep -v '^{' "$out/bench.log" | sed 's/^/  /' | tee -a "$out/summary.txt"
        fi
    done
    if [ ${#bad[@]} -gt 0 ]; then
        say "not well: ${bad[*]}"
        return 1
    fi
    say "all well"
}

dry_run() {
    local stage why
    why=$(missing)
    echo "source ${luge}, build $build, results $out"
    echo "GPU: $(card_names | head -n 1 | grep . || echo none)"
    echo "CUDA_HOME=$cuda CUDNN_HOME=$CUDNN_HOME LUGE_DEPS=$deps"
    if has_torch; then echo "PyTorch: yes"; else echo "PyTorch: none that sees a GPU"; fi
    for stage in $stages; do echo "stage $stage: at most $(limit_of "$stage") s"; done
    if [ -n "$why" ]; then
        echo "$why: nothing can be checked here" >&2
        exit 2
    fi
}

case ${1:-} in
'')
    why=$(missing)
    if [ -n "$why" ]; then
        echo "$why: nothing can be checked here" >&2
        exit 2
    fi
    mkdir -p "$out" || exit 1
    run_stages
    ;;
--stage) "stage_$2" ;;
--dry-run) dry_run ;;
--help | -h) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
