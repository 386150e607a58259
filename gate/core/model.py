"""Docker's container types as field tables: what create, update, commit and connect carry. Pure.

Source: Docker Engine API up to 1.51, Go types `container.Config`, `container.HostConfig`, `network.*`,
`mount.Mount`. Every key that engines 25 to 28 read is here; what is not here is dropped and named.
"""

# ruff: noqa: RUF009 - wire() makes a dataclass field

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gate.core.kinds import (
    BOOL,
    INT64,
    MAX_ITEMS,
    SET,
    SIZE,
    STR_SLICE,
    STRING,
    STRING_LISTS,
    STRING_MAP,
    STRINGS,
    UINT16,
    UINT32,
    UINT64,
    at_most,
    map_of,
    pointer,
    slice_of,
    wire,
)
from gate.core.structs import struct

Strings = tuple[str, ...] | None
StringMap = Mapping[str, str] | None
_POINTER_INT = pointer(INT64)
_POINTER_BOOL = pointer(BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthcheck:
    """`container.HealthConfig`; durations in nanoseconds."""

    test: Strings = wire("Test", STRINGS)
    interval: int = wire("Interval", INT64)
    timeout: int = wire("Timeout", INT64)
    start_period: int = wire("StartPeriod", INT64)
    start_interval: int = wire("StartInterval", INT64)
    retries: int = wire("Retries", INT64)


HEALTHCHECK = struct(Healthcheck, "Healthcheck")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """`container.Config`: what the image's own configuration is merged with."""

    hostname: str = wire("Hostname", STRING)
    domainname: str = wire("Domainname", STRING)
    user: str = wire("User", STRING)
    attach_stdin: bool = wire("AttachStdin", BOOL)
    attach_stdout: bool = wire("AttachStdout", BOOL)
    attach_stderr: bool = wire("AttachStderr", BOOL)
    exposed_ports: Mapping[str, None] | None = wire("ExposedPorts", SET)
    tty: bool = wire("Tty", BOOL)
    open_stdin: bool = wire("OpenStdin", BOOL)
    stdin_once: bool = wire("StdinOnce", BOOL)
    env: Strings = wire("Env", STRINGS)
    cmd: Strings = wire("Cmd", STR_SLICE)
    healthcheck: Healthcheck | None = wire("Healthcheck", pointer(HEALTHCHECK))
    args_escaped: bool = wire("ArgsEscaped", BOOL)
    image: str = wire("Image", STRING)
    volumes: Mapping[str, None] | None = wire("Volumes", SET)
    working_dir: str = wire("WorkingDir", STRING)
    entrypoint: Strings = wire("Entrypoint", STR_SLICE)
    network_disabled: bool = wire("NetworkDisabled", BOOL)
    mac_address: str = wire("MacAddress", STRING)
    on_build: Strings = wire("OnBuild", STRINGS)
    labels: StringMap = wire("Labels", STRING_MAP)
    stop_signal: str = wire("StopSignal", STRING)
    stop_timeout: int | None = wire("StopTimeout", _POINTER_INT)
    shell: Strings = wire("Shell", STR_SLICE)


CONFIG = struct(Config, "Config")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMapping:
    """`container.DeviceMapping`: a raw host device. Read in order to be refused."""

    path_on_host: str = wire("PathOnHost", STRING)
    path_in_container: str = wire("PathInContainer", STRING)
    cgroup_permissions: str = wire("CgroupPermissions", STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """`container.DeviceRequest`: devices by driver; `cdi` takes qualified names."""

    driver: str = wire("Driver", STRING)
    count: int = wire("Count", INT64)
    device_ids: Strings = wire("DeviceIDs", at_most(MAX_ITEMS, STRINGS))
    capabilities: tuple[Strings, ...] | None = wire("Capabilities", STRING_LISTS)
    options: StringMap = wire("Options", STRING_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlkioWeightDevice:
    """`blkiodev.WeightDevice`."""

    path: str = wire("Path", STRING)
    weight: int = wire("Weight", UINT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlkioThrottleDevice:
    """`blkiodev.ThrottleDevice`."""

    path: str = wire("Path", STRING)
    rate: int = wire("Rate", UINT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ulimit:
    """`units.Ulimit`."""

    name: str = wire("Name", STRING)
    hard: int = wire("Hard", INT64)
    soft: int = wire("Soft", INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """`container.RestartPolicy`."""

    name: str = wire("Name", STRING)
    maximum_retry_count: int = wire("MaximumRetryCount", INT64)


RESTART_POLICY = struct(RestartPolicy, "RestartPolicy")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """`container.LogConfig`."""

    type_: str = wire("Type", STRING)
    config: StringMap = wire("Config", STRING_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortBinding:
    """`nat.PortBinding`."""

    host_ip: str = wire("HostIp", STRING)
    host_port: str = wire("HostPort", STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindOptions:
    """`mount.BindOptions`."""

    propagation: str = wire("Propagation", STRING)
    non_recursive: bool = wire("NonRecursive", BOOL)
    create_mountpoint: bool = wire("CreateMountpoint", BOOL)
    read_only_non_recursive: bool = wire("ReadOnlyNonRecursive", BOOL)
    read_only_force_recursive: bool = wire("ReadOnlyForceRecursive", BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeDriver:
    """`mount.Driver`."""

    name: str = wire("Name", STRING)
    options: StringMap = wire("Options", STRING_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeOptions:
    """`mount.VolumeOptions`."""

    no_copy: bool = wire("NoCopy", BOOL)
    labels: StringMap = wire("Labels", STRING_MAP)
    subpath: str = wire("Subpath", STRING)
    driver_config: VolumeDriver | None = wire("DriverConfig", pointer(struct(VolumeDriver, "DriverConfig")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """`mount.ImageOptions`."""

    subpath: str = wire("Subpath", STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TmpfsOptions:
    """`mount.TmpfsOptions`."""

    size_bytes: int = wire("SizeBytes", INT64)
    mode: int = wire("Mode", UINT32)
    options: tuple[Strings, ...] | None = wire("Options", STRING_LISTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """`mount.ClusterOptions`, which has no fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """`mount.Mount`."""

    type_: str = wire("Type", STRING)
    source: str = wire("Source", STRING)
    target: str = wire("Target", STRING)
    read_only: bool = wire("ReadOnly", BOOL)
    consistency: str = wire("Consistency", STRING)
    bind_options: BindOptions | None = wire("BindOptions", pointer(struct(BindOptions, "BindOptions")))
    volume_options: VolumeOptions | None = wire(
        "VolumeOptions", pointer(struct(VolumeOptions, "VolumeOptions"))
    )
    image_options: ImageOptions | None = wire("ImageOptions", pointer(struct(ImageOptions, "ImageOptions")))
    tmpfs_options: TmpfsOptions | None = wire("TmpfsOptions", pointer(struct(TmpfsOptions, "TmpfsOptions")))
    cluster_options: ClusterOptions | None = wire(
        "ClusterOptions", pointer(struct(ClusterOptions, "ClusterOptions"))
    )


_WEIGHT_DEVICES = slice_of(struct(BlkioWeightDevice, "BlkioWeightDevice"), null_elements=False)
_THROTTLE_DEVICES = slice_of(struct(BlkioThrottleDevice, "BlkioThrottleDevice"), null_elements=False)
_DEVICE_REQUESTS = slice_of(struct(DeviceRequest, "DeviceRequests"))
_PORT_BINDINGS = map_of(slice_of(struct(PortBinding, "PortBindings")))
Throttles = tuple[BlkioThrottleDevice, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """`container.Resources`: what create and update have in common."""

    cpu_shares: int = wire("CpuShares", INT64)
    memory: int = wire("Memory", INT64)
    nano_cpus: int = wire("NanoCpus", INT64)
    cgroup_parent: str = wire("CgroupParent", STRING)
    blkio_weight: int = wire("BlkioWeight", UINT16)
    blkio_weight_device: tuple[BlkioWeightDevice, ...] | None = wire("BlkioWeightDevice", _WEIGHT_DEVICES)
    blkio_device_read_bps: Throttles = wire("BlkioDeviceReadBps", _THROTTLE_DEVICES)
    blkio_device_write_bps: Throttles = wire("BlkioDeviceWriteBps", _THROTTLE_DEVICES)
    blkio_device_read_iops: Throttles = wire("BlkioDeviceReadIOps", _THROTTLE_DEVICES)
    blkio_device_write_iops: Throttles = wire("BlkioDeviceWriteIOps", _THROTTLE_DEVICES)
    cpu_period: int = wire("CpuPeriod", INT64)
    cpu_quota: int = wire("CpuQuota", INT64)
    cpu_realtime_period: int = wire("CpuRealtimePeriod", INT64)
    cpu_realtime_runtime: int = wire("CpuRealtimeRuntime", INT64)
    cpuset_cpus: str = wire("CpusetCpus", STRING)
    cpuset_mems: str = wire("CpusetMems", STRING)
    devices: tuple[DeviceMapping, ...] | None = wire("Devices", slice_of(struct(DeviceMapping, "Devices")))
    device_cgroup_rules: Strings = wire("DeviceCgroupRules", STRINGS)
    device_requests: tuple[DeviceRequest, ...] | None = wire("DeviceRequests", _DEVICE_REQUESTS)
    kernel_memory: int = wire("KernelMemory", INT64)
    kernel_memory_tcp: int = wire("KernelMemoryTCP", INT64)
    memory_reservation: int = wire("MemoryReservation", INT64)
    memory_swap: int = wire("MemorySwap", INT64)
    memory_swappiness: int | None = wire("MemorySwappiness", _POINTER_INT)
    oom_kill_disable: bool | None = wire("OomKillDisable", _POINTER_BOOL)
    pids_limit: int | None = wire("PidsLimit", _POINTER_INT)
    ulimits: tuple[Ulimit, ...] | None = wire(
        "Ulimits", slice_of(struct(Ulimit, "Ulimits"), null_elements=False)
    )
    cpu_count: int = wire("CpuCount", INT64)
    cpu_percent: int = wire("CpuPercent", INT64)
    io_maximum_iops: int = wire("IOMaximumIOps", UINT64)
    io_maximum_bandwidth: int = wire("IOMaximumBandwidth", UINT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig(Resources):
    """`container.HostConfig`."""

    binds: Strings = wire("Binds", STRINGS)
    container_id_file: str = wire("ContainerIDFile", STRING)
    log_config: LogConfig = wire("LogConfig", struct(LogConfig, "LogConfig"))
    network_mode: str = wire("NetworkMode", STRING)
    port_bindings: Mapping[str, tuple[PortBinding, ...] | None] | None = wire("PortBindings", _PORT_BINDINGS)
    restart_policy: RestartPolicy = wire("RestartPolicy", RESTART_POLICY)
    auto_remove: bool = wire("AutoRemove", BOOL)
    volume_driver: str = wire("VolumeDriver", STRING)
    volumes_from: Strings = wire("VolumesFrom", STRINGS)
    console_size: tuple[int, int] = wire("ConsoleSize", SIZE)
    annotations: StringMap = wire("Annotations", STRING_MAP)
    cap_add: Strings = wire("CapAdd", STR_SLICE)
    cap_drop: Strings = wire("CapDrop", STR_SLICE)
    cgroupns_mode: str = wire("CgroupnsMode", STRING)
    dns: Strings = wire("Dns", STRINGS)
    dns_options: Strings = wire("DnsOptions", STRINGS)
    dns_search: Strings = wire("DnsSearch", STRINGS)
    extra_hosts: Strings = wire("ExtraHosts", STRINGS)
    group_add: Strings = wire("GroupAdd", STRINGS)
    ipc_mode: str = wire("IpcMode", STRING)
    cgroup: str = wire("Cgroup", STRING)
    links: Strings = wire("Links", STRINGS)
    oom_score_adj: int = wire("OomScoreAdj", INT64)
    pid_mode: str = wire("PidMode", STRING)
    privileged: bool = wire("Privileged", BOOL)
    publish_all_ports: bool = wire("PublishAllPorts", BOOL)
    readonly_rootfs: bool = wire("ReadonlyRootfs", BOOL)
    security_opt: Strings = wire("SecurityOpt", STRINGS)
    storage_opt: StringMap = wire("StorageOpt", STRING_MAP)
    tmpfs: StringMap = wire("Tmpfs", STRING_MAP)
    uts_mode: str = wire("UTSMode", STRING)
    userns_mode: str = wire("UsernsMode", STRING)
    shm_size: int = wire("ShmSize", INT64)
    sysctls: StringMap = wire("Sysctls", STRING_MAP)
    runtime: str = wire("Runtime", STRING)
    isolation: str = wire("Isolation", STRING)
    mounts: tuple[Mount, ...] | None = wire("Mounts", slice_of(struct(Mount, "Mounts")))
    masked_paths: Strings = wire("MaskedPaths", STRINGS)
    readonly_paths: Strings = wire("ReadonlyPaths", STRINGS)
    init: bool | None = wire("Init", _POINTER_BOOL)


HOST_CONFIG = struct(HostConfig, "HostConfig")


def edited(host: HostConfig, changes: Mapping[str, object]) -> HostConfig:
    """The same with some attributes changed; itself where nothing changes, as copying 70 fields is slow."""
    real = {name: value for name, value in changes.items() if value != getattr(host, name)}
    return replace(host, **real) if real else host  # type: ignore[arg-type]
