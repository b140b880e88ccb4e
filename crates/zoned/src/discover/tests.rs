use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::find::group_name;
use super::{DriveKind, DriveName, Machine, Node, Use};
use crate::Interface;
use crate::{Bytes, ErrorKind};

/// A test's machine in a directory. A device node is a file that says what it is: `b 259:0`.
struct MachineDir {
    root: TempDir,
}

fn identify(path: &Path) -> io::Result<Node> {
    let text = fs::read_to_string(path)?;
    let number = || {
        let (major, minor) = text.get(2..)?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    Ok(match (text.get(..1), number()) {
        (Some("b"), Some((major, minor))) => Node::Block { major, minor },
        (Some("c"), Some((major, minor))) => Node::Char { major, minor },
        _ => Node::Other,
    })
}

impl MachineDir {
    fn new() -> MachineDir {
        let made = MachineDir { root: TempDir::new().unwrap() };
        for directory in ["dev/disk/by-id", "sys/class/block", "sys/dev/block", "sys/dev/char", "proc/self"] {
            fs::create_dir_all(made.at(directory)).unwrap();
        }
        made
    }

    fn machine(&self) -> Machine {
        Machine::at(self.root.path(), identify)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn make_link(&self, path: &str, to: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    /// Adds a block device whose directory in sysfs is `place/name`.
    fn add_block_device(&self, place: &str, name: &str, number: &str, attributes: &[(&str, &str)]) {
        self.write(&format!("dev/{name}"), &format!("b {number}"));
        self.write(&format!("sys/devices/{place}/{name}/dev"), &format!("{number}\n"));
        for (attribute, value) in attributes {
            self.write(&format!("sys/devices/{place}/{name}/{attribute}"), &format!("{value}\n"));
        }
        self.make_link(&format!("sys/class/block/{name}"), &format!("../../devices/{place}/{name}"));
        self.make_link(&format!("sys/dev/block/{number}"), &format!("../../devices/{place}/{name}"));
    }

    /// Adds an NVMe controller with namespaces of the given numbers.
    fn add_nvme_controller(&self, controller: u32, serial: &str, namespaces: &[u32], zoned: &str) {
        let at = format!("nvme/nvme{controller}");
        self.write(&format!("sys/devices/{at}/model"), "Big Zones\n");
        self.write(&format!("sys/devices/{at}/serial"), &format!("{serial}   \n"));
        self.write(&format!("dev/nvme{controller}"), &format!("c 240:{controller}"));
        self.make_link(&format!("sys/dev/char/240:{controller}"), &format!("../../devices/{at}"));
        for n in namespaces {
            let (block, char) = (format!("nvme{controller}n{n}"), format!("ng{controller}n{n}"));
            self.add_block_device(
                &at,
                &block,
                &format!("259:{}", controller * 10 + n),
                &[
                    ("queue/zoned", zoned),
                    ("queue/nr_zones", "64"),
                    ("queue/chunk_sectors", "32768"),
                    ("queue/max_open_zones", "8"),
                    ("queue/max_active_zones", "0"),
                    ("size", "2097152"),
                    ("nsid", &n.to_string()),
                ],
            );
            self.make_link(&format!("sys/devices/{at}/{block}/device"), &format!("../../nvme{controller}"));
            let number = format!("241:{}", controller * 10 + n);
            self.write(&format!("dev/{char}"), &format!("c {number}"));
            self.make_link(&format!("sys/dev/char/{number}"), &format!("../../devices/{at}/{char}"));
        }
    }

    fn add_scsi_disk(&self, zoned: &str) {
        self.add_block_device(
            "scsi/host0",
            "sda",
            "8:0",
            &[("queue/zoned", zoned), ("device/vendor", "ACME"), ("device/model", "SMR")],
        );
        self.add_block_device("scsi/host0/sda", "sda1", "8:1", &[("partition", "1")]);
    }

    fn find_node(&self, interface: Interface, path: &str) -> Result<String, (ErrorKind, String)> {
        let target = self.machine().find(interface, &DriveName::Path(path.into()))?;
        self.machine().refuse_in_use(&target)?;
        Ok(target.node.display().to_string())
    }

    fn by_serial(
        &self,
        interface: Interface,
        serial: &str,
        namespace: Option<u32>,
    ) -> Result<String, String> {
        let named = DriveName::Serial { text: serial.into(), namespace };
        let target = self.machine().find(interface, &named).map_err(|(_, why)| why)?;
        Ok(target.node.display().to_string())
    }

    #[track_caller]
    fn assert_refused(&self, interface: Interface, path: &str, kind: ErrorKind, words: &[&str]) {
        let (found, why) = self.find_node(interface, path).expect_err(path);
        assert_eq!(found, kind, "{path}: {why}");
        for word in words {
            assert!(why.contains(word), "{path}: no '{word}' in: {why}");
        }
    }
}

use Interface::{Block, Nvme};

#[test]
fn a_zoned_drive_is_found_by_node_by_link_and_by_serial() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "ZNS0", &[1], "host-managed");
    made.add_scsi_disk("host-managed");
    made.make_link("dev/disk/by-id/nvme-ZNS0", "../../nvme0n1");
    for (interface, path, node) in [
        (Block, "/dev/nvme0n1", "/dev/nvme0n1"),
        (Block, "/dev/disk/by-id/nvme-ZNS0", "/dev/disk/by-id/nvme-ZNS0"),
        (Nvme, "/dev/ng0n1", "/dev/ng0n1"),
        (Nvme, "/dev/disk/by-id/nvme-ZNS0", "/dev/ng0n1"),
        (Block, "/dev/sda", "/dev/sda"),
    ] {
        assert_eq!(made.find_node(interface, path).as_deref(), Ok(node), "{interface:?} {path}");
    }
    assert_eq!(made.by_serial(Nvme, "ZNS0", None).as_deref(), Ok("/dev/ng0n1"));
    assert_eq!(made.by_serial(Block, "ZNS0", None).as_deref(), Ok("/dev/nvme0n1"));
}

#[test]
fn a_controller_of_several_namespaces_wants_a_number() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "OTHER", &[1], "host-managed");
    made.add_nvme_controller(3, "ZNS3", &[1, 2], "host-managed");
    let why = made.by_serial(Nvme, "ZNS3", None).unwrap_err();
    assert!(why.contains("namespace=N (1, 2)"), "{why}");
    assert_eq!(made.by_serial(Nvme, "ZNS3", Some(2)).as_deref(), Ok("/dev/ng3n2"));
    let why = made.by_serial(Nvme, "ZNS3", Some(7)).unwrap_err();
    assert!(why.contains("no namespace 7") && why.contains("1, 2"), "{why}");
    let why = made.by_serial(Block, "nvme3n1", None).unwrap_err();
    assert!(why.contains("blk:/dev/nvme3n1"), "{why}");
}

#[test]
fn another_node_of_the_same_drive_is_named() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "ZNS0", &[1], "host-managed");
    made.add_scsi_disk("host-managed");
    let invalid = ErrorKind::Invalid;
    made.assert_refused(Nvme, "/dev/nvme0n1", invalid, &["nvme:/dev/ng0n1", "blk:/dev/nvme0n1"]);
    made.assert_refused(Nvme, "/dev/nvme0", invalid, &["controller", "nvme:/dev/ng0n1"]);
    made.assert_refused(Block, "/dev/nvme0", invalid, &["controller", "blk:/dev/nvme0n1"]);
    made.assert_refused(Block, "/dev/ng0n1", invalid, &["nvme:/dev/ng0n1", "blk:/dev/nvme0n1"]);
    made.assert_refused(Nvme, "/dev/sda", invalid, &["no NVMe drive", "blk:/dev/sda"]);
}

#[test]
fn a_partition_names_its_drive() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "ZNS0", &[1], "host-managed");
    made.add_block_device("nvme/nvme0/nvme0n1", "nvme0n1p2", "259:99", &[("partition", "2")]);
    made.add_scsi_disk("host-managed");
    made.assert_refused(Block, "/dev/sda1", ErrorKind::Invalid, &["partition", "blk:/dev/sda"]);
    made.assert_refused(Nvme, "/dev/nvme0n1p2", ErrorKind::Invalid, &["partition", "nvme:/dev/ng0n1"]);
}

#[test]
fn what_is_no_device_is_refused() {
    let made = MachineDir::new();
    made.write("home/drive.img", "just bytes");
    made.write("dev/tty", "c 5:0");
    made.assert_refused(Block, "/home/drive.img", ErrorKind::Invalid, &["emu:/home/drive.img"]);
    made.assert_refused(Nvme, "/dev/tty", ErrorKind::Invalid, &["character device"]);
    made.assert_refused(Block, "/dev/nvme9n1", ErrorKind::NotFound, &["/dev/nvme9n1", "furrow device list"]);
}

#[test]
fn disks_without_zones_for_us_are_refused_each_in_its_words() {
    for (zoned, page, words) in [
        ("none", None, "ordinary disk"),
        ("none", Some(0x20), "drive-managed"),
        ("none", Some(0x10), "host-aware"),
        ("host-aware", None, "host-aware"),
    ] {
        let made = MachineDir::new();
        made.add_scsi_disk(zoned);
        if let Some(byte) = page {
            let page = [0, 0xb1, 0, 60, 0, 0, 0, 0, byte, 0];
            fs::write(made.at("sys/devices/scsi/host0/sda/device/vpd_pgb1"), page).unwrap();
        }
        made.assert_refused(Block, "/dev/sda", ErrorKind::Invalid, &[words]);
    }
    let made = MachineDir::new();
    made.add_nvme_controller(0, "PLAIN", &[1], "none");
    made.assert_refused(Nvme, "/dev/ng0n1", ErrorKind::Invalid, &["ordinary"]);
    assert!(made.by_serial(Nvme, "PLAIN", None).unwrap_err().contains("ordinary"));
}

const ROOT_MOUNT_LINE: &str = "22 1 8:99 / / rw,relatime shared:1 - ext4 /dev/root rw\n";

#[test]
fn a_mounted_drive_is_refused_through_both_nodes() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "ZNS0", &[1], "host-managed");
    made.write(
        "proc/self/mountinfo",
        &format!("{ROOT_MOUNT_LINE}40 22 259:1 / /my\\040data rw - zonefs /dev/x rw\n"),
    );
    made.assert_refused(Block, "/dev/nvme0n1", ErrorKind::InUse, &["mounted at /my data"]);
    made.assert_refused(Nvme, "/dev/ng0n1", ErrorKind::InUse, &["mounted at /my data"]);
}

#[test]
fn a_mount_is_found_by_its_source_where_the_file_system_has_a_number_of_its_own() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "ZNS0", &[1], "host-managed");
    made.make_link("dev/disk/by-id/a", "../../nvme0n1");
    made.write(
        "proc/self/mountinfo",
        &format!("{ROOT_MOUNT_LINE}40 22 0:45 / /b rw - btrfs /dev/disk/by-id/a rw\n"),
    );
    made.assert_refused(Block, "/dev/nvme0n1", ErrorKind::InUse, &["mounted at /b"]);
}

#[test]
fn a_second_device_of_a_mounted_btrfs_is_refused() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "ZNS0", &[1], "host-managed");
    made.write("sys/fs/btrfs/1234-abcd/devices/nvme0n1/size", "1");
    made.assert_refused(Block, "/dev/nvme0n1", ErrorKind::InUse, &["btrfs 1234-abcd"]);
}

#[test]
fn a_drive_under_lvm_or_md_is_refused_and_so_is_swap() {
    let made = MachineDir::new();
    made.add_scsi_disk("host-managed");
    made.add_block_device("virtual", "dm-3", "253:3", &[("dm/name", "vg-fast"), ("dm/uuid", "LVM-abc")]);
    made.write("sys/devices/scsi/host0/sda/holders/dm-3/x", "");
    made.assert_refused(Block, "/dev/sda", ErrorKind::InUse, &["LVM volume vg-fast (dm-3)"]);

    let made = MachineDir::new();
    made.add_scsi_disk("host-managed");
    made.add_block_device("virtual", "md0", "9:0", &[("md/level", "linear")]);
    // The md device holds a partition, not the whole disk.
    made.write("sys/devices/scsi/host0/sda/sda1/holders/md0/x", "");
    made.assert_refused(Block, "/dev/sda", ErrorKind::InUse, &["md array md0"]);

    let made = MachineDir::new();
    made.add_scsi_disk("host-managed");
    made.write("proc/swaps", "Filename Type Size Used Priority\n/dev/sda partition 1 0 -2\n");
    made.assert_refused(Block, "/dev/sda", ErrorKind::InUse, &["swap"]);
}

#[test]
fn the_zoned_drives_are_listed_with_what_they_are_and_how_to_name_them() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "ZNS0", &[1], "host-managed");
    made.add_nvme_controller(1, "PLAIN", &[1], "none");
    made.add_scsi_disk("host-managed");
    let page = b"\x00\x80\x00\x08  W1  \0";
    fs::write(made.at("sys/devices/scsi/host0/sda/device/vpd_pg80"), page).unwrap();
    made.make_link("dev/disk/by-id/nvme-ZNS0", "../../nvme0n1");
    made.write("proc/self/mountinfo", "40 22 8:0 / /data rw - btrfs /dev/sda rw\n");
    let drives = made.machine().zoned_drives();
    let [zns, disk] = drives.as_slice() else { panic!("{drives:?}") };
    assert_eq!((zns.name.as_str(), zns.kind), ("nvme0n1", DriveKind::Zns));
    assert_eq!((zns.model.as_deref(), zns.serial.as_deref()), (Some("Big Zones"), Some("ZNS0")));
    assert_eq!((zns.size, zns.zones, zns.zone_size), (Bytes(1 << 30), 64, Bytes(16 << 20)));
    assert_eq!((zns.max_open, zns.max_active), (Some(8), None));
    assert_eq!(
        zns.urls,
        ["nvme:/dev/ng0n1", "nvme:serial=ZNS0", "blk:/dev/nvme0n1", "blk:/dev/disk/by-id/nvme-ZNS0"]
    );
    assert_eq!((disk.name.as_str(), disk.kind), ("sda", DriveKind::HostManaged));
    assert_eq!((disk.model.as_deref(), disk.serial.as_deref()), (Some("ACME SMR"), Some("W1")));
    assert_eq!(disk.uses, [Use::Mounted { at: "/data".into() }]);
    assert_eq!(disk.urls, ["blk:/dev/sda"]);
}

#[test]
fn every_url_of_the_list_leads_to_its_drive() {
    let made = MachineDir::new();
    made.add_nvme_controller(0, "SAME", &[1, 2], "host-managed");
    made.add_nvme_controller(1, "ONE", &[1], "host-managed");
    for drive in made.machine().zoned_drives() {
        for url in &drive.urls {
            let parsed: crate::DeviceUrl = url.parse().unwrap();
            let crate::DeviceUrl::Kernel(parsed) = parsed else { panic!("{url}") };
            let target = made.machine().find(parsed.interface(), parsed.named()).expect(url);
            assert_eq!(target.block.as_ref(), Some(&drive.name), "{url}");
        }
    }
}

#[test]
fn a_machine_without_sysfs_has_no_drives() {
    let root = TempDir::new().unwrap();
    assert_eq!(Machine::at(root.path(), identify).zoned_drives(), []);
}

#[test]
fn a_group_is_named_by_its_number() {
    let groups = "root:x:0:\ndisk:x:6:alice\nbroken\n";
    assert_eq!(group_name(groups, 6).as_deref(), Some("disk"));
    assert_eq!(group_name(groups, 7), None);
}
