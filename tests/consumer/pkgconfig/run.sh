#!/bin/sh
# Builds and runs the C consumer with what pkg-config says: run.sh COMPILER SOURCE PREFIX FOLDER
set -eu
compiler=$1 source=$2 prefix=$3 folder=$4
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name hattn.pc)")
export PKG_CONFIG_PATH
mkdir -p "$folder"
# The flags are words, one option each.
# shellcheck disable=SC2046
"$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags hattn) "$source" \
    $(pkg-config --libs hattn) -lm -o "$folder/consumer"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir hattn) "$folder/consumer"
