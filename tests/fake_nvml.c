/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnvidia-ml.so.1 for tests/test_report.py, which compiles it: one board at its power cap. */
static int set(unsigned *value, unsigned to)
{
    *value = to;
    return 0;
}

int nvmlInit_v2(void)
{
    return 0;
}
int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    static const char release[] = "580.159.04";
    for (unsigned i = 0; i < sizeof release && i < size; i++)
        text[i] = release[i];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = (void *)uuid;
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz)
{
    return set(mhz, kind == 1 ? 1410 : 6251);
}
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz)
{
    return set(mhz, 2040);
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    return set(celsius, 55);
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    return set(milliwatts, 72000);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons)
{
    *reasons = 4;
    return 0;
}
