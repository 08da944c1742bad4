"""What the kernel says about a process: CPU seconds and memory."""
import os

HZ = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """User and system time since the process began; None when it has gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(") ", 1)[1].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / HZ


def memory_mib(pid):
    """(RSS now, peak RSS) in MiB; None when it has gone."""
    found = {}
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith(("VmRSS", "VmHWM")):
                    name, kib = line.split()[:2]
                    found[name] = int(kib) / 1024
    except OSError:
        return None
    return (found["VmRSS:"], found["VmHWM:"]) if len(found) == 2 else None
