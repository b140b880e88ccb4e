//! The second power cut of a crash state: at any event of a recovery or of the work after the recovery.

use zoned::emu::Media;

use crate::choose::Sample;
use crate::replay::{Completions, Replay};
use crate::trace::Event;
use crate::{Rng, Step};

/// Percentage of second cuts that come after the last event.
const AFTER_LAST_EVENT_PERCENT: u64 = 30;

/// Images of drives, with the drives' numbers.
pub(crate) type Images = Vec<(usize, Media)>;

/// The images and the steps that a second cut leaves.
pub(crate) struct SecondCut {
    /// The images that the second cut leaves, with the drives' numbers.
    pub images: Images,
    /// Steps that had begun at the second cut.
    pub begun: Vec<Step>,
    /// Steps that were promised at the second cut.
    pub promised: Vec<Step>,
    /// Whether [`Event::Ready`] had passed at the second cut.
    pub ready: bool,
    at: usize,
    of: usize,
}

impl SecondCut {
    /// Takes a second cut within `events` of one drive; `image` is the drive before the first event.
    pub(crate) fn of(image: Media, events: Vec<Event>, rng: &mut Rng) -> SecondCut {
        let events: Vec<(usize, Event)> = events.into_iter().map(|event| (0, event)).collect();
        SecondCut::of_drives(vec![(0, image)], &events, rng)
    }

    /// Takes a second cut within `events` of several drives; `images` are the drives before the first event. Steps marked after
    /// the last operation before the cut count too, whatever their drive.
    pub(crate) fn of_drives(images: Images, events: &[(usize, Event)], rng: &mut Rng) -> SecondCut {
        let of = events.iter().filter(|(_, e)| e.is_io()).count();
        let at = if rng.chance(AFTER_LAST_EVENT_PERCENT) { of } else { rng.index(of + 1) };
        let completions = Completions::of(events.iter().map(|(_, event)| event));
        let mut replays: Vec<(usize, Replay<'_>)> =
            images.into_iter().map(|(drive, image)| (drive, Replay::new(image, &completions))).collect();
        let (mut begun, mut promised, mut ready, mut done) = (Vec::new(), Vec::new(), false, 0);
        for (drive, event) in events {
            match event {
                Event::Attempt { step } => begun.push(*step),
                Event::Acknowledged { step } => promised.push(*step),
                Event::Ready => ready = true,
                _ if !event.is_io() => {}
                _ if done == at => break,
                _ => {
                    done += 1;
                    let replay = replays.iter_mut().find(|(of, _)| of == drive);
                    replay.into_iter().for_each(|(_, replay)| replay.step(event));
                }
            }
        }
        let mut cut = |replay: &Replay<'_>| replay.image().cut(&mut Sample::new(Rng::new(rng.draw())));
        let images = replays.iter().map(|(drive, replay)| (*drive, cut(replay))).collect();
        SecondCut { images, begun, promised, ready, at, of }
    }

    /// Takes the image of the only drive.
    pub(crate) fn image(&mut self) -> Media {
        self.images.pop().map(|(_, image)| image).expect("there is one drive")
    }

    /// The place of the second cut, for the description of a fault.
    pub(crate) fn place(&self) -> String {
        format!(" (second cut after {} of {} events)", self.at, self.of)
    }
}
