//! A device's geometry as parameters of a block device, or the reason why no kernel takes it.

use sys::ublk::Params;
use zoned::{Blocks, Bytes, Error, ErrorKind, Geometry, Result};

/// Longest request, even if the device takes longer ones: longer requests are not faster.
const MAX_IO: u64 = 1 << 20;
/// The kernel's page: no request is limited to less, and no block is larger.
const PAGE: u64 = 4096;
/// Largest zone: its sectors are counted in 32 bits.
const MAX_ZONE: u64 = 1 << 40;

/// The parameters of the block device that `geometry` makes.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the kernel has no such block devices.
pub(crate) fn params(geometry: &Geometry) -> Result<Params> {
    let refuse = |why: String| Err(Error::new(ErrorKind::Unsupported, &geometry.name, "export").because(why));
    let bytes = |blocks: Blocks| blocks.bytes(geometry.block_size).0;
    let zone_size = bytes(geometry.zone_size);
    if !zone_size.is_power_of_two() || zone_size > MAX_ZONE {
        let (below, above) = (1u64 << zone_size.max(1).ilog2(), zone_size.next_power_of_two());
        return refuse(format!(
            "zones of {zone_size} bytes: kernels take zone sizes that are powers of two, at most 1 TiB; the nearest are \
             {below} and {above} (a zone's capacity may be less than its size)"
        ));
    }
    if u64::from(geometry.block_size) > PAGE {
        return refuse(format!("blocks of {} bytes: kernels take blocks up to {PAGE}", geometry.block_size));
    }
    let max_io = bytes(geometry.max_transfer).min(MAX_IO) / PAGE * PAGE;
    if max_io == 0 {
        let longest = bytes(geometry.max_transfer);
        return refuse(format!("transfers of at most {longest} bytes: kernels send {PAGE} at least"));
    }
    if !geometry.read_past_pointer {
        return refuse("reads past the write pointer fail, and kernels read there".to_owned());
    }
    let optimal = bytes(geometry.optimal_write);
    let limit = |most: Option<u32>| most.filter(|most| *most < geometry.zones).unwrap_or(0);
    Ok(Params {
        block_size: geometry.block_size,
        // The interface has room for powers of two only.
        optimal_io: Bytes(if optimal.is_power_of_two() { optimal } else { u64::from(geometry.block_size) }),
        max_io: Bytes(max_io),
        zone_size: Bytes(zone_size),
        size: Bytes(zone_size * u64::from(geometry.zones)),
        max_open: limit(geometry.max_open),
        max_active: limit(geometry.max_active),
        max_append: Bytes(bytes(geometry.max_append).min(max_io)),
        volatile_cache: geometry.volatile_cache,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            name: Arc::from("emu:mem"),
            block_size: 4096,
            zones: 32,
            conventional: 0,
            zone_size: Blocks(4096),
            zone_capacity: Blocks(3072),
            max_open: Some(8),
            max_active: Some(12),
            max_append: Blocks(32),
            max_transfer: Blocks(64),
            atomic_write: Blocks(1),
            optimal_write: Blocks(64),
            volatile_cache: true,
            ordered_cache: true,
            read_past_pointer: true,
        }
    }

    fn refusal(geometry: &Geometry) -> String {
        let error = params(geometry).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error.to_string()
    }

    #[test]
    fn a_geometry_is_given_in_bytes() {
        let found = params(&geometry()).expect("a power of two");
        assert_eq!((found.zone_size, found.size), (Bytes(16 << 20), Bytes(512 << 20)));
        assert_eq!((found.max_io, found.max_append), (Bytes(256 << 10), Bytes(128 << 10)));
        assert_eq!((found.max_open, found.max_active, found.optimal_io), (8, 12, Bytes(256 << 10)));
        assert!(found.volatile_cache);
    }

    #[test]
    fn a_zone_size_that_is_no_power_of_two_is_refused_with_the_nearest_ones() {
        let text = refusal(&Geometry { zone_size: Blocks(3072), ..geometry() });
        assert!(text.contains("12582912") && text.contains("8388608") && text.contains("16777216"), "{text}");
    }

    #[test]
    fn blocks_and_transfers_that_kernels_do_not_have_are_refused() {
        assert!(refusal(&Geometry { block_size: 65_536, ..geometry() }).contains("65536"));
        let short = Geometry { block_size: 512, max_transfer: Blocks(4), ..geometry() };
        assert!(refusal(&short).contains("2048"));
        assert!(refusal(&Geometry { read_past_pointer: false, ..geometry() }).contains("pointer"));
    }

    #[test]
    fn limits_beyond_the_number_of_zones_and_odd_stripes_are_left_out() {
        let found = params(&Geometry {
            max_open: Some(32),
            max_active: None,
            optimal_write: Blocks(48),
            ..geometry()
        });
        let found = found.expect("a power of two");
        assert_eq!((found.max_open, found.max_active, found.optimal_io), (0, 0, Bytes(4096)));
        let found =
            params(&Geometry { max_transfer: Blocks(1 << 20), max_append: Blocks(1 << 20), ..geometry() });
        assert_eq!(found.expect("long transfers").max_append, Bytes(1 << 20));
    }
}
