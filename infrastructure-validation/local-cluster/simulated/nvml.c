/* A stand-in for libnvidia-ml.so.1: answers NVML's C interface from the state file of a simulated node.
 *
 * The file is $BRINGUP_SIMULATED_STATE or STATE_FILE; healthy.conf beside this file says what its keys mean. It is read anew for
 * every answer, so that a GPU can fail while somebody watches. No file: NVML_ERROR_DRIVER_NOT_LOADED, as on a host without GPUs.
 *
 * Names, structures and numbers are those of nvml.h. Functions that nobody here calls are absent, so that a caller gets what an
 * older driver gives: no such symbol.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_FILE "/run/bringup-simulated/state.conf"
#define API __attribute__((visibility("default")))
#define MAX_GPUS 64
#define MAX_PARTS 7
#define WORD 256

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, NOT_LOADED = 9, TIMEOUT, LOST = 15,
       VERSION_MISMATCH = 25, DEPRECATED = 26, UNKNOWN = 999 };

typedef struct { int index, part; } gpu_t;  /* part: of a GPU that is divided (MIG), from 1; 0: the GPU */

typedef struct {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
} pci_t;

typedef struct { unsigned long long total, free, used; } memory_t;

typedef struct {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
} process_t;

typedef struct {
  unsigned version;
  unsigned char cluster[16];
  unsigned status, clique, state, health;
} fabric_v2_t;

typedef struct { unsigned gpu, memory; } utilisation_t;

typedef struct {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int code;
  unsigned long long value;
} field_t;

typedef struct {
  gpu_t *gpu;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
} event_t;

_Static_assert(sizeof(pci_t) == 68 && sizeof(process_t) == 24 && sizeof(fabric_v2_t) == 36 && sizeof(field_t) == 40 &&
               sizeof(event_t) == 32, "the sizes of nvml.h");

static gpu_t gpus[MAX_GPUS], parts[MAX_GPUS][MAX_PARTS];
static int started;

/* ---- the state file */

/* The value of the first of these keys that the file has; of several lines with one key the last one counts. Returns the code
 * that the value asks for (`error:15`); a key that is nowhere is a mistake and must not pass for health. */
static int say(const char *const *keys, char value[WORD]) {
  const char *path = getenv("BRINGUP_SIMULATED_STATE");
  char line[512];
  int best = -1, code;
  FILE *file = fopen(path && *path ? path : STATE_FILE, "re");
  if (!file) return NOT_LOADED;
  while (fgets(line, sizeof line, file)) {
    char *equals = strchr(line, '=');
    if (line[0] == '#' || !equals) continue;
    *equals = 0;
    for (int i = 0; keys[i] && (best < 0 || i <= best); i++)
      if (!strcmp(line, keys[i])) {
        equals[1 + strcspn(equals + 1, "\r\n")] = 0;
        snprintf(value, WORD, "%.255s", equals + 1);
        best = i;
      }
  }
  fclose(file);
  if (best < 0) return UNKNOWN;
  return sscanf(value, "error:%d", &code) == 1 ? code : OK;
}

static int say_node(const char *key, char value[WORD]) { return say((const char *const[]){key, NULL}, value); }

static int say_gpu(int gpu, const char *key, char value[WORD]) {
  char own[WORD], all[WORD];
  snprintf(own, sizeof own, "gpu%d.%s", gpu, key);
  snprintf(all, sizeof all, "gpu.%s", key);
  return say((const char *const[]){own, all, NULL}, value);
}

static int say_link(int gpu, unsigned link, const char *what, char value[WORD]) {
  char own[WORD], its[WORD], all[WORD];
  snprintf(own, sizeof own, "gpu%d.nvlink%u%s", gpu, link, what);
  snprintf(its, sizeof its, "gpu%d.nvlink%s", gpu, what);
  snprintf(all, sizeof all, "gpu.nvlink%s", what);
  return say((const char *const[]){own, its, all, NULL}, value);
}

/* Words that are no number are a mistake in the file. */
static int number_in(const char *text, unsigned long long *value) {
  char *end;
  errno = 0;
  *value = strtoull(text, &end, 0);
  return errno || end == text || *end ? UNKNOWN : OK;
}

/* The place of the value among `words`; so is a word that is not among them. */
static int place_in(const char *const *words, const char *text, unsigned *place) {
  for (*place = 0; words[*place]; ++*place)
    if (!strcmp(words[*place], text)) return OK;
  return UNKNOWN;
}

/* ---- which GPUs there are */

static int may_open(int minor) {
  char path[32];
  snprintf(path, sizeof path, "/dev/nvidia%d", minor);
  int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0 || errno == ENXIO;  /* ENXIO: the kernel let us through to no driver */
}

static int listed(int at[MAX_GPUS], unsigned *count) {
  char text[WORD], devices[WORD];
  unsigned long long there;
  if (!started) return UNINITIALIZED;
  int code = say_node("gpus", text);
  if (code == OK) code = number_in(text, &there);
  if (code == OK) code = say_node("devices", devices);
  if (code != OK) return code;
  *count = 0;
  for (int i = 0; i < (int)there && i < MAX_GPUS; i++)
    if (strcmp(devices, "check") || may_open(i)) at[(*count)++] = i;
  return OK;
}

static int alive(const gpu_t *gpu) {
  char text[WORD];
  unsigned long long value;
  if (!started) return UNINITIALIZED;
  if (gpu < gpus || gpu >= gpus + MAX_GPUS) return INVALID_ARGUMENT;
  int code = say_gpu(gpu->index, "hang", text);
  if (code == OK) code = number_in(text, &value);
  if (code != OK) return code;
  if (value) sleep((unsigned)value);
  code = say_gpu(gpu->index, "lost", text);
  if (code == OK) code = number_in(text, &value);
  return code != OK ? code : value ? LOST : OK;
}

#define NEED(gpu, place) \
  do { \
    int code_ = alive(gpu); \
    if (code_ != OK) return code_; \
    if (!(place)) return INVALID_ARGUMENT; \
  } while (0)

static int copy_text(int code, const char *value, char *to, unsigned size) {
  if (code != OK) return code;
  if (strlen(value) >= size) return INSUFFICIENT_SIZE;
  strcpy(to, value);
  return OK;
}

static int text_of(const gpu_t *gpu, const char *key, char *to, unsigned size) {
  char value[WORD];
  NEED(gpu, to);
  return copy_text(say_gpu(gpu->index, key, value), value, to, size);
}

static int number_of(const gpu_t *gpu, const char *key, unsigned long long *to) {
  char text[WORD];
  NEED(gpu, to);
  int code = say_gpu(gpu->index, key, text);
  return code != OK ? code : number_in(text, to);
}

static int unsigned_of(const gpu_t *gpu, const char *key, unsigned *to) {
  unsigned long long value;
  int code = to ? number_of(gpu, key, &value) : INVALID_ARGUMENT;
  if (code == OK) *to = (unsigned)value;
  return code;
}

static int place_of(const gpu_t *gpu, const char *key, const char *const *words, unsigned *to) {
  char text[WORD];
  NEED(gpu, to);
  int code = say_gpu(gpu->index, key, text);
  return code != OK ? code : place_in(words, text, to);
}

/* ---- NVML, the node */

API int nvmlInitWithFlags(unsigned flags) {
  char value[WORD];
  (void)flags;
  int code = say_node("init", value);
  for (int i = 0; i < MAX_GPUS; i++) {
    gpus[i].index = i;
    for (int part = 0; part < MAX_PARTS; part++) parts[i][part] = (gpu_t){i, part + 1};
  }
  started = code == OK;
  return code;
}

API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API int nvmlInit(void) { return nvmlInitWithFlags(0); }  // torch calls it by its first name

API int nvmlShutdown(void) {
  int code = started ? OK : UNINITIALIZED;
  started = 0;
  return code;
}

API const char *nvmlErrorString(int code) {
  static const char *const words[] = {"Success", "Uninitialized", "Invalid Argument", "Not Supported",
      "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
      "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
      "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
      "Driver/library version mismatch"};
  return code >= 0 && code < (int)(sizeof words / sizeof *words) ? words[code]
         : code == VERSION_MISMATCH ? "Argument version mismatch"
         : code == DEPRECATED ? "Requested functionality has been deprecated" : "Unknown Error";
}

API int nvmlSystemGetDriverVersion(char *to, unsigned size) {
  char value[WORD];
  if (!started) return UNINITIALIZED;
  return copy_text(say_node("driver", value), value, to, size);
}

API int nvmlSystemGetCudaDriverVersion(int *to) {
  char text[WORD];
  unsigned long long value;
  if (!started) return UNINITIALIZED;
  int code = say_node("cuda", text);
  if (code == OK) code = number_in(text, &value);
  if (code == OK) *to = (int)value;
  return code;
}

API int nvmlDeviceGetCount_v2(unsigned *count) {
  int at[MAX_GPUS];
  return count ? listed(at, count) : INVALID_ARGUMENT;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu_t **gpu) {
  int at[MAX_GPUS];
  unsigned count;
  int code = listed(at, &count);
  if (code != OK) return code;
  if (index >= count) return INVALID_ARGUMENT;
  *gpu = &gpus[at[index]];
  return alive(*gpu);
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t **gpu) {
  int at[MAX_GPUS];
  unsigned count;
  char own[WORD];
  int code = listed(at, &count);
  if (code != OK) return code;
  for (unsigned i = 0; i < count; i++)
    if (say_gpu(at[i], "uuid", own) == OK && !strcmp(own, uuid)) {
      *gpu = &gpus[at[i]];
      return alive(*gpu);
    }
  return NOT_FOUND;
}

/* ---- NVML, a GPU: what it is */

API int nvmlDeviceGetName(const gpu_t *gpu, char *to, unsigned size) { return text_of(gpu, "name", to, size); }

/* Of a part as of its GPU, with MIG for GPU, and the number of the part at its end. */
API int nvmlDeviceGetUUID(const gpu_t *gpu, char *to, unsigned size) {
  if (!gpu || !gpu->part) return text_of(gpu, "uuid", to, size);
  int code = text_of(&gpus[gpu->index], "uuid", to, size);
  if (code != OK) return code;
  memcpy(to, "MIG", 3);
  to[strlen(to) - 1] = (char)('0' + gpu->part);
  return OK;
}

API int nvmlDeviceGetMemoryInfo(const gpu_t *gpu, memory_t *to) {
  if (!to) return INVALID_ARGUMENT;
  int code = number_of(gpu, "memory", &to->total);
  if (code == OK) code = number_of(gpu, "memory_used", &to->used);
  if (code == OK) to->free = to->total > to->used ? to->total - to->used : 0;
  return code;
}

API int nvmlDeviceGetPciInfo_v3(const gpu_t *gpu, pci_t *to) {
  char bus[WORD];
  unsigned id;
  NEED(gpu, to);
  int code = say_gpu(gpu->index, "bus", bus);  /* two hexadecimal digits */
  if (code == OK) code = unsigned_of(gpu, "device_id", &id);
  if (code != OK) return code;
  memset(to, 0, sizeof *to);
  to->bus = (unsigned)strtoul(bus, NULL, 16) & 0xff;
  to->device_id = id << 16 | 0x10de;
  snprintf(to->bus_id_legacy, sizeof to->bus_id_legacy, "0000:%02X:00.0", to->bus);
  snprintf(to->bus_id, sizeof to->bus_id, "00000000:%02X:00.0", to->bus);
  return OK;
}

static const char *const OFF_ON[] = {"off", "on", NULL};

API int nvmlDeviceGetMigMode(const gpu_t *gpu, unsigned *current, unsigned *pending) {
  int code = place_of(gpu, "mig", OFF_ON, current);
  if (code == OK && pending) *pending = *current;
  return code;
}

API int nvmlDeviceGetMaxMigDeviceCount(const gpu_t *gpu, unsigned *to) {
  NEED(gpu, to);
  *to = MAX_PARTS;
  return OK;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(const gpu_t *gpu, unsigned index, gpu_t **part) {
  unsigned count;
  int code = unsigned_of(gpu, "mig_devices", &count);
  if (code != OK || !part || index >= MAX_PARTS) return code != OK ? code : INVALID_ARGUMENT;
  *part = &parts[gpu->index][index];
  return index < count ? OK : NOT_FOUND;
}

API int nvmlDeviceGetPersistenceMode(const gpu_t *gpu, unsigned *to) { return place_of(gpu, "persistence", OFF_ON, to); }

API int nvmlDeviceGetEccMode(const gpu_t *gpu, unsigned *current, unsigned *pending) {
  static const char *const words[] = {"off", "on", "on_after_reset", "off_after_reset", NULL};
  unsigned place;
  int code = place_of(gpu, "ecc_mode", words, &place);
  if (code != OK) return code;
  *current = place & 1;
  *pending = place < 2 ? place : !*current;
  return OK;
}

API int nvmlDeviceGetComputeMode(const gpu_t *gpu, unsigned *to) {
  static const char *const modes[] = {"default", "exclusive_thread", "prohibited", "exclusive_process", NULL};
  return place_of(gpu, "compute_mode", modes, to);
}

API int nvmlDeviceGetVbiosVersion(const gpu_t *gpu, char *to, unsigned size) { return text_of(gpu, "vbios", to, size); }

API int nvmlDeviceGetSerial(const gpu_t *gpu, char *to, unsigned size) { return text_of(gpu, "serial", to, size); }

API int nvmlDeviceGetBoardPartNumber(const gpu_t *gpu, char *to, unsigned size) {
  return text_of(gpu, "board_part", to, size);
}

API int nvmlDeviceGetInforomImageVersion(const gpu_t *gpu, char *to, unsigned size) {
  return text_of(gpu, "inforom", to, size);
}

/* ---- its health */

API int nvmlDeviceGetTotalEccErrors(const gpu_t *gpu, unsigned type, unsigned counter, unsigned long long *to) {
  (void)counter;  /* volatile and aggregate alike */
  return type > 1 ? INVALID_ARGUMENT : number_of(gpu, type ? "ecc" : "ecc_corrected", to);
}

API int nvmlDeviceGetRemappedRows(const gpu_t *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
  int code = unsigned_of(gpu, "remapped_corrected", corrected);
  if (code == OK) code = unsigned_of(gpu, "remapped", uncorrected);
  if (code == OK) code = unsigned_of(gpu, "remap_pending", pending);
  return code != OK ? code : unsigned_of(gpu, "remap_failed", failed);
}

API int nvmlDeviceGetMaxPcieLinkWidth(const gpu_t *gpu, unsigned *to) { return unsigned_of(gpu, "pcie_max_width", to); }
API int nvmlDeviceGetCurrPcieLinkWidth(const gpu_t *gpu, unsigned *to) { return unsigned_of(gpu, "pcie_width", to); }
API int nvmlDeviceGetMaxPcieLinkGeneration(const gpu_t *gpu, unsigned *to) { return unsigned_of(gpu, "pcie_max_generation", to); }
API int nvmlDeviceGetCurrPcieLinkGeneration(const gpu_t *gpu, unsigned *to) { return unsigned_of(gpu, "pcie_generation", to); }
API int nvmlDeviceGetPcieReplayCounter(const gpu_t *gpu, unsigned *to) { return unsigned_of(gpu, "pcie_replays", to); }

API int nvmlDeviceGetCurrentClocksEventReasons(const gpu_t *gpu, unsigned long long *to) {
  static const char *const words[] = {"idle", "none", "sw_power_cap", "hw_slowdown", "hw_thermal", "hw_power_brake", NULL};
  static const unsigned bits[] = {0x1, 0x0, 0x4, 0x8, 0x48, 0x88};
  unsigned place;
  if (!to) return INVALID_ARGUMENT;
  int code = place_of(gpu, "throttle", words, &place);
  if (code == OK) *to = bits[place];
  return code;
}

static int has_link(const gpu_t *gpu, unsigned link) {
  unsigned links;
  int code = unsigned_of(gpu, "nvlinks", &links);
  return code != OK ? code : links == 0 ? NOT_SUPPORTED : link >= links ? INVALID_ARGUMENT : OK;
}

API int nvmlDeviceGetNvLinkState(const gpu_t *gpu, unsigned link, unsigned *up) {
  static const char *const words[] = {"down", "up", NULL};
  char text[WORD];
  int code = up ? has_link(gpu, link) : INVALID_ARGUMENT;
  if (code == OK) code = say_link(gpu->index, link, "", text);
  return code != OK ? code : place_in(words, text, up);
}

API int nvmlDeviceGetNvLinkErrorCounter(const gpu_t *gpu, unsigned link, unsigned counter, unsigned long long *to) {
  static const char *const kinds[] = {".replays", ".recoveries", ".crc"};
  char text[WORD];
  int code = to ? has_link(gpu, link) : INVALID_ARGUMENT;
  if (code == OK && counter > 2) code = NOT_SUPPORTED;
  if (code == OK) code = say_link(gpu->index, link, kinds[counter], text);
  return code != OK ? code : number_in(text, to);
}

/* Of the fields the action that a GPU needs, and those of NVLink 5 that count errors of a link; each is answered, or refused, by
 * itself. */
API int nvmlDeviceGetFieldValues(const gpu_t *gpu, int count, field_t *fields) {
  char text[WORD];
  NEED(gpu, fields);
  for (field_t *field = fields; field < fields + count; field++) {
    if (field->field == 230) {
      unsigned action = 0;
      field->type = 1;  /* unsigned int */
      field->code = unsigned_of(gpu, "recovery_action", &action);
      field->value = action;
      continue;
    }
    const char *key = field->field == 215 ? ".recovery_events" : field->field == 206 ? ".malformed"
                      : field->field == 208 ? ".received_errors" : NULL;
    field->type = 3;  /* unsigned long long */
    field->code = key ? has_link(gpu, field->scope) : NOT_SUPPORTED;
    if (field->code == OK) field->code = say_link(gpu->index, field->scope, key, text);
    if (field->code == OK) field->code = number_in(text, &field->value);
  }
  return OK;
}

API int nvmlDeviceGetGpuFabricInfoV(const gpu_t *gpu, fabric_v2_t *to) {
  static const char *const words[] = {"completed", "failed", "in_progress", "not_started", "not_supported", NULL};
  static const unsigned states[] = {3, 3, 2, 1, 0};
  unsigned place, cluster;
  if (!to) return INVALID_ARGUMENT;
  if (to->version != (sizeof *to | 2 << 24)) return VERSION_MISMATCH;
  int code = place_of(gpu, "fabric", words, &place);
  if (code != OK) return code;
  if (place == 4) return NOT_SUPPORTED;
  code = unsigned_of(gpu, "fabric_cluster", &cluster);
  if (code == OK) code = unsigned_of(gpu, "fabric_health", &to->health);
  if (code != OK) return code;
  memset(to->cluster, (int)cluster, sizeof to->cluster);
  to->state = states[place];
  to->status = place == 0 ? OK : UNKNOWN;
  to->clique = 0;
  return OK;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(const gpu_t *gpu, unsigned *count, process_t *to) {
  char text[WORD], *rest, *word;
  unsigned found = 0, room;
  NEED(gpu, count);
  int code = say_gpu(gpu->index, "processes", text);
  if (code != OK) return code;
  room = to ? *count : 0;
  for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest), found++)
    if (found < room) to[found] = (process_t){(unsigned)strtoul(word, NULL, 10), 1 << 30, ~0u, ~0u};
  *count = found;
  return found > room ? INSUFFICIENT_SIZE : OK;
}

/* ---- its load, for the monitor */

API int nvmlDeviceGetUtilizationRates(const gpu_t *gpu, utilisation_t *to) {
  if (!to) return INVALID_ARGUMENT;
  to->memory = 0;
  return unsigned_of(gpu, "utilisation", &to->gpu);
}

API int nvmlDeviceGetEnforcedPowerLimit(const gpu_t *gpu, unsigned *to) { return unsigned_of(gpu, "power_limit", to); }

API int nvmlDeviceGetPowerManagementDefaultLimit(const gpu_t *gpu, unsigned *to) {
  return unsigned_of(gpu, "power_default", to);
}

API int nvmlDeviceGetApplicationsClock(const gpu_t *gpu, unsigned type, unsigned *to) {
  return type == 1 ? unsigned_of(gpu, "application_clock", to) : NOT_SUPPORTED;
}

API int nvmlDeviceGetDefaultApplicationsClock(const gpu_t *gpu, unsigned type, unsigned *to) {
  return type == 1 ? unsigned_of(gpu, "clock_default", to) : NOT_SUPPORTED;
}

API int nvmlDeviceGetPowerUsage(const gpu_t *gpu, unsigned *to) { return unsigned_of(gpu, "power", to); }

API int nvmlDeviceGetTemperature(const gpu_t *gpu, unsigned sensor, unsigned *to) {
  return sensor ? INVALID_ARGUMENT : unsigned_of(gpu, "temperature", to);
}

API int nvmlDeviceGetClockInfo(const gpu_t *gpu, unsigned type, unsigned *to) {
  return type == 1 ? unsigned_of(gpu, "clock", to) : NOT_SUPPORTED;  /* 1: of the streaming multiprocessors */
}

/* ---- its events */

typedef struct {
  int watched[MAX_GPUS];
  unsigned reported[MAX_GPUS];  /* of the GPU's lines in `xids`: those before it was registered, and those that were waited for */
} events_t;

#define XID_EVENT 0x8
#define LOOK_MS 50

/* The driver's lines about a GPU: how many there are, and the number of the one at `place`. */
static int xids_of(int gpu, unsigned place, unsigned *count, unsigned long long *number) {
  char text[WORD], *rest, *word;
  unsigned long long xid;
  int its, code = say_node("xids", text);
  if (code != OK) return code;
  *count = 0;
  for (word = strtok_r(text, "|", &rest); word; word = strtok_r(NULL, "|", &rest)) {
    if (sscanf(word, "%llu@%d", &xid, &its) != 2) return UNKNOWN;
    if (its == gpu && (*count)++ == place) *number = xid;
  }
  return OK;
}

API int nvmlEventSetCreate(events_t **set) {
  if (!started) return UNINITIALIZED;
  *set = calloc(1, sizeof **set);
  return *set ? OK : UNKNOWN;
}

API int nvmlEventSetFree(events_t *set) {
  free(set);
  return OK;
}

API int nvmlDeviceGetSupportedEventTypes(const gpu_t *gpu, unsigned long long *to) {
  static const char *const words[] = {"none", "xid", NULL};
  unsigned place;
  if (!to) return INVALID_ARGUMENT;
  int code = place_of(gpu, "events", words, &place);
  if (code == OK) *to = place ? XID_EVENT : 0;
  return code;
}

API int nvmlDeviceRegisterEvents(const gpu_t *gpu, unsigned long long types, events_t *set) {
  unsigned long long supported, number;
  int code = nvmlDeviceGetSupportedEventTypes(gpu, &supported);
  if (code == OK && (!set || types & ~supported)) code = set ? NOT_SUPPORTED : INVALID_ARGUMENT;
  if (code == OK) code = xids_of(gpu->index, 0, &set->reported[gpu->index], &number);
  if (code == OK) set->watched[gpu->index] = 1;
  return code;
}

API int nvmlEventSetWait_v2(events_t *set, event_t *to, unsigned timeout_ms) {
  char text[WORD];
  unsigned count;
  if (!set || !to) return INVALID_ARGUMENT;
  for (;; timeout_ms -= LOOK_MS, usleep(LOOK_MS * 1000)) {
    for (int i = 0; i < MAX_GPUS; i++) {
      if (!set->watched[i]) continue;
      memset(to, 0, sizeof *to);
      int code = xids_of(i, set->reported[i], &count, &to->data);
      if (code != OK) return code;
      if (count > set->reported[i]) {
        set->reported[i]++;
        to->gpu = &gpus[i];
        to->type = XID_EVENT;
        to->gpu_instance = to->compute_instance = ~0u;
        return OK;
      }
      set->reported[i] = count;  /* fewer: it was repaired */
      code = say_gpu(i, "lost", text);
      if (code != OK || strcmp(text, "0")) return code != OK ? code : LOST;
    }
    if (timeout_ms < LOOK_MS) return TIMEOUT;
  }
}
