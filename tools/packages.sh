# shellcheck shell=bash
# What quickstart and check share: finding out what is missing, installing it, building. Sourced by bash.

needed=()
reasons=()

# need PACKAGE REASON: to be installed.
need() {
    needed+=("$1")
    reasons+=("  $1: $2")
}

has_header() {
    printf '#include <%s>\n' "$1" | cc -E - >/dev/null 2>&1
}

# What building Luge and its examples takes.
need_build() {
    command -v cmake >/dev/null || need cmake "to configure the build"
    command -v ninja >/dev/null || command -v make >/dev/null || need ninja-build "to build"
    if ! command -v cc >/dev/null || ! command -v c++ >/dev/null; then
        need g++ "to compile"
    fi
    has_header oneapi/dnnl/dnnl.h || need libdnnl-dev "oneDNN: fast products and convolutions"
    has_header zlib.h || need zlib1g-dev "to read .gz files"
    has_header jansson.h || need libjansson-dev "JSON, of safetensors files"
    has_header stb/stb_image_write.h || need libstb-dev "to write PNG files"
}

# Installs what `need` collected, or says what to install and ends.
install_needed() {
    [ ${#needed[@]} -gt 0 ] || return 0
    echo "Missing:" >&2
    printf '%s\n' "${reasons[@]}" >&2

    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
    if ! command -v apt-get >/dev/null || ! { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
        cat >&2 <<EOT
They cannot be installed from here (no apt-get, or neither root nor sudo). These are Debian's names; please
install what your system calls them, and run this again:
  ${needed[*]}
EOT
        exit 1
    fi
    echo "Installing with apt-get: ${needed[*]}" >&2
    local log
    log=$(mktemp)
    if ! { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
           "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
               apt-get install -q -y --no-install-recommends "${needed[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "apt-get failed. On Ubuntu the packages are in \"universe\": sudo add-apt-repository universe" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}

# The build uses what came with CMake 3.25; older distributions have less.
check_cmake() {
    local version
    version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
    if [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" != 3.25 ]; then
        echo "CMake 3.25 or newer is needed, this is $version: get one from https://cmake.org/download" >&2
        exit 1
    fi
}

# Whether the driver of an NVIDIA GPU is here.
has_gpu_driver() {
    ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' || [ -e /usr/lib/wsl/lib/libcuda.so.1 ]
}

# build SOURCE BUILD [cmake options]: quietly, unless it fails.
build() {
    local source=$1 directory=$2 log
    shift 2
    check_cmake
    local generator=()
    if [ ! -f "$directory/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
    log=$(mktemp)
    echo "Building in $directory ..." >&2
    if ! { cmake -S "$source" -B "$directory" "${generator[@]}" "$@" &&
           cmake --build "$directory" --parallel "$(nproc 2>/dev/null || echo 2)"; } >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        echo "The build failed; its last lines are above." >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}
