/* A small libnvidia-ml.so.1 for tests: what the real pynvml calls, with answers worked by hand.
 *
 * $FAKE_NVML scripts it, words between blanks:
 *   gpus=2            how many there are (1)
 *   init=18           nvmlInit fails with this code
 *   lost=1 after=3    GPU 1 is lost within its fourth sample (after=-1: from the start)
 *   mig=0             GPU 0 is divided into two MIG devices, at places 0 and 2
 *   no=power,memory   the calls that are not supported, by the names below
 *   fails=power       the calls that fail with code 999, at every second time
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, UNKNOWN = 999 };
#define GIB (1ull << 30)
#define API __attribute__((visibility("default")))

/* A MIG device has the number of its GPU and its place on it plus 1. */
typedef struct {
    int gpu, part, reads, calls;
} Device;
static Device devices[16][4];

static const char *word(const char *key) {
    const char *at = getenv("FAKE_NVML");
    size_t length = strlen(key);
    while (at && *at) {
        if (!strncmp(at, key, length) && at[length] == '=') return at + length + 1;
        at = strchr(at, ' ');
        if (at) at++;
    }
    return NULL;
}

static long number(const char *key, long otherwise) {
    const char *text = word(key);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static int listed(const char *key, const char *name) {
    const char *at = word(key);
    size_t length = strlen(name);
    while (at && *at && *at != ' ') {
        size_t here = strcspn(at, ", ");
        if (here == length && !strncmp(at, name, length)) return 1;
        at += here + (at[here] == ',');
    }
    return 0;
}

/* What a call of this name gives for the device. */
static int state(Device *device, const char *name) {
    if (device->gpu == number("lost", -1) && devices[device->gpu][0].reads > number("after", 0))
        return LOST;
    if (listed("no", name)) return UNSUPPORTED;
    if (listed("fails", name) && device->calls++ % 2) return UNKNOWN;
    return OK;
}

static int whole(Device *device, const char *name) {
    int is = state(device, name);
    return is == OK && device->part ? UNSUPPORTED : is; /* a MIG device has memory, and no more */
}

static int divided(Device *device) { return !device->part && device->gpu == number("mig", -1); }

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (int gpu = 0; gpu < 16; gpu++)
        for (int part = 0; part < 4; part++) {
            devices[gpu][part].gpu = gpu;
            devices[gpu][part].part = part;
        }
    return (int)number("init", OK);
}
API int nvmlShutdown(void) { return OK; }
API const char *nvmlErrorString(int code) { return code == UNKNOWN ? "Unknown Error" : "an error"; }
API int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "580.1");
    return OK;
}
API int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)number("gpus", 1);
    return OK;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    *device = &devices[index][0];
    return state(*device, "handle");
}
API int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    snprintf(text, size, "%s-%08x-0000-0000-0000-00000000000%x", device->part ? "MIG" : "GPU",
             0xa0 + (unsigned)device->gpu, (unsigned)device->part);
    return state(device, "uuid");
}
API int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
    snprintf(text, size, device->part ? "Fake H200 MIG 1g.18gb" : "Fake H200");
    return state(device, "name");
}
API int nvmlDeviceGetPciInfo_v3(Device *device, char *info) {
    memset(info, 0, 68);
    snprintf(info + 36, 32, "00000000:%02X:00.0", 0x17 + (unsigned)device->gpu);
    return state(device, "pci");
}
API int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *pending) {
    *now = *pending = (unsigned)divided(device);
    return number("mig", -1) < 0 ? UNSUPPORTED : state(device, "mig");
}
API int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    *count = 3;
    return state(device, "mig");
}
API int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned place, Device **part) {
    *part = &devices[device->gpu][place + 1];
    return place == 1 ? NOT_FOUND : state(device, "mig");
}
API int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    *id = 6 + (unsigned)device->part;
    return OK;
}
API int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) {
    (void)device;
    *id = 0;
    return OK;
}
API int nvmlDeviceGetUtilizationRates(Device *device, unsigned *rates) {
    int is = divided(device) ? UNSUPPORTED : whole(device, "utilization");
    rates[0] = 50 + (unsigned)device->gpu;
    rates[1] = 20 + (unsigned)device->gpu;
    device->reads++;
    return is;
}
API int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *memory) {
    memory[0] = device->part ? 18 * GIB : 141 * GIB;
    memory[2] = (unsigned long long)(1 + device->gpu) * GIB;
    memory[1] = memory[0] - memory[2];
    return state(device, "memory");
}
#define PLAIN(function, name, value)                                                               \
    API int function(Device *device, unsigned *answer) {                                           \
        *answer = (unsigned)(value);                                                               \
        return whole(device, name);                                                                \
    }
PLAIN(nvmlDeviceGetPowerUsage, "power", 300000 + device->gpu)
PLAIN(nvmlDeviceGetEnforcedPowerLimit, "power_limit", 700000)
API int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *mj) {
    *mj = 5000000000ull + (unsigned)device->reads;
    return whole(device, "energy");
}
API int nvmlDeviceGetClockInfo(Device *device, int which, unsigned *mhz) {
    *mhz = which == 1 ? 1755 : 3201; /* 1: SM, 2: memory */
    return whole(device, "clock");
}
API int nvmlDeviceGetMaxClockInfo(Device *device, int which, unsigned *mhz) {
    (void)which;
    *mhz = 1980;
    return whole(device, "clock");
}
API int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    (void)sensor;
    *celsius = 40 + (unsigned)device->gpu;
    return whole(device, "temperature");
}
/* A driver that knows it by its old name only. */
API int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *bits) {
    *bits = 0x4; /* the power cap */
    return whole(device, "throttle");
}
API int nvmlDeviceGetPcieThroughput(Device *device, int which, unsigned *kb_s) {
    struct timespec window = {0, 20 * 1000 * 1000}; /* as long as the real one takes */
    *kb_s = which == 0 ? 1000 : 2000;
    int is = whole(device, "pcie");
    if (is == OK) nanosleep(&window, NULL);
    return is;
}
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    int type, code;
    unsigned long long value;
} Field;
API int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        int is = whole(device, "nvlink");
        fields[i].code = fields[i].scope != 0xFFFFFFFFu ? UNKNOWN : is;
        fields[i].type = 3; /* unsigned long long */
        fields[i].value = fields[i].field == 138 ? 7 : 9; /* KiB sent, received */
    }
    return OK;
}
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} Process;
API int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *found) {
    int is = state(device, "processes");
    if (is != OK) return is;
    if (*count < 2) return *count = 2, TOO_SMALL;
    *count = 2;
    memset(found, 0, 2 * sizeof *found);
    found[0].pid = 4000 + (unsigned)device->gpu;
    found[0].used = GIB / 2;
    found[1].pid = 5000 + (unsigned)device->gpu;
    found[1].used = ~0ull; /* the driver does not tell */
    return OK;
}
