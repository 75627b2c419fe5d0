// The kernels of the tests, as the stand-in driver knows them by name.
extern "C" __global__ void fill32(unsigned *at, unsigned long long count, unsigned value)
{
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        at[i] = value;
}
extern "C" __global__ void add32(unsigned *to, const unsigned *from, unsigned long long count)
{
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] += from[i];
}
extern "C" __global__ void mix64(unsigned long long *at, unsigned long long count, unsigned rounds)
{
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        unsigned long long x = at[i];
        for (unsigned r = rounds; r; r--) {
            x ^= x >> 29;
            x = x * 6364136223846793005ull + 1442695040888963407ull;
        }
        at[i] = x;
    }
}
extern "C" __global__ void spin(unsigned long long nanoseconds)
{
    unsigned long long from, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - from < nanoseconds);
}
