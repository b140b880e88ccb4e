//! Parameters of a zoned ublk block device.

use units::Bytes;

use crate::block::SECTOR;

/// Parameters of a zoned ublk block device: what its queue in the kernel is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Logical and physical block size: a power of two from 512 to 4096.
    pub block_size: u32,
    /// Preferred length of writes, a power of two; `block_size` if there is none.
    pub optimal_io: Bytes,
    /// Longest request.
    pub max_io: Bytes,
    /// Distance between the starts of two zones: a power of two.
    pub zone_size: Bytes,
    /// Size of the device: whole zones.
    pub size: Bytes,
    /// Most open zones; 0 for no limit.
    pub max_open: u32,
    /// Most active zones; 0 for no limit.
    pub max_active: u32,
    /// Longest append.
    pub max_append: Bytes,
    /// True if acknowledged writes may be lost in a power cut: the kernel then sends flushes and FUA writes.
    pub volatile_cache: bool,
}

/// The kernel's `struct ublk_params` up to the parameters of zones, as Linux 6.6 has it.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct RawParams {
    len: u32,
    types: u32,
    attrs: u32,
    logical_shift: u8,
    physical_shift: u8,
    io_opt_shift: u8,
    io_min_shift: u8,
    max_sectors: u32,
    chunk_sectors: u32,
    dev_sectors: u64,
    virt_boundary_mask: u64,
    /// Discard, which no device of this crate has, and device numbers, which the kernel fills in.
    discard_and_numbers: [u32; 9],
    max_open_zones: u32,
    max_active_zones: u32,
    max_append_sectors: u32,
    reserved: [u8; 20],
    pad: u32,
}

/// Length of [`RawParams`] in a command.
pub(super) const PARAMS_LEN: u16 = 112;

const _: () = assert!(size_of::<RawParams>() == PARAMS_LEN as usize);

const TYPE_BASIC: u32 = 1 << 0;
const TYPE_ZONED: u32 = 1 << 3;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const ATTR_FUA: u32 = 1 << 3;

impl RawParams {
    /// A buffer that the kernel fills with a device's parameters.
    pub(super) fn to_fill() -> RawParams {
        RawParams { len: u32::from(PARAMS_LEN), ..RawParams::default() }
    }
}

impl Params {
    /// The parameters as the kernel reads them.
    pub(super) fn encode(&self) -> RawParams {
        let sectors = |bytes: Bytes| u32::try_from(bytes.0 / SECTOR).unwrap_or(u32::MAX);
        let shift = |size: u64| u8::try_from(size.max(1).ilog2()).unwrap_or(u8::MAX);
        let block = shift(u64::from(self.block_size));
        RawParams {
            len: u32::from(PARAMS_LEN),
            types: TYPE_BASIC | TYPE_ZONED,
            attrs: if self.volatile_cache { ATTR_VOLATILE_CACHE | ATTR_FUA } else { 0 },
            logical_shift: block,
            physical_shift: block,
            io_opt_shift: shift(self.optimal_io.0),
            io_min_shift: block,
            max_sectors: sectors(self.max_io),
            chunk_sectors: sectors(self.zone_size),
            dev_sectors: self.size.0 / SECTOR,
            max_open_zones: self.max_open,
            max_active_zones: self.max_active,
            max_append_sectors: sectors(self.max_append),
            ..RawParams::default()
        }
    }

    /// The parameters of a device that has them; `None` for one that is not zoned.
    pub(super) fn decode(raw: &RawParams) -> Option<Params> {
        let needed = TYPE_BASIC | TYPE_ZONED;
        let bytes = |sectors: u32| Bytes(u64::from(sectors) * SECTOR);
        (raw.types & needed == needed).then(|| Params {
            block_size: 1u32.checked_shl(raw.logical_shift.into()).unwrap_or(0),
            optimal_io: Bytes(1u64.checked_shl(raw.io_opt_shift.into()).unwrap_or(0)),
            max_io: bytes(raw.max_sectors),
            zone_size: bytes(raw.chunk_sectors),
            size: Bytes(raw.dev_sectors.saturating_mul(SECTOR)),
            max_open: raw.max_open_zones,
            max_active: raw.max_active_zones,
            max_append: bytes(raw.max_append_sectors),
            volatile_cache: raw.attrs & ATTR_VOLATILE_CACHE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> Params {
        Params {
            block_size: 4096,
            optimal_io: Bytes(256 << 10),
            max_io: Bytes(1 << 20),
            zone_size: Bytes(64 << 20),
            size: Bytes(640 << 20),
            max_open: 8,
            max_active: 12,
            max_append: Bytes(128 << 10),
            volatile_cache: true,
        }
    }

    #[test]
    fn parameters_lie_where_the_kernel_looks_for_them() {
        use std::mem::offset_of;
        assert_eq!(
            [
                offset_of!(RawParams, attrs),
                offset_of!(RawParams, logical_shift),
                offset_of!(RawParams, io_opt_shift),
                offset_of!(RawParams, max_sectors),
                offset_of!(RawParams, chunk_sectors),
                offset_of!(RawParams, dev_sectors),
                offset_of!(RawParams, discard_and_numbers),
                offset_of!(RawParams, max_open_zones),
                offset_of!(RawParams, max_append_sectors),
            ],
            [8, 12, 14, 16, 20, 24, 40, 76, 84]
        );
    }

    #[test]
    fn parameters_are_counted_in_sectors_and_powers_of_two() {
        let raw = params().encode();
        assert_eq!((raw.len, raw.types, raw.attrs), (112, 9, 0xc));
        assert_eq!(
            (raw.logical_shift, raw.physical_shift, raw.io_opt_shift, raw.io_min_shift),
            (12, 12, 18, 12)
        );
        assert_eq!((raw.max_sectors, raw.chunk_sectors, raw.dev_sectors), (2048, 131_072, 1_310_720));
        assert_eq!((raw.max_open_zones, raw.max_active_zones, raw.max_append_sectors), (8, 12, 256));
        assert_eq!(Params { volatile_cache: false, ..params() }.encode().attrs, 0);
    }

    #[test]
    fn parameters_read_back_as_they_were_given() {
        assert_eq!(Params::decode(&params().encode()), Some(params()));
        assert_eq!(Params::decode(&RawParams { types: TYPE_BASIC, ..RawParams::default() }), None);
        let wild =
            RawParams { types: u32::MAX, logical_shift: 255, io_opt_shift: 99, ..RawParams::default() };
        assert_eq!(Params::decode(&wild).map(|found| found.block_size), Some(0));
    }
}
