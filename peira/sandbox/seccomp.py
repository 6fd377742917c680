"""Two system call filters, compiled by libseccomp: one for everything inside a sandbox, one that also refuses
fork.

Namespaces hide the machine; these close what namespaces do not cover: sockets of other families (virtual
machine sockets reach the hypervisor from any network namespace), memory that no limit counts, and large
kernel surfaces.
"""

import ctypes
import errno
import functools
import os
import tempfile

from peira.errors import SandboxError

CLONE_THREAD = 0x00010000
CLONE_NEW_ANYTHING = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
PERMITTED_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: they end in an empty network namespace
TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

REFUSED = tuple(
    """
    acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init
    finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register
    io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind memfd_create
    memfd_secret migrate_pages mount mount_setattr move_mount move_pages msgget msgsnd name_to_handle_at
    nfsservctl open_by_handle_at open_tree perf_event_open personality pidfd_getfd pivot_root
    process_madvise process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key
    semget set_mempolicy sethostname setdomainname setns settimeofday shmat shmget swapoff swapon syslog
    umount2 unshare uselib userfaultfd vhangup vmsplice
    """.split()  # noqa: SIM905
)


@functools.cache
def everything() -> bytes:
    """The filter every process in a sandbox lives under, as BPF.

    Raises:
        SandboxError: libseccomp is not installed.
    """
    rules = _Rules()
    for name in REFUSED:
        rules.add(errno.EPERM, name)
    rules.add(
        errno.ENOSYS, "clone3"
    )  # its flags lie in memory, where a filter cannot look; libc then uses clone
    for flag in CLONE_NEW_ANYTHING:
        rules.add(errno.EPERM, "clone", _Test(0, MASKED_EQ, flag, flag))
    rules.add(errno.EPERM, "prlimit64", _Test(0, NE, 0, 0))  # of other processes: the guest's, for one
    for request in TERMINAL_INJECTION:
        rules.add(errno.EPERM, "ioctl", _Test(1, MASKED_EQ, 0xFFFFFFFF, request))
    for family in range(PERMITTED_FAMILIES[-1]):
        if family not in PERMITTED_FAMILIES:
            rules.add(errno.EPERM, "socket", _Test(0, EQ, family, 0))
    rules.add(errno.EPERM, "socket", _Test(0, GT, PERMITTED_FAMILIES[-1], 0))
    return rules.compiled()


@functools.cache
def no_fork() -> bytes:
    """A further filter: no new processes, threads only."""
    rules = _Rules()
    rules.add(errno.ENOSYS, "clone3")
    rules.add(errno.EPERM, "clone", _Test(0, MASKED_EQ, CLONE_THREAD, 0))
    rules.add(errno.EPERM, "fork")
    rules.add(errno.EPERM, "vfork")
    return rules.compiled()


ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NE, EQ, GT, MASKED_EQ = 1, 4, 6, 7


class _Test(ctypes.Structure):
    """One condition on a system call's argument, as libseccomp lays it out."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class _Rules:
    """A filter in the making: everything is allowed that no rule refuses."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libseccomp.so.2")
        except OSError as error:
            raise SandboxError(
                "sandbox: seccomp: expected the library libseccomp.so.2; apt-get install libseccomp2"
            ) from error
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(ctypes.c_uint32(ALLOW)))

    def add(self, error_number: int, name: str, *tests: _Test) -> None:
        """Refuse this call with this error, when the tests hold; calls this machine lacks are passed over."""
        number = self.library.seccomp_syscall_resolve_name(name.encode())
        if number == -1:
            return
        array = (_Test * len(tests))(*tests)
        action = ctypes.c_uint32(REFUSE | error_number)
        status = self.library.seccomp_rule_add_array(self.context, action, number, len(tests), array)
        if status:
            raise SandboxError(f"sandbox: seccomp: rule for {name}: {os.strerror(-status)}")

    def compiled(self) -> bytes:
        """The program for the kernel."""
        with tempfile.TemporaryFile() as file:
            status = self.library.seccomp_export_bpf(self.context, file.fileno())
            self.library.seccomp_release(self.context)
            if status:
                raise SandboxError(f"sandbox: seccomp: export: {os.strerror(-status)}")
            file.seek(0)
            return file.read()
