//! The second power cut, anywhere in what a recovery and the work after it did.

use zoned::emu::Media;

use crate::choose::Sample;
use crate::replay::{Fates, Replay};
use crate::trace::Event;
use crate::{Rng, Step};

/// Second cuts in a hundred that come at the very end: what a recovery left must carry what comes after it.
const AT_THE_END: u64 = 30;

/// What a second cut leaves.
pub(crate) struct Recut {
    /// The drive.
    pub image: Media,
    /// Steps that had begun.
    pub begun: Vec<Step>,
    /// Steps that were promised.
    pub promised: Vec<Step>,
    /// Whether [`Event::Ready`] had passed.
    pub ready: bool,
    at: usize,
    of: usize,
}

impl Recut {
    /// Cuts in `events`, which began with `image`. Marks behind the last operation that counts are seen too.
    pub(crate) fn of(image: Media, events: &[Event], rng: &mut Rng) -> Recut {
        let of = events.iter().filter(|e| e.is_io()).count();
        let at = if rng.chance(AT_THE_END) { of } else { rng.index(of + 1) };
        let fates = Fates::of(events);
        let mut replay = Replay::new(image, &fates);
        let (mut begun, mut promised, mut ready, mut done) = (Vec::new(), Vec::new(), false, 0);
        for event in events {
            match event {
                Event::Attempt { step } => begun.push(*step),
                Event::Acknowledged { step } => promised.push(*step),
                Event::Ready => ready = true,
                _ if !event.is_io() => {}
                _ if done == at => break,
                _ => {
                    done += 1;
                    replay.step(event);
                }
            }
        }
        let image = replay.image().cut(&mut Sample::new(Rng::new(rng.draw())));
        Recut { image, begun, promised, ready, at, of }
    }

    /// Where it was, for a fault's words.
    pub(crate) fn place(&self) -> String {
        format!(" (second cut after {} of {} events)", self.at, self.of)
    }
}
