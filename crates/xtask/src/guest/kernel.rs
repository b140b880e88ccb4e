//! Debian's kernel for the guest, fetched as a package and unpacked, never installed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// One of Debian's builds of its kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// The small build, which boots fast and has all drivers that guests need but few file systems.
    Cloud,
    /// The build with everything: f2fs, too.
    Full,
}

impl Flavour {
    /// The Debian package whose dependency names the newest build of the kernel. Debian 12 has it in its security suite.
    fn package(self) -> &'static str {
        match self {
            Flavour::Cloud => "linux-image-6.12-cloud-amd64",
            Flavour::Full => "linux-image-6.12-amd64",
        }
    }

    /// Directory in the cache. Its number changes with what is taken from the package.
    fn home(self) -> &'static str {
        match self {
            Flavour::Cloud => "kernel-v4",
            Flavour::Full => "kernel-full-v1",
        }
    }

    /// The kernel modules that a guest loads, without their dependencies. All other drivers that guests need are built into
    /// the kernel.
    fn modules(self) -> &'static [&'static str] {
        match self {
            Flavour::Cloud => &["configfs", "null_blk", "nvmet", "nvme-loop", "ublk_drv"],
            Flavour::Full => &["configfs", "null_blk", "ublk_drv"],
        }
    }

    /// The modules of the file systems that some guests mount. They are slow to load, because they time their checksums.
    fn file_systems(self) -> &'static [&'static str] {
        match self {
            Flavour::Cloud => &["btrfs"],
            Flavour::Full => &["f2fs"],
        }
    }

    /// The modules of I/O schedulers that some guests load. With mq-deadline a drive with one queue no longer has the scheduler `none`.
    fn schedulers(self) -> &'static [&'static str] {
        match self {
            Flavour::Cloud => &["mq-deadline", "bfq"],
            Flavour::Full => &[],
        }
    }
}

/// A kernel that the guest can boot.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The uncompressed kernel, which boots several seconds faster than the package's.
    pub vmlinux: PathBuf,
    /// The kernel's modules, in the order in which they are loaded.
    pub modules: Vec<PathBuf>,
    /// The modules of file systems, loaded after those.
    pub file_systems: Vec<PathBuf>,
    /// The modules of I/O schedulers, loaded after those.
    pub schedulers: Vec<PathBuf>,
}

impl Kernel {
    /// The kernel in the directory `cache`, fetched if missing.
    pub fn get(flavour: Flavour, cache: &Path) -> Result<Kernel> {
        let home = cache.join(flavour.home());
        if !home.join("vmlinux").exists() {
            fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
            let work = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache)?;
            fetch_kernel(flavour, work.path())?;
            let ready = work.path().join("ready");
            // Another run may have fetched the same kernel meanwhile.
            if fs::rename(&ready, &home).is_err() && !home.join("vmlinux").exists() {
                bail!("cannot move the kernel to {}", home.display());
            }
        }
        Ok(Kernel {
            vmlinux: home.join("vmlinux"),
            modules: sorted_files(&home.join("modules"))?,
            file_systems: sorted_files(&home.join("file-systems"))?,
            schedulers: match flavour.schedulers() {
                [] => Vec::new(),
                _ => sorted_files(&home.join("schedulers"))?,
            },
        })
    }
}

fn sorted_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    files.sort();
    Ok(files)
}

/// Unpacks the kernel and its modules to `work`/ready.
fn fetch_kernel(flavour: Flavour, work: &Path) -> Result<()> {
    let archive = download_package(flavour, work).or_else(|why| {
        // The package lists may be missing or outdated: update them, which needs root, and try again.
        run(Command::new("apt-get").args(["update", "-qq"])).map_err(|_| why)?;
        download_package(flavour, work)
    })?;
    let tree = work.join("tree");
    run(Command::new("dpkg-deb").arg("-x").args([&archive, &tree]))?;
    let version = first(&tree.join("lib/modules"), |_| true)?;
    let version = version.file_name().and_then(|name| name.to_str()).context("no version")?.to_owned();
    let ready = work.join("ready");
    fs::create_dir_all(&ready)?;
    extract_kernel(&tree.join(format!("boot/vmlinuz-{version}")), &ready.join("vmlinux"))?;
    // The package has no module dependency table: the table is made when a kernel is installed.
    run(Command::new(sbin("depmod")).arg("-b").arg(&tree).arg(&version))?;
    let mut unpacked = Vec::new();
    unpack_modules(&tree, &version, flavour.modules(), &ready.join("modules"), &mut unpacked)?;
    unpack_modules(&tree, &version, flavour.file_systems(), &ready.join("file-systems"), &mut unpacked)?;
    if !flavour.schedulers().is_empty() {
        unpack_modules(&tree, &version, flavour.schedulers(), &ready.join("schedulers"), &mut unpacked)?;
    }
    fs::write(ready.join("version"), version)?;
    Ok(())
}

/// Unpacks the modules `names` and those that they need, but not those in `unpacked`, to the directory `to`. The names of
/// the files begin with numbers: the order in which they are loaded.
fn unpack_modules(
    tree: &Path,
    version: &str,
    names: &[&str],
    to: &Path,
    unpacked: &mut Vec<String>,
) -> Result<()> {
    fs::create_dir_all(to)?;
    let listed = run(Command::new(sbin("modprobe"))
        .arg("-d")
        .arg(tree)
        .args(["-S", version, "--show-depends", "--all"])
        .args(names))?;
    ensure!(listed.contains("insmod "), "modprobe named no modules: {listed}");
    for line in listed.lines() {
        let Some(path) = line.strip_prefix("insmod ").and_then(|rest| rest.split_whitespace().next()) else {
            continue;
        };
        if unpacked.contains(&path.to_owned()) {
            continue;
        }
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let plain = to.join(format!("{:02}-{}", unpacked.len(), name.trim_end_matches(".xz")));
        let bytes = match name.ends_with(".xz") {
            true => filter(Command::new("xz").args(["-dc", path]), &[])?,
            false => fs::read(path)?,
        };
        fs::write(&plain, bytes)?;
        unpacked.push(path.to_owned());
    }
    Ok(())
}

/// Fetches the kernel's package into the directory `work`.
fn download_package(flavour: Flavour, work: &Path) -> Result<PathBuf> {
    let package = newest_kernel_package(flavour)?;
    eprintln!("guest: fetching {package}");
    run(Command::new("apt-get")
        .current_dir(work)
        // A root user's apt would download as another user, who may not write to this directory.
        .args(["-qq", "-o", "APT::Sandbox::User=root", "download", &package]))?;
    first(work, |name| name.ends_with(".deb"))
}

/// The name of the package of the newest kernel build.
fn newest_kernel_package(flavour: Flavour) -> Result<String> {
    let text = run(Command::new("apt-cache").args(["depends", flavour.package()]))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| name.starts_with("linux-image-"))
        .map(str::to_owned)
        .with_context(|| {
            let package = flavour.package();
            format!("apt knows no {package}: apt-get update, with Debian 12's security suite")
        })
}

/// Extracts the kernel from a boot image: a header (the x86 boot protocol), then the compressed kernel.
fn extract_kernel(image: &Path, to: &Path) -> Result<()> {
    const SETUP_SECTORS: usize = 0x1f1;
    const PAYLOAD_OFFSET: usize = 0x248;
    const PAYLOAD_LENGTH: usize = 0x24c;
    let bytes = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let word = |at: usize| -> Option<usize> {
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(four)).ok()
    };
    let payload = || -> Option<&[u8]> {
        let start = (usize::from(*bytes.get(SETUP_SECTORS)?) + 1) * 512 + word(PAYLOAD_OFFSET)?;
        // After the compressed kernel the payload has four bytes: the length of the uncompressed kernel.
        bytes.get(start..start + word(PAYLOAD_LENGTH)?.checked_sub(4)?)
    };
    let payload = payload().with_context(|| format!("{} is no boot image", image.display()))?;
    let unpacker = match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0xfd, b'7', b'z', ..] => "xz",
        [0x1f, 0x8b, ..] => "gzip",
        _ => bail!("{} is compressed in a way that is not known here", image.display()),
    };
    let kernel = filter(Command::new(unpacker).arg("-dc"), payload)?;
    ensure!(kernel.starts_with(b"\x7fELF"), "what {unpacker} made of {} is no kernel", image.display());
    fs::write(to, kernel).with_context(|| format!("cannot write {}", to.display()))
}

/// The first entry of a directory whose name `fits` accepts.
fn first(directory: &Path, fits: impl Fn(&str) -> bool) -> Result<PathBuf> {
    fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&fits))
        .with_context(|| format!("{} has not what was looked for", directory.display()))
}

/// The path of an administrator's program, which may be outside the search path.
pub fn sbin(name: &str) -> PathBuf {
    let path = Path::new("/usr/sbin").join(name);
    if path.exists() { path } else { PathBuf::from(name) }
}

/// Runs a program to its end; returns its output.
pub fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name}: scripts/setup.sh guest installs it"))?;
    if !done.status.success() {
        bail!("{name} failed ({}): {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Runs a program with `input` as its standard input; returns its output.
fn filter(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}: scripts/setup.sh guest installs it"))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let done = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output()
    })?;
    ensure!(done.status.success(), "{name} failed: {}", done.status);
    Ok(done.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A boot image for a test: one setup sector beyond the first, then the payload and its length.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        let length = u32::try_from(payload.len() + 4).unwrap();
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend([0; 16]);
        image.extend(payload);
        image.extend([9; 4]);
        image
    }

    #[test]
    fn the_kernel_comes_out_of_a_boot_image() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("vmlinuz"), folder.path().join("vmlinux"));
        let kernel = [b"\x7fELF".as_slice(), &[7; 5000]].concat();
        fs::write(&from, image(&filter(Command::new("gzip").arg("-c"), &kernel).unwrap())).unwrap();
        extract_kernel(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), kernel);
    }

    #[test]
    fn what_is_no_boot_image_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("vmlinuz");
        let (short, unknown) = (vec![0; 100], image(b"no known compression"));
        let lies = [vec![0xff; 0x260], vec![0; 100]].concat();
        for bytes in [short, unknown, lies] {
            fs::write(&from, bytes).unwrap();
            assert!(extract_kernel(&from, &folder.path().join("vmlinux")).is_err());
        }
    }
}
