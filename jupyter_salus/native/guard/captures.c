/* Which streams are being captured. While one is, the gate isn't shut and nothing of ours synchronises the device.
 *
 * A capture begins in a gated call, so none can begin while the gate is shut; ends are counted when the program says
 * so, or destroys the stream. */
#define _GNU_SOURCE
#include <time.h>

#include "guard.h"

enum { MAX_CAPTURES = 256 };

pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    struct {
        CUstream stream;
        int used;
    } at[MAX_CAPTURES];
    _Atomic unsigned running;
} captures;

unsigned captures_running(void) { return atomic_load(&captures.running); }

int captures_wait(double deadline)
{
    while (captures_running()) {
        if (clock_now() > deadline)
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return 1;
}

void captures_after_fork(void)
{
    pthread_mutex_init(&captures_lock, NULL);
    for (unsigned i = 0; i < MAX_CAPTURES; i++)
        captures.at[i].used = 0;
    atomic_store(&captures.running, 0);
}

static CUresult began(CUresult result, CUstream stream)
{
    int noted = 0;
    if (result || !guard_on)
        return result;
    pthread_mutex_lock(&captures_lock);
    for (unsigned i = 0; i < MAX_CAPTURES && !noted; i++)
        if (!captures.at[i].used) {
            captures.at[i].stream = stream;
            captures.at[i].used = noted = 1;
            atomic_fetch_add(&captures.running, 1);
        }
    pthread_mutex_unlock(&captures_lock);
    if (!noted)
        contexts_fix("more captures at a time than the guard keeps count of");
    return result;
}

static CUresult over(CUresult result, CUstream stream)
{
    int last = 0;
    if (!guard_on)
        return result;
    pthread_mutex_lock(&captures_lock);
    for (unsigned i = 0; i < MAX_CAPTURES; i++)
        if (captures.at[i].used && captures.at[i].stream == stream) {
            captures.at[i].used = 0;
            last = atomic_fetch_sub(&captures.running, 1) == 1;
            break;
        }
    pthread_mutex_unlock(&captures_lock);
    if (last)
        blocks_run_limbo();
    return result;
}

#define BEGIN(call) \
    struct flight *me = gate_enter(); \
    CUresult result = began(call, stream); \
    gate_leave(me); \
    return result

EXPORT CUresult cuStreamBeginCapture(CUstream stream) { BEGIN(REAL(cuStreamBeginCapture)(stream)); }
EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream) { BEGIN(REAL(cuStreamBeginCapture_ptsz)(stream)); }

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    BEGIN(REAL(cuStreamBeginCapture_v2)(stream, mode));
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
    BEGIN(REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode));
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const void *after, const void *edges,
                                            size_t count, int mode)
{
    BEGIN(REAL(cuStreamBeginCaptureToGraph)(stream, graph, after, edges, count, mode));
}

EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const void *after, const void *edges,
                                                 size_t count, int mode)
{
    BEGIN(REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, after, edges, count, mode));
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return over(REAL(cuStreamEndCapture)(stream, graph), stream);
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return over(REAL(cuStreamEndCapture_ptsz)(stream, graph), stream);
}

EXPORT CUresult cuStreamDestroy(CUstream stream) { return over(REAL(cuStreamDestroy)(stream), stream); }
EXPORT CUresult cuStreamDestroy_v2(CUstream stream) { return over(REAL(cuStreamDestroy_v2)(stream), stream); }

/* A graph's node that allocates takes memory that belongs to the graph and stays with the driver. */
static void see_node(const void *parameters)
{
    if (guard_on && parameters && *(const int *)parameters == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        contexts_fix("memory nodes of a graph");
}

EXPORT CUresult cuGraphAddNode(void *node, CUgraph graph, const void *after, size_t count, void *parameters)
{
    see_node(parameters);
    return REAL(cuGraphAddNode)(node, graph, after, count, parameters);
}

EXPORT CUresult cuGraphAddNode_v2(void *node, CUgraph graph, const void *after, const void *edges, size_t count,
                                  void *parameters)
{
    see_node(parameters);
    return REAL(cuGraphAddNode_v2)(node, graph, after, edges, count, parameters);
}
