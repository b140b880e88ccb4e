//! The memory that this process may have: the machine's, or less where a control group limits it.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory that this process may have; `None` where the kernel does not say.
pub fn limit() -> Option<u64> {
    limit_below(Path::new("/"))
}

/// As [`limit`], by the files below `root`.
fn limit_below(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| total(&text));
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| limit_of_group(root, line));
    limits.chain(machine).min()
}

/// The machine's memory in bytes, from the text of `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit in bytes of a control group and of the groups that it is in. `line`: a line of `/proc/self/cgroup`, such as
/// `0::/user.slice` (version 2) or `4:memory:/user.slice` (version 1).
fn limit_of_group(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mount = root.join(mount);
    // Within a container the group's own path may not be there: the mount is the group then.
    let own: PathBuf = mount.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(&mount));
    let limit = |group: &Path| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(limit().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_least_limit_of_the_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(limit_below(root), None);
        write(root, "proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\n");
        assert_eq!(limit_below(root), Some(1_024_000));
        write(root, "proc/self/cgroup", "4:cpu,memory:/a\n2:cpu:/a\n0::/a/b\n");
        write(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(limit_below(root), Some(1_024_000));
        write(root, "sys/fs/cgroup/a/memory.max", "500000\n");
        assert_eq!(limit_below(root), Some(500_000));
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
        assert_eq!(limit_below(root), Some(400_000));
    }
}
