"""A fake NVML: the functions of pynvml that the probes call, on GPUs that a test describes."""

from types import SimpleNamespace

HEALTHY = {
    "ecc": 0,
    "corrected": 3,
    "rows": (1, 0),
    "pending": 0,
    "failed": 0,
    "width": 16,
    "generation": 5,
    "links": 18,
    "fabric": 3,
    "status": 0,
    "reasons": 0x1,
    "processes": 0,
    "mig": 0,
    "memory": 80,
    "used": 0.6,
    "recoveries": 0,
    "replays": 0,
    "crc": 0,
    "fields": {},
    "persistence": 1,
    "power": 700_000,
    "clock": 1980,
    "ecc_mode": (1, 1),
    "vbios": "96.00.74.00.01",
    "serial": "1650000000000",
    "board": "900-00000-0000-000",
    "name": b"NVIDIA H100 80GB HBM3",
}
GPUS = ("GPU-a", "GPU-b")


ANSWERS = {
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetPersistenceMode": "persistence",
    "nvmlDeviceGetEccMode": "ecc_mode",
    "nvmlDeviceGetVbiosVersion": "vbios",
    "nvmlDeviceGetSerial": "serial",
    "nvmlDeviceGetBoardPartNumber": "board",
    "nvmlDeviceGetCurrPcieLinkWidth": "width",
    "nvmlDeviceGetCurrPcieLinkGeneration": "generation",
    "nvmlDeviceGetCurrentClocksEventReasons": "reasons",
    "nvmlDeviceGetEnforcedPowerLimit": "power",
    "nvmlDeviceGetApplicationsClock": "clock",
}
CONSTANTS = {
    "nvmlSystemGetDriverVersion": "570.86.15",
    "nvmlSystemGetCudaDriverVersion": 12080,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetPowerManagementDefaultLimit": HEALTHY["power"],
    "nvmlDeviceGetDefaultApplicationsClock": HEALTHY["clock"],
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:18:00.0"),
}


class FakeNvml:
    """The functions of pynvml that nvml.py calls; `gpus` are dictionaries like HEALTHY, a value may be an exception."""

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    class NVMLError_InvalidArgument(NVMLError):
        pass

    class NVMLError_Deprecated(NVMLError):
        value = 26

    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
    NVML_NVLINK_MAX_LINKS = 18
    NVML_NVLINK_ERROR_DL_REPLAY, NVML_NVLINK_ERROR_DL_RECOVERY, NVML_NVLINK_ERROR_DL_CRC_FLIT = 0, 1, 2
    c_nvmlGpuFabricInfoV_t = SimpleNamespace

    def __init__(self, *gpus):
        self.gpus = gpus

    @staticmethod
    def _of(gpu, key):
        if isinstance(gpu[key], Exception):
            raise gpu[key]
        return gpu[key]

    def byref(self, info):
        return info

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        self._of(self.gpus[index], "name")
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu):
        return GPUS[[known is gpu for known in self.gpus].index(True)]

    def nvmlDeviceGetGpuFabricInfoV(self, gpu, info):
        info.state, info.status = self._of(gpu, "fabric"), gpu["status"]
        info.healthMask, info.cliqueId = gpu.get("health", 0), 1
        info.clusterUuid = gpu.get("cluster", bytes(16))

    def nvmlDeviceGetNvLinkState(self, gpu, link):
        return link < self._of(gpu, "links")

    def nvmlDeviceGetNvLinkErrorCounter(self, gpu, link, counter):
        count = self._of(gpu, ("replays", "recoveries", "crc")[counter])
        return count if link == 5 else 0

    def nvmlDeviceGetFieldValues(self, gpu, asked):
        """NVML refuses each field by itself: 3, NotSupported. `fields`: counts of link 5. `recovery`: the action that a
        GPU needs; less than 0: the code with which the driver refuses the question."""
        if asked == [(230, 0)]:
            action = self._of({"recovery": 0} | gpu, "recovery")
            return [SimpleNamespace(nvmlReturn=max(0, -action), value=SimpleNamespace(uiVal=max(0, action)))]
        counts = [(gpu["fields"].get(field), link) for field, link in asked]
        values = [SimpleNamespace(ullVal=count or 0 if link == 5 else 0) for count, link in counts]
        codes = [3 if count is None else 0 for count, _ in counts]
        return [SimpleNamespace(nvmlReturn=code, value=value) for code, value in zip(codes, values, strict=True)]

    def nvmlDeviceGetRemappedRows(self, gpu):
        return [*gpu["rows"], self._of(gpu, "pending"), gpu["failed"]]

    def nvmlDeviceGetMigMode(self, gpu):
        return [self._of(gpu, "mig"), 0]

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return SimpleNamespace(total=self._of(gpu, "memory") * 2**30, used=int(gpu["used"] * 2**30))

    def nvmlDeviceGetTotalEccErrors(self, gpu, kind, counter):
        return self._of(gpu, "ecc") if kind == self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else gpu["corrected"]

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        return [None] * self._of(gpu, "processes")

    def __getattr__(self, function):
        if function in ANSWERS:
            return lambda gpu, *_: self._of(gpu, ANSWERS[function])
        if function in CONSTANTS:
            return lambda *_: CONSTANTS[function]
        raise AttributeError(function)
