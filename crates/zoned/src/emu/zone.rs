//! One zone: state, pointer, content, and what of it is not durable.

use std::collections::BTreeMap;

use crate::emu::OpId;
use crate::emu::content::{Content, Pool};
use crate::emu::history::{History, Pending, Rewrite, Rewrites, Sequence};
use crate::{Buf, ZoneState};

/// A zone of the medium.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) state: ZoneState,
    /// Blocks written since the last reset: the write pointer, except that a finish leaves it where it was.
    pub(super) written: u64,
    /// Blocks that the drive file holds; those below are not in `content`.
    pub(super) stored: u64,
    /// Grows with every reset.
    pub(super) resets: u64,
    pub(super) content: Content,
    /// Blocks of a conventional zone that the drive file lacks.
    pub(super) overlay: BTreeMap<u64, Buf>,
    /// Changed since the drive file was last written.
    pub(super) touched: bool,
    /// What is not durable; absent where power cuts are not tracked.
    pub(super) doubt: Doubt,
}

/// What of a zone is not durable.
#[derive(Clone, Debug, Default)]
pub(super) enum Doubt {
    /// Nothing, or nobody keeps track.
    #[default]
    None,
    /// Of a sequential zone.
    Sequential(Box<History>),
    /// Of a conventional zone.
    Conventional(Box<Rewrites>),
}

/// Which operation writes, and how.
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
            doubt: Doubt::None,
        }
    }

    /// Begins to keep track of a sequential zone: before its state changes, for the state is part of it.
    pub(super) fn remember(&mut self) {
        self.history();
    }

    /// The history, begun here if there is none yet.
    fn history(&mut self) -> &mut History {
        if !matches!(self.doubt, Doubt::Sequential(_)) {
            let settled = History::settled(self.written, self.state == ZoneState::Full);
            self.doubt = Doubt::Sequential(Box::new(settled));
        }
        match &mut self.doubt {
            Doubt::Sequential(history) => history,
            _ => unreachable!("made above"),
        }
    }

    /// Writes blocks at the pointer and moves it.
    pub(super) fn put(&mut self, pool: &Pool, block: u64, data: &[u8], track: Option<Origin>) {
        let at = self.written;
        let len = data.len() as u64 / block;
        if let Some(Origin { id, append, fua, born }) = track {
            self.history().wrote(Pending { id, at, len, append, fua, born, acked: None, solid: false });
        }
        self.content.write(pool, (at * block) as usize, data, false);
        self.written += len;
    }

    /// Writes blocks of a conventional zone.
    pub(super) fn rewrite(&mut self, pool: &Pool, block: u64, at: u64, data: &Buf, track: Option<Origin>) {
        if let Some(Origin { id, fua, .. }) = track {
            if !matches!(self.doubt, Doubt::Conventional(_)) {
                let base = self.content.clone();
                self.doubt = Doubt::Conventional(Box::new(Rewrites { base, pieces: Vec::new() }));
            }
            if let Doubt::Conventional(rewrites) = &mut self.doubt {
                let data = data.clone();
                rewrites.pieces.push(Rewrite { id, at, data, fua, acked: None, durable: false });
            }
        }
        self.content.write(pool, (at * block) as usize, data, true);
    }

    /// The finish command took effect; the state is the caller's to change.
    pub(super) fn finish(&mut self, track: Option<OpId>) {
        if let Some(id) = track {
            self.history().finished(id);
        }
    }

    /// The reset command took effect; the state is the caller's to change.
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

    /// An operation was acknowledged.
    pub(super) fn acknowledge(&mut self, pool: &Pool, block: u64, id: OpId, seq: Sequence, lasting: bool) {
        match &mut self.doubt {
            Doubt::None => {}
            Doubt::Sequential(history) => history.acknowledge(id, seq, lasting),
            Doubt::Conventional(rewrites) => rewrites.acknowledge(id, seq, lasting),
        }
        self.settle(pool, block);
    }

    /// A flush covers what was acknowledged before `before`.
    pub(super) fn harden(&mut self, pool: &Pool, block: u64, before: Sequence) {
        match &mut self.doubt {
            Doubt::None => {}
            Doubt::Sequential(history) => history.harden(before),
            Doubt::Conventional(rewrites) => rewrites.harden(before),
        }
        self.settle(pool, block);
    }

    fn settle(&mut self, pool: &Pool, block: u64) {
        let settled = match &mut self.doubt {
            Doubt::None => return,
            Doubt::Sequential(history) => history.is_settled(),
            Doubt::Conventional(rewrites) => {
                for piece in rewrites.settle() {
                    rewrites.base.write(pool, (piece.at * block) as usize, &piece.data, true);
                }
                rewrites.pieces.is_empty()
            }
        };
        if settled {
            self.doubt = Doubt::None;
        }
    }
}
