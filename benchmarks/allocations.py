"""Counts what Python allocates: calls of the allocators behind objects and buffers, without a profiler in the way.

Python keeps no such count. It does let its allocators be replaced (``PyMem_SetAllocator``), so twenty lines of C are
compiled when this is first asked, which pass everything on and count. What Python takes from its own free lists (small
tuples, floats, lists) is no allocation here. Where there is no C compiler, nothing is counted.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SOURCE = """
#include <stddef.h>
typedef struct {
    void *ctx;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} Allocator;
extern void PyMem_GetAllocator(int, Allocator *);
extern void PyMem_SetAllocator(int, Allocator *);
static Allocator before[3];
long long allocations = 0;
static void *counted_malloc(void *a, size_t n) {
    allocations++; return ((Allocator *)a)->malloc(((Allocator *)a)->ctx, n); }
static void *counted_calloc(void *a, size_t k, size_t n) {
    allocations++; return ((Allocator *)a)->calloc(((Allocator *)a)->ctx, k, n); }
static void *counted_realloc(void *a, void *p, size_t n) {
    allocations++; return ((Allocator *)a)->realloc(((Allocator *)a)->ctx, p, n); }
static void passed_free(void *a, void *p) { ((Allocator *)a)->free(((Allocator *)a)->ctx, p); }
void install(void) {
    for (int domain = 1; domain < 3; domain++) {  /* PYMEM_DOMAIN_MEM and PYMEM_DOMAIN_OBJ: both hold the GIL */
        PyMem_GetAllocator(domain, &before[domain]);
        Allocator now = {&before[domain], counted_malloc, counted_calloc, counted_realloc, passed_free};
        PyMem_SetAllocator(domain, &now);
    }
}
"""


@cache
def counter() -> ctypes.c_longlong | None:
    """The running count of allocations and reallocations; ``None`` without a C compiler.

    The first call puts the counting allocators in place, for the rest of the process.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "allocations.c"), Path(folder, "allocations.so")
        source.write_text(SOURCE, encoding="ascii")
        command = ["cc", "-O2", "-fPIC", "-shared", str(source), "-o", str(library)]
        command += ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        try:
            subprocess.run(command, capture_output=True, check=True)
            loaded = ctypes.PyDLL(str(library))
        except (OSError, subprocess.CalledProcessError):
            return None
    loaded.install()
    return ctypes.c_longlong.in_dll(loaded, "allocations")
