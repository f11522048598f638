#!/bin/sh
# What a built hattn exports and calls: symbols.sh HEADER SHARED_LIBRARY OBJECT...
#   - the shared library exports every function that the header declares, and nothing else;
#   - it needs neither Halide nor LLVM nor Python at run time;
#   - what it has of RapidJSON, whose names say no version, is its own: applications may have another;
#   - no object of hattn's own C++ (the kernels and Halide's runtime are not among them) ends the process or prints.
set -eu
header=$1 library=$2
shift 2
status=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sed -n '/^HATTN_API/s/.*[ *]\(hattn_[a-z_]*\)(.*/\1/p' "$header" | sort >"$scratch/declared"
nm -D --defined-only "$library" | awk '{ print $3 }' | sort >"$scratch/exported"
[ -s "$scratch/declared" ] || { echo "$header declares no function"; status=1; }
if ! diff "$scratch/declared" "$scratch/exported" >"$scratch/difference"; then
    echo "declared in the header (<) and exported by $library (>) differ:"
    cat "$scratch/difference"
    status=1
fi

if readelf -d "$library" | grep NEEDED | grep -iE 'halide|llvm|python'; then
    echo "$library needs these at run time"
    status=1
fi

[ $# -gt 0 ] || { echo "no object to look into"; status=1; }
ends='abort|_?exit|_Exit|quick_exit|__assert_fail|raise|kill'
prints='printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|putc|fputc|fwrite|perror|write|std(out|err)'
prints="$prints|__(v?f?)printf_chk|_ZSt4c(out|err|log)"
for object in "$@"; do
    if nm --extern-only --defined-only "$object" | awk '{ print $3 }' | grep '^_Z[^5]*N9rapidjson'; then
        echo "$object defines these of RapidJSON's own namespace"
        status=1
    fi
    if nm --undefined-only "$object" | awk '{ print $2 }' | grep -xE "$ends|$prints"; then
        echo "$object calls these"
        status=1
    fi
done
exit $status
