use super::*;

fn queue(attributes: &[(&str, &str)]) -> Queue {
    let owned = attributes.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    Queue::parse(&owned.collect())
}

#[test]
fn a_zoned_drives_queue_is_read() {
    let found = queue(&[
        ("zoned", "host-managed\n"),
        ("chunk_sectors", "32768"),
        ("max_open_zones", "8"),
        ("zone_append_max_bytes", "131072"),
        ("max_sectors_kb", "512"),
        ("write_cache", "write back"),
        ("fua", "1"),
        ("scheduler", "none [mq-deadline] bfq"),
        ("dma_alignment", "3"),
    ]);
    assert_eq!((found.zoned, found.chunk), (Some(Zoned::HostManaged), Some(Bytes(16 << 20))));
    assert_eq!((found.max_open, found.max_active), (Some(8), None));
    assert_eq!((found.max_append, found.max_request), (Some(Bytes(131_072)), Some(Bytes(512 << 10))));
    assert_eq!((found.write_back, found.fua), (Some(true), Some(true)));
    assert_eq!(found.scheduler.as_deref(), Some("mq-deadline"));
    assert_eq!(found.dma_alignment, Some(Bytes(4)));
}

#[test]
fn what_makes_no_sense_is_not_known() {
    let found = queue(&[("zoned", "perhaps"), ("chunk_sectors", "-1"), ("fua", ""), ("scheduler", "a b")]);
    assert_eq!(found, Queue::default());
}

#[test]
fn mounts_are_found_with_their_devices() {
    let text = "36 35 98:0 /mnt1 /a\\040dir rw,noatime master:1 shared:2 - ext4 /dev/root rw,errors=continue\n\
                broken line\n\
                24 27 0:23 / /dev/shm rw - tmpfs tmpfs rw\n";
    let found = parse_mounts(text);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].device, DeviceNumber { major: 98, minor: 0 });
    assert_eq!(
        (found[0].at.as_path(), found[0].source.as_path()),
        (Path::new("/a dir"), Path::new("/dev/root"))
    );
    assert_eq!(found[1].kind, "tmpfs");
}

#[test]
fn swap_devices_are_found_below_their_heading() {
    let text = "Filename\t\t\t\tType\t\tSize\n/dev/sda2                               partition\t1\n/a\\040b file 2\n";
    assert_eq!(parse_swaps(text), [PathBuf::from("/dev/sda2"), PathBuf::from("/a b")]);
    assert!(parse_swaps("").is_empty());
}

#[test]
fn a_namespaces_two_devices_are_named_alike() {
    assert_eq!(nvme_block_name("ng0n1").as_deref(), Some("nvme0n1"));
    assert_eq!(nvme_char_name("nvme10n2").as_deref(), Some("ng10n2"));
    assert_eq!((nvme_block_name("nginx"), nvme_char_name("sda")), (None, None));
}

#[test]
fn a_disk_is_read_with_its_partitions_and_what_holds_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = dir.path().join("sda");
    let put = |path: &str, text: &str| {
        let path = disk.join(path);
        fs::create_dir_all(path.parent().expect("below the disk")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    put("size", "2048\n");
    put("ro", "0\n");
    put("queue/zoned", "none\n");
    put("device/model", "  A disk \n");
    put("device/vpd_pg80", "\0\x08\0\x04SER1");
    put("holders/dm-0", "");
    put("sda1/partition", "1\n");
    put("sda1/size", "1024\n");
    put("sda1/holders/md0", "");

    let found = BlockDevice::read(&disk).expect("a disk");
    assert_eq!((found.name.as_str(), found.size, found.partition), ("sda", Some(Bytes(1 << 20)), false));
    assert_eq!((found.model.as_deref(), found.serial.as_deref()), (Some("A disk"), Some("SER1")));
    assert_eq!((found.holders, found.partitions), (vec!["dm-0".into(), "md0".into()], vec!["sda1".into()]));

    let part = BlockDevice::read(&disk.join("sda1")).expect("a partition");
    assert_eq!((part.partition, part.queue.zoned), (true, Some(Zoned::No)));
    assert_eq!((part.size, part.model.as_deref()), (Some(Bytes(512 << 10)), Some("A disk")));
    assert!(BlockDevice::read(&disk.join("sdb")).is_err());
}

#[test]
fn this_machines_own_tables_are_read() {
    let found = mounts().expect("mounts");
    assert!(found.iter().any(|mount| mount.at == Path::new("/")), "{found:?}");
    swaps().expect("swaps");
    let null = File::open("/dev/null").expect("/dev/null");
    assert_eq!(DeviceNumber::of(&null).expect("its number"), Some(DeviceNumber { major: 1, minor: 3 }));
}

proptest::proptest! {
    #[test]
    fn any_text_is_parsed(text: String) {
        for mount in parse_mounts(&text) {
            proptest::prop_assert!(text.contains(&mount.kind));
        }
        let _swaps = parse_swaps(&text);
        let _queue = queue(&[("scheduler", &text), ("zoned", &text), ("chunk_sectors", &text)]);
        let _names = (nvme_block_name(&text), nvme_char_name(&text), DeviceNumber::parse(&text));
        proptest::prop_assert!(unescape_octal(&text).len() <= text.len() * 3);
    }
}
