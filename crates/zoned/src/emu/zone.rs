//! One zone of an emulated drive's medium: state, pointer, content and operations that are not durable.

use std::collections::BTreeMap;

use crate::emu::content::{Content, Pool};
use crate::emu::history::{History, OpId, Pending, Rewrite, Rewrites, Sequence};
use crate::{Buf, ZoneState};

/// A zone of an emulated drive's medium.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) state: ZoneState,
    /// Blocks written since the last reset: the write pointer, which a finish does not move.
    pub(super) written: u64,
    /// Blocks of the zone stored in the drive file. `content` holds only the blocks above.
    pub(super) stored: u64,
    /// Number of the zone's resets since the drive was made.
    pub(super) resets: u64,
    pub(super) content: Content,
    /// Blocks of a conventional zone not yet written to the drive file.
    pub(super) overlay: BTreeMap<u64, Buf>,
    /// True if the zone changed since the last flush to the drive file.
    pub(super) touched: bool,
    /// Operations of the zone that are not durable; empty if power cuts are not tracked.
    pub(super) doubt: UndurableOps,
}

/// Operations of a zone that are not durable.
#[derive(Clone, Debug, Default)]
pub(super) enum UndurableOps {
    /// No operation is in doubt, or power cuts are not tracked.
    #[default]
    None,
    /// Operations of a sequential zone that are not durable.
    Sequential(Box<History>),
    /// Operations of a conventional zone that are not durable.
    Conventional(Box<Rewrites>),
}

/// The operation that a write belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) id: OpId,
    pub(super) append: bool,
    pub(super) fua: bool,
    pub(super) born: Sequence,
}

impl Zone {
    pub(super) fn new(conventional: bool) -> Zone {
        Zone {
            state: if conventional { ZoneState::Conventional } else { ZoneState::Empty },
            written: 0,
            stored: 0,
            resets: 0,
            content: Content::default(),
            overlay: BTreeMap::new(),
            touched: false,
            doubt: UndurableOps::None,
        }
    }

    /// Starts the history of a sequential zone. Must be called before the zone's state changes, because the
    /// history includes the state.
    pub(super) fn start_history(&mut self) {
        self.history();
    }

    /// The zone's history, created on first use.
    fn history(&mut self) -> &mut History {
        if !matches!(self.doubt, UndurableOps::Sequential(_)) {
            let settled = History::settled(self.written, self.state == ZoneState::Full);
            self.doubt = UndurableOps::Sequential(Box::new(settled));
        }
        match &mut self.doubt {
            UndurableOps::Sequential(history) => history,
            _ => unreachable!("made above"),
        }
    }

    /// Writes blocks at the zone's pointer and advances the pointer.
    pub(super) fn put(&mut self, pool: &Pool, block: u64, data: &[u8], track: Option<Origin>) {
        let at = self.written;
        let len = data.len() as u64 / block;
        if let Some(Origin { id, append, fua, born }) = track {
            self.history().record_write(Pending {
                id,
                at,
                len,
                append,
                fua,
                born,
                acked: None,
                solid: false,
            });
        }
        self.content.write(pool, (at * block) as usize, data, false);
        self.written += len;
    }

    /// Writes blocks of a conventional zone.
    pub(super) fn rewrite(&mut self, pool: &Pool, block: u64, at: u64, data: &Buf, track: Option<Origin>) {
        if let Some(Origin { id, fua, .. }) = track {
            if !matches!(self.doubt, UndurableOps::Conventional(_)) {
                let base = self.content.clone();
                self.doubt = UndurableOps::Conventional(Box::new(Rewrites { base, pieces: Vec::new() }));
            }
            if let UndurableOps::Conventional(rewrites) = &mut self.doubt {
                let data = data.clone();
                rewrites.pieces.push(Rewrite { id, at, data, fua, acked: None, durable: false });
            }
        }
        self.content.write(pool, (at * block) as usize, data, true);
    }

    /// Records a finish of the zone. The caller changes the state.
    pub(super) fn finish(&mut self, track: Option<OpId>) {
        if let Some(id) = track {
            self.history().record_finish(id);
        }
    }

    /// Resets the zone's content and pointer. The caller changes the state.
    pub(super) fn reset(&mut self, pool: &Pool, track: Option<OpId>) {
        match track {
            Some(id) => {
                let content = std::mem::take(&mut self.content);
                self.history().reset(id, content);
            }
            None => self.content.clear(pool),
        }
        self.written = 0;
        self.stored = 0;
        self.resets += 1;
    }

    /// Records the acknowledgement of an operation of the zone.
    pub(super) fn acknowledge(&mut self, pool: &Pool, block: u64, id: OpId, seq: Sequence, lasting: bool) {
        match &mut self.doubt {
            UndurableOps::None => {}
            UndurableOps::Sequential(history) => history.acknowledge(id, seq, lasting),
            UndurableOps::Conventional(rewrites) => rewrites.acknowledge(id, seq, lasting),
        }
        self.settle(pool, block);
    }

    /// Applies a flush to the zone that covers acknowledgements before `before`.
    pub(super) fn apply_flush(&mut self, pool: &Pool, block: u64, before: Sequence) {
        match &mut self.doubt {
            UndurableOps::None => {}
            UndurableOps::Sequential(history) => history.apply_flush(before),
            UndurableOps::Conventional(rewrites) => rewrites.apply_flush(before),
        }
        self.settle(pool, block);
    }

    fn settle(&mut self, pool: &Pool, block: u64) {
        let settled = match &mut self.doubt {
            UndurableOps::None => return,
            UndurableOps::Sequential(history) => history.is_settled(),
            UndurableOps::Conventional(rewrites) => {
                for piece in rewrites.settle() {
                    rewrites.base.write(pool, (piece.at * block) as usize, &piece.data, true);
                }
                rewrites.pieces.is_empty()
            }
        };
        if settled {
            self.doubt = UndurableOps::None;
        }
    }
}
