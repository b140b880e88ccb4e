//! The parities of the stripe at a zone's write pointer, as they grow with each write.

use std::ops::Range;

use zoned::{Blocks, Buf, BufMut};

use crate::layout::gf256::{add_unit, add_units_to_both};
use crate::layout::xor::{xor, xor_parts};
use crate::layout::{Layout, Parity, Stripe};

/// Bytes of both parities that are computed at a time: they stay in the first-level cache.
const CHUNK_BYTES: usize = 4096;

/// Parities of the data of one stripe that was written so far, each as long as the filled part of the first unit.
#[derive(Debug, Default)]
pub(crate) struct RunningParity {
    p: BufMut,
    q: BufMut,
    /// True if the stripe has a Q.
    has_q: bool,
}

impl RunningParity {
    /// The parities of a stripe without data.
    pub(crate) fn new(layout: &Layout) -> RunningParity {
        RunningParity { has_q: layout.parities > 1, ..RunningParity::default() }
    }

    /// The parities of a stripe of the same array without data.
    pub(crate) fn emptied(&self) -> RunningParity {
        RunningParity { has_q: self.has_q, ..RunningParity::default() }
    }

    /// True if nothing of the stripe was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.p.is_empty()
    }

    /// Bytes in memory.
    pub(crate) fn len(&self) -> usize {
        self.p.len() + self.q.len()
    }

    /// A parity, from the stripe's first row on.
    pub(crate) fn of(&self, parity: Parity) -> &BufMut {
        match parity {
            Parity::P => &self.p,
            Parity::Q => &self.q,
        }
    }

    /// Bytes of a parity; `None` beyond the filled part of the first unit.
    pub(crate) fn get(&self, parity: Parity, bytes: Range<usize>) -> Option<&[u8]> {
        self.of(parity).get(bytes)
    }

    /// Replaces a parity.
    pub(crate) fn set(&mut self, parity: Parity, content: BufMut) {
        match parity {
            Parity::P => self.p = content,
            Parity::Q => self.q = content,
        }
    }

    /// Takes a parity of a stripe that is whole.
    pub(crate) fn take(&mut self, parity: Parity) -> Buf {
        let whole = match parity {
            Parity::P => &mut self.p,
            Parity::Q => &mut self.q,
        };
        std::mem::take(whole).freeze()
    }

    /// Makes room for units of `unit` bytes.
    pub(crate) fn reserve(&mut self, unit: usize) {
        if self.p.is_empty() {
            self.p = BufMut::with_capacity(unit);
            if self.has_q {
                self.q = BufMut::with_capacity(unit);
            }
        }
    }

    /// Adds `data` of the first unit, behind the unit's earlier data.
    pub(crate) fn add_first_unit(&mut self, data: &[u8]) {
        self.p.extend_from_slice(data);
        if self.has_q {
            self.q.extend_from_slice(data);
        }
    }

    /// Adds `data` of a later unit, whose first byte is the unit's byte `at`. The units below have these rows already.
    pub(crate) fn add_later_unit(&mut self, at: usize, data: &[u8]) {
        let bytes = at..at + data.len();
        let p = self.p.get_mut(bytes.clone()).expect("memory holds the first unit of the stripe");
        if !self.has_q {
            return xor(p, data);
        }
        let q = self.q.get_mut(bytes).expect("memory holds the first unit of the stripe");
        add_units_to_both(p, q, data, data.len().max(1));
    }

    /// Adds a whole stripe at once: units of `unit` bytes.
    pub(crate) fn add_stripe(&mut self, whole: &[u8], unit: usize) {
        if !self.has_q {
            return xor_parts(&mut self.p, whole, unit);
        }
        let mut at = 0;
        while at < unit {
            let (begin, to) = (self.p.len(), unit.min(at + CHUNK_BYTES));
            self.add_first_unit(whole.get(at..to).unwrap_or_default());
            let chunks = self.p.get_mut(begin..).zip(self.q.get_mut(begin..));
            if let Some(((p, q), later)) = chunks.zip(whole.get(unit + at..)) {
                add_units_to_both(p, q, later, unit);
            }
            at = to;
        }
    }
}

/// Adds a data unit to a parity: that of the units below.
pub(crate) fn add_to(parity: Parity, into: &mut [u8], data: &[u8]) {
    match parity {
        Parity::P => xor(into, data),
        Parity::Q => add_unit(into, data),
    }
}

/// Makes the first rows of a parity of the data below `end` those of the whole stripe, with zeros above `end`. `block`: bytes in a
/// block.
pub(crate) fn extend_to_whole_stripe(
    layout: &Layout,
    (stripe, parity): (Stripe, Parity),
    end: Blocks,
    block: usize,
    unit: &mut [u8],
) {
    let zeros = vec![0; unit.len()];
    for index in 0..layout.data_units() {
        let filled = usize::try_from(layout.filled(stripe, index, end)).expect("fits memory") * block;
        if let Some((rows, zeros)) = unit.get_mut(filled..).zip(zeros.get(filled..)) {
            add_to(parity, rows, zeros);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_at_once_has_the_parities_of_its_parts() {
        for (parities, unit) in [(1, 700), (2, 700), (2, 5000), (2, 65536)] {
            let layout = Layout { width: 5, parities, unit: 1, part_rows: 1 };
            let whole: Vec<u8> = (0..3 * unit).map(|n| (n * n / 7 + n) as u8).collect();
            let mut at_once = RunningParity::new(&layout);
            at_once.reserve(unit);
            at_once.add_stripe(&whole, unit);
            let mut in_parts = RunningParity::new(&layout);
            let (first, second) = (&whole[..unit / 3], &whole[unit / 3..unit]);
            in_parts.add_first_unit(first);
            in_parts.add_first_unit(second);
            for later in whole.chunks(unit).skip(1) {
                in_parts.add_later_unit(0, &later[..unit / 2]);
                in_parts.add_later_unit(unit / 2, &later[unit / 2..]);
            }
            assert_eq!(at_once.len(), unit * parities as usize);
            for parity in layout.parities() {
                let mut wanted = whole[..unit].to_vec();
                whole.chunks(unit).skip(1).for_each(|part| add_to(parity, &mut wanted, part));
                assert_eq!(*at_once.take(parity), wanted[..], "{parity:?}");
                assert_eq!(in_parts.get(parity, 0..unit), Some(&wanted[..]), "{parity:?}");
            }
            assert!(at_once.is_empty());
        }
    }

    #[test]
    fn a_parity_of_some_data_becomes_that_of_the_stripe_with_zeros_behind() {
        let (unit, block) = (4, 16);
        let layout = Layout { width: 6, parities: 2, unit, part_rows: 8 };
        let stripe = Stripe(1);
        let content = |index: u64, count: u64| -> Vec<u8> {
            (0..count * block as u64).map(|byte| (byte * 7 + index * 31 + 1) as u8).collect()
        };
        for (parity, filled) in
            layout.parities().flat_map(|parity| (1..16).map(move |filled| (parity, filled)))
        {
            let end = Blocks(layout.start(stripe).0 + filled);
            let (mut some, mut whole) = (vec![0; unit as usize * block], vec![0; unit as usize * block]);
            for index in 0..layout.data_units() {
                let mut data = content(index, layout.filled(stripe, index, end));
                add_to(parity, some.get_mut(..data.len()).unwrap_or_default(), &data);
                data.resize(whole.len(), 0);
                add_to(parity, &mut whole, &data);
            }
            extend_to_whole_stripe(&layout, (stripe, parity), end, block, &mut some);
            assert_eq!(some, whole, "{parity:?} of {filled} blocks");
        }
    }
}
