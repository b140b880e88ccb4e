//! Joined zones at a mount: all sections end at the first block that is not there.
//!
//! `decide` puts the pointer of each section at its own first missing block. A power cut may have left one section ahead of another:
//! by writes in flight, which were not acknowledged, by the loss of a drive's cache, or in the middle of a reset, which begins with the
//! first section. A block of a joined zone is durable only if all blocks below are, whatever their sections. So nothing durable lies
//! behind the first gap, and each section ends there; blocks above become stale rows, as those above any pointer do.
//!
//! A drive may fill an open zone when it loses power. A section that is full without a recorded end may have been filled, which makes
//! the joined zone full, as it would make a zone that is for itself.

use zoned::{Blocks, ZoneId};

use crate::layout::Stripe;
use crate::layout::joined::JoinedLayout;
use crate::mount::decide::{Decision, Verdict};
use crate::mount::gather::Mount;

/// A correction of the decision about one section that follows from the decisions about all sections of its joined zone.
enum Change {
    /// The section has no content: the joined zone was reset, or the section's first block lies behind a gap.
    Reset,
    /// The section ends there.
    End(Blocks),
    /// The section takes no more writes, and with it the joined zone is full.
    Finish,
}

impl Mount {
    /// The decision about a section, as far as it follows from those about all sections of its joined zone. `decision` is the one about
    /// the section alone, which stays where zones are not joined.
    pub(crate) fn decide_section(&self, id: ZoneId, decision: Decision) -> Decision {
        if !self.options.rules().ends_sections_at_gap() {
            return decision;
        }
        let layout = JoinedLayout::new(self.superblock.sections, self.superblock.interleaved, &self.layout);
        match layout.and_then(|layout| self.change_of_section(&layout, id)) {
            None => decision,
            Some(Change::Reset) => {
                Decision { verdict: Verdict::Reset, pointer: Blocks::ZERO, from: Stripe(0) }
            }
            Some(Change::Finish) if decision.verdict.is_open() => {
                Decision { verdict: Verdict::Full, ..decision }
            }
            // A worn part cannot be reset: the section takes no writes as it is.
            Some(Change::Finish) if self.keeps_worn_part(id) && decision.verdict == Verdict::Reset => {
                decision
            }
            Some(Change::Finish) => {
                Decision { verdict: Verdict::FullWithoutContent, pointer: Blocks::ZERO, from: Stripe(0) }
            }
            // A section with a recorded end takes no more writes: the joined zone is full, and ends before the gap.
            Some(Change::End(_)) if decision.verdict == Verdict::Known => decision,
            Some(Change::End(end)) => {
                tracing::info!(
                    section = id.0,
                    held = decision.pointer.0,
                    end = end.0,
                    "another section lacks a block: this section ends before its last one"
                );
                decision.ending_at(&self.layout, &self.parts(id), end)
            }
        }
    }

    /// The correction that a section needs; `None` if its own decision stands. The sections of a joined zone that has a failed section
    /// keep their content, unless the joined zone was reset.
    fn change_of_section(&self, layout: &JoinedLayout, id: ZoneId) -> Option<Change> {
        let (mut found, mut any_failed) = (Vec::with_capacity(layout.sections as usize), false);
        for section in layout.zones(layout.joined_zone(id)) {
            let (entry, decision) = self.decide(section);
            let has_failed = self.has_failed(section, &entry, &decision);
            any_failed |= has_failed;
            found.push((has_failed, decision));
        }
        let (_, first) = found.first().filter(|(has_failed, _)| !has_failed)?;
        let number = layout.section(id);
        let (_, own) = found.get(number as usize)?;
        // A joined zone that was finished without content has a full first section.
        if matches!(first.verdict, Verdict::Empty | Verdict::Reset) {
            return (own.verdict != Verdict::Empty).then_some(Change::Reset);
        }
        if any_failed {
            return None;
        }
        let decisions: Vec<Decision> = found.iter().map(|(_, decision)| *decision).collect();
        let ends: Vec<Blocks> = decisions.iter().map(|decision| decision.pointer).collect();
        let gap = layout.first_gap(&ends);
        if !matches!(own.verdict, Verdict::Full | Verdict::Known)
            && section_behind_filled_one(layout, &decisions, gap) == Some(number)
        {
            return Some(Change::Finish);
        }
        match layout.share(number, gap) {
            share if share >= own.pointer => None,
            Blocks::ZERO => Some(Change::Reset),
            share => Some(Change::End(share)),
        }
    }
}

/// The section whose block is the joined zone's first missing one, at `gap`, if the blocks before it are the last ones of a section that a
/// drive may have filled: the last of them may never have been written.
fn section_behind_filled_one(layout: &JoinedLayout, decisions: &[Decision], gap: Blocks) -> Option<u32> {
    let last = Blocks(gap.0.checked_sub(1)?);
    let (last, next) = (layout.locate(last).section, layout.locate(gap).section);
    let may_be_filled =
        |decision: &Decision| decision.verdict == Verdict::Full && decision.pointer.0 == layout.section;
    (next != last && decisions.get(last as usize).is_some_and(may_be_filled)).then_some(next)
}
