/* A libnvidia-ml.so.1 for tests: the calls that the product makes through pynvml, answered from a text file.
 *
 * $FAKE_NVML names the file: one "key value" a line, '#' begins a comment. Lines before the first `gpu` are about
 * the machine, those after a `gpu` about that card, those after a `mig` about that slice of it. A number that is
 * not given is "not supported". `fail N` makes the machine's nvmlInit, or everything about a card, return N.
 * Source of the signatures: NVML API reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_GPUS 32
#define MAX_MIGS 8
#define TEXT 96
#define ABSENT (-1LL)

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7 };

struct device {
    struct device *parent; /* NULL for a card, the card for a slice */
    int index, fail, handle_fail, migs;
    char name[TEXT], uuid[TEXT], pci[TEXT];
    long long minor, memory, compute_mode, mig_mode, mig_pending, gi, ci, sm, memory_mb;
    struct device *slices; /* MAX_MIGS; an unused one has no uuid */
};

static struct {
    int loaded, fail, count;
    char driver[TEXT];
    long long cuda, cc_environment, cc_feature, cc_dev_tools, cc_ready;
    struct device gpus[MAX_GPUS];
} machine;

static void blank(struct device *device, struct device *parent, int index) {
    memset(device, 0, sizeof *device);
    device->parent = parent;
    device->index = index;
    device->minor = device->memory = device->compute_mode = device->mig_mode = device->mig_pending = ABSENT;
    device->gi = device->ci = device->sm = device->memory_mb = ABSENT;
}

struct key {
    const char *name;
    long long *number; /* one of number, small and text */
    int *small;
    char *text;
};

static int assign(const struct key *keys, const char *name, const char *value) {
    for (; keys->name != NULL; keys++) {
        if (strcmp(keys->name, name) != 0)
            continue;
        if (keys->text != NULL)
            snprintf(keys->text, TEXT, "%s", value);
        else if (keys->small != NULL)
            *keys->small = atoi(value);
        else
            *keys->number = atoll(value);
        return 1;
    }
    return 0;
}

static int about_machine(const char *name, const char *value) {
    const struct key keys[] = {
        {"fail", NULL, &machine.fail, NULL},
        {"driver", NULL, NULL, machine.driver},
        {"cuda", &machine.cuda, NULL, NULL},
        {"cc_environment", &machine.cc_environment, NULL, NULL},
        {"cc_feature", &machine.cc_feature, NULL, NULL},
        {"cc_dev_tools", &machine.cc_dev_tools, NULL, NULL},
        {"cc_ready", &machine.cc_ready, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    return assign(keys, name, value);
}

static int about_device(struct device *device, const char *name, const char *value) {
    const struct key keys[] = {
        {"fail", NULL, &device->fail, NULL},
        {"handle_fail", NULL, &device->handle_fail, NULL},
        {"name", NULL, NULL, device->name},
        {"uuid", NULL, NULL, device->uuid},
        {"pci", NULL, NULL, device->pci},
        {"minor", &device->minor, NULL, NULL},
        {"memory", &device->memory, NULL, NULL},
        {"compute_mode", &device->compute_mode, NULL, NULL},
        {"mig_mode", &device->mig_mode, NULL, NULL},
        {"mig_pending", &device->mig_pending, NULL, NULL},
        {"gi", &device->gi, NULL, NULL},
        {"ci", &device->ci, NULL, NULL},
        {"sm", &device->sm, NULL, NULL},
        {"memory_mb", &device->memory_mb, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    return assign(keys, name, value);
}

static void refuse(const char *line) {
    fprintf(stderr, "fake_nvml: cannot use '%s'\n", line);
    abort();
}

static struct device *begin(const char *word, struct device *current) {
    if (strcmp(word, "gpu") == 0 && machine.count < MAX_GPUS) {
        struct device *gpu = &machine.gpus[machine.count];
        blank(gpu, NULL, machine.count++);
        gpu->slices = calloc(MAX_MIGS, sizeof *gpu->slices);
        return gpu;
    }
    struct device *gpu = current != NULL && current->parent != NULL ? current->parent : current;
    if (strcmp(word, "mig") == 0 && gpu != NULL && gpu->migs < MAX_MIGS) {
        struct device *slice = &gpu->slices[gpu->migs];
        blank(slice, gpu, gpu->migs++);
        return slice;
    }
    return NULL;
}

static void load(void) {
    char line[256];
    struct device *current = NULL;
    const char *path = getenv("FAKE_NVML");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL)
        refuse("$FAKE_NVML");
    machine.cuda = machine.cc_environment = machine.cc_feature = machine.cc_dev_tools = machine.cc_ready = ABSENT;
    while (fgets(line, sizeof line, file) != NULL) {
        char *name = line + strspn(line, " \t");
        name[strcspn(name, "\r\n#")] = '\0';
        char *value = name + strcspn(name, " \t");
        if (*name == '\0')
            continue;
        if (*value == '\0') {
            current = begin(name, current);
            if (current == NULL)
                refuse(name);
            continue;
        }
        *value++ = '\0';
        value += strspn(value, " \t");
        for (size_t end = strlen(value); end > 0 && value[end - 1] == ' ';)
            value[--end] = '\0';
        if (!(current == NULL ? about_machine(name, value) : about_device(current, name, value)))
            refuse(name);
    }
    fclose(file);
    machine.loaded = 1;
}

static int start(void) {
    if (!machine.loaded)
        load();
    return machine.fail;
}

/* What must be returned before a device can be asked at all. */
static int broken(const struct device *device) {
    if (!machine.loaded)
        return UNINITIALIZED;
    if (device == NULL)
        return INVALID;
    return device->parent != NULL && device->parent->fail ? device->parent->fail : device->fail;
}

static int copy(char *to, unsigned int size, const char *from) {
    if (*from == '\0')
        return NOT_SUPPORTED;
    if (strlen(from) >= size)
        return SMALL;
    strcpy(to, from);
    return SUCCESS;
}

static int number(const struct device *device, long long value, unsigned int *to) {
    int code = broken(device);
    if (code != SUCCESS)
        return code;
    if (value == ABSENT)
        return NOT_SUPPORTED;
    *to = (unsigned int)value;
    return SUCCESS;
}

EXPORT int nvmlInitWithFlags(unsigned int flags) { (void)flags; return start(); }
EXPORT int nvmlInit_v2(void) { return start(); }
EXPORT int nvmlShutdown(void) { return SUCCESS; }

EXPORT const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}

EXPORT int nvmlSystemGetDriverVersion(char *to, unsigned int size) { return copy(to, size, machine.driver); }

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *to) {
    if (machine.cuda == ABSENT)
        return NOT_SUPPORTED;
    *to = (int)machine.cuda;
    return SUCCESS;
}

struct conf_compute {
    unsigned int environment, feature, dev_tools;
};

EXPORT int nvmlSystemGetConfComputeState(struct conf_compute *to) {
    if (machine.cc_environment == ABSENT)
        return NOT_SUPPORTED;
    to->environment = (unsigned int)machine.cc_environment;
    to->feature = (unsigned int)machine.cc_feature;
    to->dev_tools = (unsigned int)machine.cc_dev_tools;
    return SUCCESS;
}

EXPORT int nvmlSystemGetConfComputeGpusReadyState(unsigned int *to) {
    if (machine.cc_ready == ABSENT)
        return NOT_SUPPORTED;
    *to = (unsigned int)machine.cc_ready;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned int *to) {
    *to = (unsigned int)machine.count;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct device **to) {
    if (index >= (unsigned int)machine.count)
        return INVALID;
    *to = &machine.gpus[index];
    return (*to)->handle_fail;
}

EXPORT int nvmlDeviceGetName(struct device *device, char *to, unsigned int size) {
    int code = broken(device);
    return code != SUCCESS ? code : copy(to, size, device->name);
}

EXPORT int nvmlDeviceGetUUID(struct device *device, char *to, unsigned int size) {
    int code = broken(device);
    return code != SUCCESS ? code : copy(to, size, device->uuid);
}

struct pci_info {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
    char bus_id[32];
};

EXPORT int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *to) {
    int code = broken(device);
    if (code != SUCCESS)
        return code;
    memset(to, 0, sizeof *to);
    return copy(to->bus_id, sizeof to->bus_id, device->pci);
}

EXPORT int nvmlDeviceGetMinorNumber(struct device *device, unsigned int *to) {
    return number(device, device->minor, to);
}

EXPORT int nvmlDeviceGetComputeMode(struct device *device, unsigned int *to) {
    return number(device, device->compute_mode, to);
}

struct memory {
    unsigned long long total, free, used;
};

EXPORT int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *to) {
    int code = broken(device);
    if (code != SUCCESS)
        return code;
    if (device->memory == ABSENT)
        return NOT_SUPPORTED;
    to->total = to->free = (unsigned long long)device->memory;
    to->used = 0;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMigMode(struct device *device, unsigned int *mode, unsigned int *pending) {
    int code = number(device, device->mig_mode, mode);
    if (code == SUCCESS)
        *pending = (unsigned int)(device->mig_pending == ABSENT ? device->mig_mode : device->mig_pending);
    return code;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned int *to) {
    return number(device, MAX_MIGS, to);
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned int index, struct device **to) {
    int code = broken(device);
    if (code != SUCCESS)
        return code;
    if (index >= MAX_MIGS || device->slices[index].uuid[0] == '\0')
        return NOT_FOUND;
    *to = &device->slices[index];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetGpuInstanceId(struct device *device, unsigned int *to) {
    return number(device, device->gi, to);
}

EXPORT int nvmlDeviceGetComputeInstanceId(struct device *device, unsigned int *to) {
    return number(device, device->ci, to);
}

struct attributes {
    unsigned int sm, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mb;
};

EXPORT int nvmlDeviceGetAttributes_v2(struct device *device, struct attributes *to) {
    memset(to, 0, sizeof *to);
    int code = number(device, device->sm, &to->sm);
    to->memory_mb = (unsigned long long)device->memory_mb;
    return code;
}
